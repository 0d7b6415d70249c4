// Items, membership, truth, globals, identity.
#include "trace/opcodes/items.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/numpy/array_nodes.h"
#include "trace/numpy/numpy_scalars.h"
#include "trace/opcodes/attributes.h"
#include "trace/soundness/finalizers.h"
#include "trace/stdlib/attribute_readers.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/speculated_checks.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/tensor_hooks.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"
#include "trace/torch/torch_runs.h"

#include "fake/numpy_scalar_input.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/fields.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/plain_origins.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/opcodes/index_objects.h"
#include "trace/symbolic/tensors_as_numbers.h"

namespace alternator::trace {

// A NaN is found by identity.
static bool is_plain_key(Borrowed key) { return lift::is_plain(key.get()) && !lift::is_nan(key.get()); }
static bool is_lazy_key(Borrowed key) { return is_plain_key(key) || PyType_Check(key.get()); }

// The shadow of a container whose slots are still lifted one by one.
static lift::Shadow* open_shadow(lift::Lifter& lifter, Borrowed container) {
  lift::Known* known = lifter.known(container);
  return known != nullptr && known->shadow != nullptr && !known->shadow->whole ? known->shadow : nullptr;
}

// An instance of a user class, whose special methods are traced.
static bool is_instance(Borrowed object) {
  return (object.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !Natives::table().type(object.type()) &&
         lift::layout_base(object.type()) == &PyBaseObject_Type;
}

// A zero-dimensional array may be an index, and an array that is searched for is compared.
static void check_no_symbolic_array(Tracer& tracer, Borrowed key) {
  if (lift::is_plain(key.get())) return;
  if (PySlice_Check(key.get()))
    check_use(tracer, key, "an index");  // the fields of a pre-existing slice have not been checked
  if (tracer.array_nodes->holds_symbolic_array(key))
    stop(report::Reason::data_dependent, "an index or element that is computed from a tensor");
}

// Torch iterates over a tuple subclass with its own __iter__.
static void check_index_of_tensor(Borrowed key) {
  if (PyTuple_Check(key.get()) && key.type()->tp_iter != PyTuple_Type.tp_iter)
    stop(report::Reason::native_call, std::string("an index of the type ") + key.type()->tp_name);
  // Torch converts a list to a tensor, which may hold scalars only.
  auto refuse = [](PyObject* part) {
    if (PyList_Check(part)) refuse_index_objects(part);
  };
  refuse(key.get());
  for (Py_ssize_t i = 0; PyTuple_Check(key.get()) && i < PyTuple_GET_SIZE(key.get()); i++)
    refuse(PyTuple_GET_ITEM(key.get(), i));
}

// The index of a tensor with arrays replaced by tensors, as torch converts them itself. Null: there are none. A
// multi-dimensional array that is the whole index may mean a tuple of its rows.
static Ref index_without_arrays(Tracer& tracer, Borrowed key) {
  auto tensor_of = [&](Borrowed array, bool is_whole) {
    const int dimensions = lift::fields_of(array).dimensions;
    if (dimensions == 0 || (is_whole && dimensions != 1))
      stop(report::Reason::native_call, "an index of a tensor is an array of another shape");
    PyObject* arguments[] = {nullptr, array.get()};
    Ref tensor = call(tracer, {graph::torch_name("torch", "tensor"), arguments + 1, 1, {}});
    const at::ScalarType type = fake::unpack(tensor.get()).scalar_type();
    if (type != at::kLong && type != at::kInt && type != at::kBool)
      stop(report::Reason::native_call, "an index of a tensor is an array of another type");
    return tensor;
  };
  if (lift::is_array(key.get())) return tensor_of(key, true);
  if (!PyTuple_CheckExact(key.get())) return {};
  Ref index;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key.get()); i++) {
    PyObject* part = PyTuple_GET_ITEM(key.get(), i);
    if (!lift::is_array(part)) continue;
    Ref tensor = tensor_of(part, false);
    if (!index) index = checked(PySequence_List(key.get()));
    check_status(PyList_SetItem(index.get(), i, tensor.release()));
  }
  return index ? checked(PyList_AsTuple(index.get())) : Ref();
}

// Guards the length, unless the index does not depend on it.
static void guard_length_for(lift::Lifter& lifter, lift::Shadow& shadow, Py_ssize_t index) {
  if (index < 0 || index >= shadow.length) lifter.containers->guard_length(shadow);
}

// x[k], x[:, k]: torch does not accept an unbacked symbol as an index, but select() does. `view`: what the symbols
// select; `rest`: the remaining key, a tuple. False: there are none, or the key has tensors or lists in it.
static bool select_by_symbols(Tracer& tracer, Borrowed tensor, Borrowed key, Ref* view, Ref* rest) {
  auto is_index = [](PyObject* part) { return fake::is_symbol(part) && fake::class_of_symbol(part) == &PyLong_Type; };
  auto takes_dimension = [&](PyObject* part) { return part != Py_None && part != Py_Ellipsis; };
  Ref whole = PyTuple_CheckExact(key.get()) ? Ref::share(key) : checked(PyTuple_Pack(1, key.get()));
  bool found = false;
  Py_ssize_t dots = -1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(whole.get()); i++) {
    PyObject* part = PyTuple_GET_ITEM(whole.get(), i);
    if (part == Py_Ellipsis) dots = i;
    if (is_index(part))
      found = true;
    else if (part != Py_None && part != Py_Ellipsis && !PyLong_CheckExact(part) && !PySlice_Check(part))
      return false;
  }
  if (!found || tracer.function_modes->is_active() || tracer.torch_functions->is_overridden(tensor)) return false;
  Ref parts = checked(PySequence_List(whole.get()));
  *view = Ref::share(tensor);
  for (Py_ssize_t i = PyList_GET_SIZE(parts.get()); i-- > 0;) {
    if (!is_index(PyList_GET_ITEM(parts.get(), i))) continue;
    int64_t dimension = 0;
    const bool from_end = dots >= 0 && dots < i;
    const Py_ssize_t begin = from_end ? i : 0, end = from_end ? PyList_GET_SIZE(parts.get()) : i;
    for (Py_ssize_t k = begin; k < end; k++) dimension += takes_dimension(PyList_GET_ITEM(parts.get(), k)) ? 1 : 0;
    if (from_end) dimension = fake::unpack(view->get()).dim() - dimension;
    if (dimension < 0 || dimension >= fake::unpack(view->get()).dim()) return false;  // an error in eager
    Ref position = checked(PyLong_FromLongLong(dimension));
    PyObject* given[] = {nullptr, view->get(), position.get(), PyList_GET_ITEM(parts.get(), i)};
    *view = call_torch(tracer, {graph::torch_name("torch", "select"), given + 1, 3, {}});
    check_status(PySequence_DelItem(parts.get(), i));
  }
  *rest = checked(PyList_AsTuple(parts.get()));
  return true;
}

Ref get_item(Tracer& t, Borrowed container, Borrowed key) {
  if (fake::is_symbol(key) && !graph::is_tensor(container) && !is_instance(container)) t.backed->make_plain(key);
  if (t.lifter.lazy->is_open(container)) {
    const bool is_index = PyLong_CheckExact(key.get());
    const Py_ssize_t index = is_index ? PyLong_AsSsize_t(key.get()) : 0;
    const bool is_too_large = index == -1 && PyErr_Occurred() != nullptr;
    if (is_too_large) PyErr_Clear();
    if (Ref item = is_index && !is_too_large ? t.lifter.lazy->open_item(container, index) : Ref()) return item;
    if (is_index) {
      t.lifter.lazy->guard_open_length(container);
      return checked(PyObject_GetItem(container.get(), key.get()));  // an IndexError
    }
    t.lifter.escape(container);
  }
  if (lift::Shadow* shadow = open_shadow(t.lifter, container)) {
    if (PyDict_CheckExact(container.get()) && is_lazy_key(key)) {
      if (Ref value = t.lifter.containers->dict_item(*shadow, key)) return value;
      cpython::set_key_error(key.get());
      throw PyError();
    }
    if ((PyList_CheckExact(container.get()) || container.type() == lift::known_types().deque) &&
        PyLong_CheckExact(key.get())) {
      const Py_ssize_t length = Py_SIZE(container.get());
      Py_ssize_t index = PyLong_AsSsize_t(key.get());
      if (index == -1 && PyErr_Occurred()) PyErr_Clear(), index = length;
      guard_length_for(t.lifter, *shadow, index);
      if (index < 0) index += length;
      if (index >= 0 && index < length) return t.lifter.containers->list_item(*shadow, index);
      t.lifter.containers->guard_length(*shadow);
      return checked(PyObject_GetItem(container.get(), key.get()));  // an IndexError
    }
    t.lifter.containers->lift_whole(*shadow);
  }
  if (t.array_nodes->is_symbolic_array(container)) return t.arrays->item_of_array(container, key);
  check_use(t, container, "an item");
  t.lifter.escape(key);
  if (lift::is_array(container.get())) return t.arrays->item_of_array(container, key);
  check_no_symbolic_array(t, key);
  if (PyType_Check(container.get())) {  // Class[item]
    Ref name = checked(PyUnicode_InternFromString("__class_getitem__"));
    if (t.lifter.classes->attribute(container.as<PyTypeObject>(), name) != nullptr &&
        (container.as<PyTypeObject>()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) {
      PyObject* arguments[] = {nullptr, key.get()};
      return call(t, {get_from_type(t, container.as<PyTypeObject>(), name), arguments + 1, 1, {}});
    }
  }
  if (key.type() == &identity_type && !PyDict_Check(container.get())) stop(report::Reason::object_id, "an index");
  if (!graph::is_tensor(container) && !is_instance(container) && may_hold_unbacked(t, key))
    stop(report::Reason::unbacked_value, "an index");
  if (graph::is_tensor(container)) {
    check_index_of_tensor(key);
    Ref index = index_without_arrays(t, key);
    if (index) key = index;
    Ref view, rest;
    if (may_hold_symbol(t, key) && select_by_symbols(t, container, key, &view, &rest))
      return PyTuple_GET_SIZE(rest.get()) == 0 ? std::move(view) : get_item(t, view, rest);
    t.session.clear_failure();
    Ref cut = slices_with_numbers(t, key);
    if (cut) key = cut;
    Ref number = number_for_torch(t, key);
    if (number) key = number;
    PyObject* const operands[] = {container.get(), key.get()};
    const TorchRuns runs(t, t.torch_functions->is_overridden(operands, 2));
    if (Ref item = Ref::steal(PyObject_GetItem(container.get(), key.get()))) return item;
    stop_for_torch(t, "an item of a tensor");
  }
  if (is_identity(key) && may_hold_address(container)) stop(report::Reason::object_id, "an item");
  const LookingUp looking_up(key);
  return checked(PyObject_GetItem(container.get(), key.get()));
}

void set_item(Tracer& t, Borrowed container, Borrowed key, Borrowed value) {
  if (value) t.lifter.escape(value);
  if (lift::Shadow* shadow = open_shadow(t.lifter, container)) {
    if (value && PyDict_CheckExact(container.get()) && is_plain_key(key))
      return t.lifter.containers->dict_store(*shadow, key, value);
    t.lifter.containers->lift_whole(*shadow);
  }
  if (t.array_nodes->is_symbolic_array(container)) return t.arrays->set_item_of_array(container, key, value);
  check_use(t, container, "an item");
  t.lifter.escape(key);
  if (lift::is_array(container.get())) return t.arrays->set_item_of_array(container, key, value);
  check_no_symbolic_array(t, key);
  if (key.type() == &identity_type && !PyDict_Check(container.get())) stop(report::Reason::object_id, "an index");
  if (is_identity(key) && may_hold_address(container)) stop(report::Reason::object_id, "an item");
  if (!graph::is_tensor(container) && !is_instance(container) && may_hold_unbacked(t, key))
    stop(report::Reason::unbacked_value, "an index");
  std::optional<TorchRuns> runs;
  Ref index, cut, key_number, value_number;
  if (graph::is_tensor(container)) {
    check_index_of_tensor(key);
    if ((index = index_without_arrays(t, key))) key = index;
    Ref view, rest;
    if (value && may_hold_symbol(t, key) && select_by_symbols(t, container, key, &view, &rest)) {
      if (PyTuple_GET_SIZE(rest.get()) == 0) rest = checked(PyTuple_Pack(1, Py_Ellipsis));
      return set_item(t, view, rest, value);
    }
    t.session.clear_failure();
    if ((cut = slices_with_numbers(t, key))) key = cut;
    if ((key_number = number_for_torch(t, key))) key = key_number;
    if (value) {
      refuse_index_objects(value.get());
      if ((value_number = number_for_torch(t, value))) value = value_number;
    }
    PyObject* const operands[] = {container.get(), key.get(), value ? value.get() : Py_None};
    runs.emplace(t, t.torch_functions->is_overridden(operands, 3));
  }
  const int status =
      value ? PyObject_SetItem(container.get(), key.get(), value.get()) : PyObject_DelItem(container.get(), key.get());
  if (status < 0 && runs) stop_for_torch(t, "an item of a tensor is set");
  check_status(status);
}

bool contains(Tracer& t, Borrowed container, Borrowed value) {
  if (lift::Shadow* shadow = open_shadow(t.lifter, container)) {
    if (PyDict_CheckExact(container.get()) && is_lazy_key(value))
      return t.lifter.containers->dict_contains(*shadow, value);
    if (PySet_CheckExact(container.get())) {
      if (is_plain_key(value)) return t.lifter.containers->set_contains(*shadow, value);
      t.lifter.containers->lift_whole(*shadow);
    } else {
      t.lifter.containers->lift_whole(*shadow);
    }
  }
  check_use(t, container, "a membership test");
  t.lifter.escape(value);
  if (lift::is_array(container.get())) return t.arrays->array_contains(container, value);
  check_no_symbolic_array(t, value);
  check_arrays_within(t, container);
  if (value.type() == &identity_type && !PyDict_Check(container.get()) && !PyAnySet_Check(container.get()) &&
      !PyList_Check(container.get()) && !PyTuple_Check(container.get())) {
    stop(report::Reason::object_id, "a membership test");
  }
  if (is_identity(value) && may_hold_address(container)) stop(report::Reason::object_id, "a membership test");
  // A key is hashable, so it is no unbacked symbol.
  const bool asks_keys = PyDict_Check(container.get()) || PyDictKeys_Check(container.get());
  const bool may_meet = !asks_keys && !is_instance(container) && may_hold_unbacked(t, container);
  if (!is_instance(container) && (is_unbacked(t, value) || may_meet))
    stop(report::Reason::unbacked_value, "a membership test");
  const LookingUp looking_up(value);
  const Reading reading(true);
  return alternator::contains(container, value).value();
}

Tri truth(Tracer& t, Borrowed value) {
  if (value.get() == Py_True || value.type() == &identity_type) return Tri(1);
  if (value.get() == Py_False || value.get() == Py_None) return Tri(0);
  if (t.backed->is_backed(value)) return Tri(t.backed->is_nonzero(value) ? 1 : 0);
  if (fake::is_symbol(value)) {
    if (const std::optional<bool> assumed = t.checks->assume_comparison(value)) return Tri(*assumed ? 1 : 0);
    const char* what = fake::is_truth_symbol(value) ? "a comparison" : "the truth";
    stop(report::Reason::data_dependent, std::string(what) + " of an unbacked symbol");
  }
  if (t.lifter.lazy->is_open(value)) {
    t.lifter.lazy->guard_open_truth(value);
    return Tri(Py_SIZE(value.get()) > 0 ? 1 : 0);
  }
  if (lift::Shadow* shadow = open_shadow(t.lifter, value)) {
    t.lifter.containers->guard_truth(*shadow);
    return Tri(PyObject_Length(value.get()) > 0 ? 1 : 0);
  }
  check_use(t, value, "a truth test");
  if (lift::is_array(value.get())) return t.arrays->truth_of_array(value);
  if (!graph::is_tensor(value)) return alternator::truth(value);
  const Tri answer = alternator::truth(value);
  if (answer.error()) {
    if (t.function_modes->is_unwinding()) throw PyError();
    PyErr_Clear();
    if (t.torch_functions->is_overridden(value))
      stop(report::Reason::torch_call, "the truth of a tensor with a __torch_function__");
    if (const std::optional<bool> assumed = t.checks->assume_truth(value)) return Tri(*assumed ? 1 : 0);
    stop(report::Reason::data_dependent, "the truth of a tensor");
  }
  return answer;
}

Ref load_global(Tracer& t, Borrowed globals, Borrowed builtins, Borrowed name) {
  for (Borrowed dict : {globals, builtins}) {
    if (t.lifter.made_here(dict)) {  // the namespaces that exec was given
      if (PyObject* value = PyDict_GetItemWithError(dict.get(), name.get())) return Ref::share(value);
      if (PyErr_Occurred()) throw PyError();
    } else if (Ref value = t.lifter.containers->dict_item(t.lifter.namespaces->of_globals(dict), name)) {
      return value;
    }
  }
  cpython::set_not_defined(name);
  throw PyError();
}

void guard_import(Tracer& t, Borrowed name) {
  Ref hook_name = checked(PyUnicode_InternFromString("__import__"));
  Ref hook = t.lifter.containers->dict_item(t.lifter.namespaces->of_globals(PyEval_GetBuiltins()), hook_name);
  if (!hook || !PyCFunction_Check(hook.get())) stop(report::Reason::native_call, "a user-defined __import__");
  // `import a.b` returns a, and finds b in it.
  Ref part = Ref::share(name);
  lift::Source* modules = t.lifter.constant(PyImport_GetModuleDict());
  while (true) {
    Ref module = Ref::steal(PyImport_GetModule(part.get()));
    if (!module) break;
    t.tree->guard(t.tree->child(modules, lift::Access::kItem, part), {lift::GuardKind::kIs, std::move(module)});
    const Py_ssize_t dot = PyUnicode_FindChar(part.get(), '.', 0, PyUnicode_GET_LENGTH(part.get()), -1);
    if (dot < 0) break;
    part = checked(PyUnicode_Substring(part.get(), 0, dot));
  }
  PyErr_Clear();
}

void store_global(Tracer& t, Borrowed globals, Borrowed name, Borrowed value) {
  if (t.lifter.made_here(globals)) {
    check_status(value ? PyDict_SetItem(globals.get(), name.get(), value.get())
                       : PyDict_DelItem(globals.get(), name.get()));
    return;
  }
  lift::Shadow& name_space = t.lifter.namespaces->of_globals(globals);
  if (!value && !t.lifter.containers->dict_item(name_space, name)) {
    cpython::set_key_error(name.get());
    throw PyError();
  }
  t.finalizers->check(t.lifter.namespaces->peek(globals, name), nullptr);
  t.lifter.containers->dict_store(name_space, name, value);
}

void store_cell(Tracer& t, Borrowed cell, Ref value) {
  if (!t.lifter.cells->is_written(cell)) {
    lift::Source* place = t.tree->child(t.lifter.known(cell)->source, lift::Access::kContents);
    t.finalizers->check(PyCell_GET(cell.get()), place);
  }
  t.lifter.cells->store(cell, std::move(value));
}

// CPython has one object for each of them. A number that the trace has specialized on is another object meanwhile.
bool are_one_small_int(Borrowed left, Borrowed right) {
  if (!PyLong_CheckExact(left.get()) || !PyLong_CheckExact(right.get())) return false;
  int overflow = 0;
  const long long one = PyLong_AsLongLongAndOverflow(left.get(), &overflow);
  const long long other = overflow == 0 ? PyLong_AsLongLongAndOverflow(right.get(), &overflow) : 0;
  return overflow == 0 && one == other && one >= -5 && one <= 256;
}

void note_identity_test(Tracer& t, Borrowed left, Borrowed right) {
  auto is_value = [](Borrowed object) {
    PyObject* o = object.get();
    return lift::is_plain(o) && !lift::is_nan(o) && o != Py_None && o != Py_True && o != Py_False && o != Py_Ellipsis &&
           o != Py_NotImplemented && !PyType_Check(o) && !PyBool_Check(o);
  };
  // Whether two ints or floats are one object depends on their values.
  auto is_number = [](Borrowed object) {
    return (PyLong_Check(object.get()) && !PyBool_Check(object.get())) || PyFloat_Check(object.get());
  };
  if (left != right && is_number(left) && is_number(right)) {
    t.backed->make_plain(left);
    t.backed->make_plain(right);
    if (are_one_small_int(left, right)) return;
    // Two variables may hold one object.
    const bool may_be_one = t.lifter.known(left) != nullptr || t.lifter.known(right) != nullptr;
    if (t.backed->any() && may_be_one && lift::plain_equal(left.get(), right.get()))
      stop(report::Reason::unbacked_value, "an identity test");
  }
  if (left != right) {
    t.backed->fix_copy(left);
    t.backed->fix_copy(right);
  }
  if (left == right && fake::is_symbol(left) && t.recorder.shares_symbols())
    stop(report::Reason::unbacked_value, "an identity test");
  if (left != right && (fake::is_symbol(left) ? is_number(right) : fake::is_symbol(right) && is_number(left)))
    stop(report::Reason::unbacked_value, "an identity test");
  // Equal strings of one character are one object.
  auto is_text = [](Borrowed object) { return PyUnicode_Check(object.get()) || is_deferred_string(object); };
  if (left != right && is_text(left) && is_text(right) && (is_deferred_string(left) || is_deferred_string(right)))
    stop(report::Reason::tensor_text, "an identity test");
  // The two inputs may be one object.
  if (left != right && fake::is_numpy_scalar_input(left) && fake::is_numpy_scalar_input(right))
    stop(report::Reason::unbacked_value, "an identity test");
  // A constant tuple of the code, and a pre-existing one: no guard checks which object that is.
  auto is_literal = [&](Borrowed object) {
    return PyTuple_CheckExact(object.get()) && t.lifter.functions->is_code_constant(object);
  };
  auto is_preexisting = [&](Borrowed object) {
    return PyTuple_Check(object.get()) && t.lifter.known(object) != nullptr;
  };
  if ((is_literal(left) && is_preexisting(right)) || (is_literal(right) && is_preexisting(left)))
    stop(report::Reason::native_call, "an identity test of a literal");
  // Guards prove equality of plain values, not identity, unless identity is guarded.
  if (left == right && is_value(left) && t.lifter.origins->has_one(left)) return;
  if (is_value(left) && is_value(right) && lift::plain_equal(left.get(), right.get())) {
    if (t.lifter.origins->guard_identity(left) && t.lifter.origins->guard_identity(right)) return;
    stop(report::Reason::native_call, "an identity test of two equal constants");
  }
}

// Native code that converts a pre-existing exception to a string reads its arguments.
static void check_exception_text(lift::Lifter& lifter, Borrowed exception, const UsedBy& by) {
  PyTypeObject* layout = lift::layout_base(exception.type());
  static auto* const base = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  static auto* const key_error = reinterpret_cast<PyTypeObject*>(PyExc_KeyError);
  if (layout->tp_str != base->tp_str && layout->tp_str != key_error->tp_str)
    stop(report::Reason::opaque_object, by.text() + " of a pre-existing " + layout->tp_name);
  Ref name = checked(PyUnicode_InternFromString("args"));
  Ref arguments = lifter.fields->load(exception, name, _PyType_Lookup(exception.type(), name.get()));
  const Borrowed own = exception.as<PyBaseExceptionObject>()->args;
  lift::Known* known = arguments ? lifter.known(arguments) : nullptr;
  const bool same = arguments && (Borrowed(arguments) == own || (known != nullptr && Borrowed(known->original) == own));
  // Its real arguments must be those that the program would see.
  if (!same || Borrowed(arguments) != own)
    stop(report::Reason::opaque_object, by.text() + " of a pre-existing exception with changed arguments");
}

std::string UsedBy::text() const { return function_ ? native_name(function_) : text_; }

void check_use(Tracer& t, Borrowed value, const UsedBy& by) {
  if (value.type() == &identity_type) stop(report::Reason::object_id, by.text());
  if (is_deferred_random(value)) stop(report::Reason::random_number, by.text());
  if (is_deferred_string(value)) stop(report::Reason::tensor_text, by.text());
  if (is_unbacked(t, value)) stop(report::Reason::unbacked_value, by.text());
  if (is_hook_handle(value)) stop(report::Reason::hook, "its handle is used");
  lift::Known* known = t.lifter.known(value);
  if (known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, by.text() + " of " + value.type()->tp_name);
  if (lift::is_array(value.get())) return t.arrays->use_array(value);
  if (t.lifter.symbolic_arrays.promoted && PyIter_Check(value.get())) check_arrays_within(t, value);
  if (known != nullptr && known->instance && lift::layout_base(value.type()) == lift::known_types().simple_namespace)
    stop(report::Reason::opaque_object, by.text() + " of a pre-existing types.SimpleNamespace");
  if (known != nullptr && known->instance && PyExceptionInstance_Check(value.get()))
    check_exception_text(t.lifter, value, by);
  if (reads_attributes(value)) stop(report::Reason::native_call, by.text() + " of " + value.type()->tp_name);
  if (PyWeakref_CheckProxy(value.get())) return check_use(t, PyWeakref_GetObject(value.get()), by);
  if ((value.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !t.lifter.classes->use_special_methods(value.type()) &&
      !lift::is_native_enum_member(value.get()))
    stop(report::Reason::native_call, std::string("a special method of ") + value.type()->tp_name + " is no function");
}

}  // namespace alternator::trace
