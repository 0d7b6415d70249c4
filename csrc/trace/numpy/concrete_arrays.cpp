// Concrete numpy arrays: made from known values, they are computed while tracing, by numpy itself.
#include "trace/numpy/concrete_arrays.h"
#include "trace/numpy/array_conversions.h"
#include "trace/numpy/array_members.h"
#include "trace/numpy/array_nodes.h"
#include "trace/opcodes/items.h"
#include "trace/symbolic/backed_numbers.h"

#include "graph/record/torch_types.h"
#include "trace/calls/handlers.h"
#include "trace/calls/markers.h"
#include "trace/calls/natives.h"
#include "trace/core/tracer.h"

#include <algorithm>

namespace alternator::trace {

namespace {

constexpr int kDeepest = 32;
constexpr Py_ssize_t kMostElements = 1 << 20;  // computed in a trace

bool is_result(PyObject* value, int depth = 0) {
  if (lift::is_plain(value)) return !lift::is_enum_member(value);
  if (lift::is_array(value)) return lift::is_number_array(value) && lift::element_count(value) <= kMostElements;
  if (depth > kDeepest || (!PyList_CheckExact(value) && !PyTuple_CheckExact(value))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
    if (!is_result(PySequence_Fast_GET_ITEM(value, i), depth + 1)) return false;
  }
  return true;
}

bool is_type_of_numbers(Borrowed value) {
  PyObject* v = value.get();
  if (!PyType_Check(v)) return false;
  auto* type = value.as<PyTypeObject>();
  return type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type ||
         lift::numpy_kind_of(type) != lift::NumpyKind::kNone;
}

bool is_empty(PyObject* value) {
  if (lift::is_array(value)) return lift::element_count(value) == 0;
  return (PyList_Check(value) || PyTuple_Check(value)) && PySequence_Fast_GET_SIZE(value) == 0;
}

}  // namespace

// A CPU tensor may share memory with an array: where the program writes to a pre-existing one, a pre-existing array may
// have changed too.
bool ConcreteArrays::has_written_memory() {
  graph::Program& program = t.recorder.program();
  for (; nodes_seen_ < program.nodes.size() && !memory_written_; nodes_seen_++) {
    const graph::Node& node = program.nodes[nodes_seen_];
    if ((node.effects & (graph::kMutates | graph::kActs)) == 0) continue;
    memory_written_ = program.has_arrays;
    program.each_tensor_argument(node, [&](uint32_t id) {
      const at::Tensor& argument = program.tensors[id].fake;
      if (!argument.defined() || !argument.device().is_cpu()) return;
      for (const auto& [lifted, source] : t.lifter.tensors()) {
        const at::Tensor& preexisting = fake::unpack(lifted.get());
        memory_written_ = memory_written_ || !argument.has_storage() || !preexisting.has_storage() ||
                          argument.storage().unsafeGetStorageImpl() == preexisting.storage().unsafeGetStorageImpl();
      }
    });
  }
  return memory_written_;
}

void ConcreteArrays::use_array(Borrowed array) {
  if (t.lifter.symbolic_arrays.has(array))
    stop(report::Reason::data_dependent, "the data of an array that is computed from a tensor");
  if (!t.lifter.has_arrays()) return;
  Borrowed owner = lift::array_owner(array);
  if (owner && t.lifter.known(owner) != nullptr && has_written_memory())
    stop(report::Reason::native_call, "a pre-existing array after a write to a tensor");
}

// Arguments that numpy may receive: known values without user-defined methods.
bool ConcreteArrays::may_compute_with(Borrowed value, int depth) {
  PyObject* v = value.get();
  if (lift::is_plain(v)) return !lift::is_enum_member(v);
  if (lift::is_array(v)) {
    check_use(t, value, "numpy");
    return lift::is_number_array(v);
  }
  if (is_type_of_numbers(value)) return true;
  if (PySlice_Check(v)) {
    check_use(t, value, "numpy");  // a pre-existing one was not inspected yet
    auto* slice = reinterpret_cast<PySliceObject*>(v);
    return may_compute_with(slice->start, depth + 1) && may_compute_with(slice->stop, depth + 1) &&
           may_compute_with(slice->step, depth + 1);
  }
  if (depth > kDeepest || (!PyList_CheckExact(v) && !PyTuple_CheckExact(v))) return false;
  t.lifter.escape(value);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) {
    if (!may_compute_with(PySequence_Fast_GET_ITEM(v, i), depth + 1)) return false;
  }
  return true;
}

void ConcreteArrays::check_numpy_error(const std::string& what) {
  if (!PyErr_ExceptionMatches(PyExc_Warning)) return;
  PyErr_Clear();
  stop(report::Reason::native_call, what + " warns");
}

template <class Operation>
Ref ConcreteArrays::compute(const std::string& what, Operation&& operation) {
  Ref result;
  {
    const Paused paused(t);
    const lift::WarningsRaise warnings;
    result = Ref::steal(operation());
  }
  if (!result) {
    check_numpy_error(what);
    throw PyError();
  }
  if (!is_result(result.get()))
    stop(report::Reason::native_call, what + " that returns something other than scalars and arrays");
  return result;
}

Ref ConcreteArrays::call(const Call& call, Callee callee, Borrowed self) {
  const ArrayMembers& members = ArrayMembers::table();
  const ArrayCall& row = callee == Callee::kMethod ? members.method(call.callable) : members.function(call.callable);
  const std::string name = native_name(call.callable);
  if (callee == Callee::kMethod && !row.computes) stop(report::Reason::native_call, name);
  const bool is_symbolic = (self && t.array_nodes->is_symbolic_array(self)) ||
                           std::any_of(call.arguments, call.arguments + call.count(), [&](PyObject* argument) {
                             return t.array_nodes->holds_symbolic_array(argument);
                           });
  if (is_symbolic && callee != Callee::kNumber && !lift::is_dtype_class(call.callable))
    return t.array_nodes->call_on_symbolic(name, call, row, self);
  if (call.callable == Borrowed(members.asarray) && call.has_positional(1)) {
    if (Ref array = array_of_tensor(t, call.callable, call.arguments[0])) return array;
  }
  check_arguments(call, row, self, name);
  return compute(name, [&] {
    return PyObject_Vectorcall(call.callable.get(), call.arguments, call.positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               call.keyword_names.get());
  });
}

void ConcreteArrays::check_arguments(const Call& call, const ArrayCall& row, Borrowed self, const std::string& name) {
  if (self) check_use(t, self, name.c_str());
  for (size_t i = 0; i < call.count(); i++) {
    t.backed->make_plain(call.arguments[i]);
    if (!may_compute_with(call.arguments[i]))
      stop(report::Reason::native_call, name + " on something other than scalars and arrays");
  }
  for (size_t i = 0; i < call.keywords(); i++) {
    // Where a mask is false, the result is uninitialized memory.
    PyObject* keyword = PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i));
    for (const char* refused : {"where", "like", "ddof", "correction"}) {
      if (PyUnicode_CompareWithASCIIString(keyword, refused) == 0)
        stop(report::Reason::native_call, name + " with " + refused);
    }
  }
  if (!row.warns) return;
  const bool of_empty = self ? is_empty(self.get()) : call.count() > 0 && is_empty(call.arguments[0]);
  if (of_empty) stop(report::Reason::native_call, name + " of an empty array or sequence");
}

template <Callee kCallee>
static Ref call_unbound(Tracer& t, const Call& call) {
  return t.marks->is_allowed_in_graph(call.callable) ? Ref() : t.arrays->call(call, kCallee, {});
}

// A method of an array, bound or not.
static Ref call_method(Tracer& t, const Call& call) {
  PyObject* c = call.callable.get();
  Borrowed self = PyCFunction_Check(c) ? PyCFunction_GET_SELF(c) : nullptr;
  Borrowed array = self ? self : call.positional > 0 ? Borrowed(call.arguments[0]) : Borrowed();
  if (!array || !lift::is_array(array.get()) || t.marks->is_allowed_in_graph(call.callable)) return {};
  return t.arrays->call(call, Callee::kMethod, self);
}

bool register_numpy(Handlers& handlers) {
  for (PyObject* function : lift::numpy_functions()) handlers.add(function, call_unbound<Callee::kFunction>);
  for (PyTypeObject* type : lift::numpy_number_types()) {
    handlers.add(reinterpret_cast<PyObject*>(type), call_unbound<Callee::kNumber>);
    handlers.add_bound(type, call_unbound<Callee::kNumber>);
  }
  if (PyObject* dtype = lift::dtype_class()) handlers.add(dtype, call_unbound<Callee::kFunction>);
  PyTypeObject* array = lift::array_type();
  if (array == nullptr) return true;
  handlers.add_bound(array, call_method);
  PyObject *name, *member;
  for (Py_ssize_t position = 0; PyDict_Next(array->tp_dict, &position, &name, &member) != 0;) {
    if (Py_IS_TYPE(member, &PyMethodDescr_Type)) handlers.add(member, call_method);
  }
  handlers.add("builtins", "len", [](Tracer& t, const Call& call) {
    if (!call.has_positional(1) || !t.array_nodes->is_symbolic_array(call.arguments[0])) return Ref();
    return checked(PyLong_FromSsize_t(t.array_nodes->length_of_symbolic(call.arguments[0])));
  });
  handlers.add("builtins", "abs", [](Tracer& t, const Call& call) {
    if (!call.has_positional(1) || !t.array_nodes->is_symbolic_array(call.arguments[0])) return Ref();
    return t.array_nodes->absolute(call.callable, call.arguments[0]);
  });
  return true;
}

bool ConcreteArrays::is_array_operation(Borrowed left, Borrowed right) {
  auto makes_array = [](Borrowed number, Borrowed other) {
    return (PyList_Check(other.get()) || PyTuple_Check(other.get())) && lift::is_numpy_number(number.get());
  };
  if (PyUnicode_Check(left.get()) || PyBytes_Check(left.get()) || PyByteArray_Check(left.get()))
    return false;  // str or bytes formatting and repetition
  return lift::is_array(left.get()) || lift::is_array(right.get()) || makes_array(left, right) ||
         makes_array(right, left);
}

Ref ConcreteArrays::operate_on_arrays(binaryfunc operation, Borrowed left, Borrowed right) {
  const bool left_symbolic = t.array_nodes->holds_symbolic_array(left),
             right_symbolic = t.array_nodes->holds_symbolic_array(right);
  if ((!left_symbolic && !may_compute_with(left)) || (!right_symbolic && !may_compute_with(right)))
    stop(report::Reason::native_call, "an operator of an array and something else");
  if (left_symbolic || right_symbolic) return t.array_nodes->operate_on_symbolic(operation, left, right);
  return compute("an operator on an array", [&] { return operation(left.get(), right.get()); });
}

Ref ConcreteArrays::operate_on_array(unaryfunc operation, Borrowed operand) {
  if (t.array_nodes->is_symbolic_array(operand)) return t.array_nodes->operate_on_symbolic(operation, operand);
  check_use(t, operand, "an operator");
  return compute("an operator on an array", [&] { return operation(operand.get()); });
}

Ref ConcreteArrays::compare_arrays(Borrowed left, Borrowed right, int operation) {
  const bool left_symbolic = t.array_nodes->holds_symbolic_array(left),
             right_symbolic = t.array_nodes->holds_symbolic_array(right);
  if ((!left_symbolic && !may_compute_with(left)) || (!right_symbolic && !may_compute_with(right)))
    stop(report::Reason::native_call, "a comparison of an array and something else");
  if (left_symbolic || right_symbolic) return t.array_nodes->compare_symbolic(left, right, operation);
  return compute("a comparison of an array", [&] { return PyObject_RichCompare(left.get(), right.get(), operation); });
}

Ref ConcreteArrays::get_from_array(Borrowed array, Borrowed name) {
  PyObject* member = _PyType_Lookup(array.type(), name.get());
  if (member == nullptr) return checked(PyObject_GetAttr(array.get(), name.get()));
  if (t.array_nodes->is_symbolic_array(array)) return t.array_nodes->attribute_of_symbolic(array, name, member);
  check_use(t, array, "an attribute");
  const ArrayMembers& members = ArrayMembers::table();
  const ArrayAttribute attribute = members.attribute(member);
  // The memory of a pre-existing array is that of our copy.
  const bool is_base = attribute == ArrayAttribute::kBase;
  Borrowed owner = is_base ? lift::array_owner(array) : Borrowed();
  const bool refused = attribute == ArrayAttribute::kRefused && !members.method(member).computes;
  if (refused || (is_base && (!owner || t.lifter.known(owner) != nullptr))) {
    const char* text = PyUnicode_AsUTF8(name.get());
    if (text == nullptr) throw PyError();
    stop(report::Reason::native_call, std::string("the attribute ") + text + " of an array");
  }
  return checked(PyObject_GetAttr(array.get(), name.get()));
}

Ref ConcreteArrays::item_of_array(Borrowed array, Borrowed key) {
  const bool key_symbolic = t.array_nodes->holds_symbolic_array(key);
  if (!key_symbolic && !may_compute_with(key)) stop(report::Reason::native_call, "an index of an array");
  if (key_symbolic || t.array_nodes->is_symbolic_array(array)) return t.array_nodes->item_of_symbolic(array, key);
  return compute("an item of an array", [&] { return PyObject_GetItem(array.get(), key.get()); });
}

void ConcreteArrays::set_item_of_array(Borrowed array, Borrowed key, Borrowed value) {
  const bool key_symbolic = t.array_nodes->holds_symbolic_array(key),
             value_symbolic = value && t.array_nodes->holds_symbolic_array(value);
  if ((!key_symbolic && !may_compute_with(key)) || (value && !value_symbolic && !may_compute_with(value)))
    stop(report::Reason::native_call, "an item of an array is set");
  if (value && (key_symbolic || value_symbolic || t.array_nodes->is_symbolic_array(array)))
    return t.array_nodes->set_item_of_symbolic(array, key, value);
  if (t.array_nodes->is_symbolic_array(array)) stop(report::Reason::native_call, "an item of an array is deleted");
  (void)compute("an item of an array", [&]() -> PyObject* {
    const int status =
        value ? PyObject_SetItem(array.get(), key.get(), value.get()) : PyObject_DelItem(array.get(), key.get());
    return status < 0 ? nullptr : Py_NewRef(Py_None);
  });
}

bool ConcreteArrays::array_contains(Borrowed array, Borrowed value) {
  if (!may_compute_with(value)) stop(report::Reason::native_call, "a membership test of an array");
  Ref answer = compute("a membership test of an array", [&]() -> PyObject* {
    const int found = PySequence_Contains(array.get(), value.get());
    return found < 0 ? nullptr : PyBool_FromLong(found);
  });
  return answer.get() == Py_True;
}

Tri ConcreteArrays::truth_of_array(Borrowed array) {
  Ref answer = compute("the truth of an array", [&]() -> PyObject* {
    const int found = PyObject_IsTrue(array.get());
    return found < 0 ? nullptr : PyBool_FromLong(found);
  });
  return Tri(answer.get() == Py_True ? 1 : 0);
}

// --- memory that tensors share with arrays ---------------------------------------------------------------------------

static bool same_storage(const at::Tensor& a, const at::Tensor& b) {
  return !a.has_storage() || !b.has_storage() ||
         a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

// Whether a tensor, or the array that shares its memory, was written to.
bool ConcreteArrays::shared_changed() {
  graph::Program& program = t.recorder.program();
  return std::ranges::any_of(shared, [&](const SharedMemory& shared) {
    if (std::memcmp(lift::fields_of(shared.array).data, shared.bytes.data(), shared.bytes.size()) != 0) return true;
    bool written = false;
    for (size_t i = shared.position; i < program.nodes.size(); i++) {
      if ((program.nodes[i].effects & (graph::kMutates | graph::kActs)) == 0) continue;
      written = written || program.has_arrays;
      program.each_tensor_argument(program.nodes[i], [&](uint32_t id) {
        const at::Tensor& argument = program.tensors[id].fake;
        written = written || (argument.defined() && same_storage(argument, fake::unpack(shared.tensor.get())));
      });
    }
    return written;
  });
}

bool ConcreteArrays::leaves_with_array(const std::vector<Ref>& tensors) const {
  return std::ranges::any_of(shared, [&](const SharedMemory& shared) {
    if (!shared.outside && Py_REFCNT(shared.array.get()) == 1) return false;  // the array does not leave the call
    return std::ranges::any_of(tensors, [&](const Ref& tensor) {
      return graph::is_tensor(tensor) && same_storage(fake::unpack(tensor.get()), fake::unpack(shared.tensor.get()));
    });
  });
}

}  // namespace alternator::trace
