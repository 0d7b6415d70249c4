// Symbolic arrays: what x.numpy() returns, and what is computed from it. A call on such arrays is a node that calls
// numpy itself, in a separate segment outside what a backend compiles: results, dtypes, memory and errors are numpy's.
// While tracing, the same call runs on example arrays of the same dtypes, shapes and strides with other contents, which
// shows what the result looks like.
#include "trace/numpy/array_nodes.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/opcodes/items.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"

#include "cpython/version.h"
#include "graph/record/torch_types.h"
#include "graph/record/without_torch_functions.h"
#include "interpreter/binary_operations.h"
#include "py/import.h"
#include "trace/calls/natives.h"
#include "trace/core/error_text.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace alternator::trace {

namespace {

using namespace std::string_view_literals;

constexpr int kDeepest = 8;
constexpr Py_ssize_t kMostElements = 1 << 24;  // of an example array

constexpr size_t kAny = 64;  // all arguments

struct ArrayCall {
  std::string_view name;
  size_t symbolic;
  bool writes;
};
constexpr ArrayCall kFunctions[] = {
#define ALT_ARRAY_FUNCTION(NAME, SYMBOLIC) {#NAME, SYMBOLIC, false},
#define ALT_ARRAY_METHOD(NAME, SYMBOLIC, WRITES)
#include "trace/numpy/array_calls.def"
#undef ALT_ARRAY_FUNCTION
#undef ALT_ARRAY_METHOD
};
constexpr ArrayCall kMethods[] = {
#define ALT_ARRAY_FUNCTION(NAME, SYMBOLIC)
#define ALT_ARRAY_METHOD(NAME, SYMBOLIC, WRITES) {#NAME, SYMBOLIC, WRITES},
#include "trace/numpy/array_calls.def"
#undef ALT_ARRAY_FUNCTION
#undef ALT_ARRAY_METHOD
};
constexpr ArrayCall kUfunc = {"", kAny, false};

template <size_t kCount>
const ArrayCall* find(const ArrayCall (&rows)[kCount], std::string_view name) {
  for (const ArrayCall& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool is_ufunc(Borrowed callable) { return strcmp(callable.type()->tp_name, "numpy.ufunc") == 0; }
bool is_builtin(Borrowed callable, const char* name) {
  PyObject* c = callable.get();
  if (!PyCFunction_Check(c) || strcmp(callable.as<PyCFunctionObject>()->m_ml->ml_name, name) != 0) return false;
  PyObject* module = callable.as<PyCFunctionObject>()->m_module;
  return module != nullptr && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "builtins") == 0;
}

std::string_view last_word(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// What numpy computed from example arrays: arrays, or lists and tuples of them. False: scalars, or something else.
bool collect_arrays(PyObject* value, std::vector<Borrowed>* arrays, int depth = 0) {
  if (lift::is_array(value)) {
    arrays->push_back(value);
    return lift::is_number_array(value) && lift::element_count(value) <= kMostElements;
  }
  if (depth > kDeepest || (!PyList_CheckExact(value) && !PyTuple_CheckExact(value))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
    if (!collect_arrays(PySequence_Fast_GET_ITEM(value, i), arrays, depth + 1)) return false;
  }
  return true;
}

// The same value with its arrays replaced; `change` returns null for one that stays.
template <class Change>
Ref with_arrays(Borrowed value, const Change& change, int depth = 0) {
  PyObject* v = value.get();
  if (lift::is_array(v)) {
    Ref other = change(value);
    return other ? std::move(other) : Ref::share(value);
  }
  if (PySlice_Check(v)) {
    auto* slice = value.as<PySliceObject>();
    Ref start = with_arrays(slice->start, change, depth + 1), stop = with_arrays(slice->stop, change, depth + 1),
        step = with_arrays(slice->step, change, depth + 1);
    if (start.get() == slice->start && stop.get() == slice->stop && step.get() == slice->step) return Ref::share(value);
    return checked(PySlice_New(start.get(), stop.get(), step.get()));
  }
  if (depth > kDeepest || (!PyList_CheckExact(v) && !PyTuple_CheckExact(v))) return Ref::share(value);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(v);
  Ref copy;
  for (Py_ssize_t i = 0; i < count; i++) {
    Borrowed before = PySequence_Fast_GET_ITEM(v, i);
    Ref item = with_arrays(before, change, depth + 1);
    if (!copy && Borrowed(item) == before) continue;
    if (!copy) copy = checked(PySequence_List(v));
    check_status(PyList_SetItem(copy.get(), i, item.release()));
  }
  if (!copy) return Ref::share(value);
  return PyTuple_CheckExact(v) ? checked(PyList_AsTuple(copy.get())) : copy;
}

Ref operator_named(const char* name) { return graph::torch_name("operator", name); }

bool has_type_of_arrays(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
      return true;
    default:
      return false;
  }
}

// An example array: a real array of zeros that numpy treats like the array of such a tensor.
Ref make_example_array(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); i++) last += (sizes[i] - 1) * strides[i];
  const fake::Inactive inactive;
  const fake::WithoutTransforms untransformed;
  const at::Tensor memory = at::zeros({std::max<int64_t>(last + 1, 1)}, at::TensorOptions(at::kCPU).dtype(type));
  const at::Tensor tensor = memory.as_strided(sizes, strides);
  const graph::WithoutTorchFunctions without_functions;
  return checked(PyObject_CallMethod(Ref::steal(THPVariable_Wrap(tensor)).get(), "numpy", nullptr));
}

}  // namespace

bool ArrayNodes::is_symbolic_array(Borrowed value) {
  if (!lift::is_array(value.get())) return false;
  if (t.lifter.symbolic_arrays.has(value) || t.lifter.symbolic_arrays.is_result(value)) return true;
  const lift::Known* known = t.lifter.known(value);
  return known != nullptr && known->opaque && use_preexisting_array(value);
}

bool ArrayNodes::use_preexisting_array(Borrowed array) {
  if (t.functorch->transformed || t.recorder.is_silent() || t.recorder.is_checkpointed() ||
      !lift::is_number_array(array.get()) || !lift::is_aligned(array) || !lift::is_writeable(array) ||
      lift::element_count(array) > kMostElements)
    return false;
  Ref type = t.arrays->torch_type(array);
  if (!type) return false;
  const lift::ArrayFields& fields = lift::fields_of(array);
  const Py_ssize_t size = lift::element_size(array);
  std::vector<int64_t> sizes, strides;
  for (int i = 0; i < fields.dimensions; i++) {
    if (fields.shape[i] == 0 || fields.strides[i] < 0 || fields.strides[i] % size != 0) return false;
    sizes.push_back(fields.shape[i]);
    strides.push_back(fields.strides[i] / size);
  }
  const lift::Known* known = t.lifter.known(array);
  Ref stand_in = [&] {
    const Paused paused(t);
    return make_example_array(sizes, strides, reinterpret_cast<THPDtype*>(type.get())->scalar_type);
  }();
  if (!lift::is_number_array(stand_in.get()) || lift::fields_of(stand_in).dtype != fields.dtype) return false;
  t.tree->guard(known->source, {lift::GuardKind::kEquals, Ref(stand_in)});
  Ref label = checked(PyUnicode_FromString(known->source->text().c_str()));
  t.recorder.declare_array(array, label, checked(PyLong_FromUnsignedLong(known->source->id)));
  t.lifter.symbolic_arrays.add_preexisting(array, std::move(stand_in));
  return true;
}

bool ArrayNodes::holds_symbolic_array(Borrowed value, int depth) {
  PyObject* v = value.get();
  if (lift::is_array(v)) return is_symbolic_array(value);
  if ((t.lifter.symbolic_arrays.empty() && !t.lifter.has_arrays()) || depth > kDeepest) return false;
  if (PySlice_Check(v)) {
    auto* slice = value.as<PySliceObject>();
    return holds_symbolic_array(slice->start, depth + 1) || holds_symbolic_array(slice->stop, depth + 1) ||
           holds_symbolic_array(slice->step, depth + 1);
  }
  if (!PyList_CheckExact(v) && !PyTuple_CheckExact(v)) return false;
  t.lifter.escape(value);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) {
    if (holds_symbolic_array(PySequence_Fast_GET_ITEM(v, i), depth + 1)) return true;
  }
  return false;
}

// A concrete array of the trace is about to be overwritten with symbolic data: from here on it is a symbolic array of
// the graph.
void ArrayNodes::promote_array(Borrowed array, const std::string& what) {
  Borrowed root = lift::array_owner(array);
  auto refuse = [&](const char* why) { stop(report::Reason::native_call, what + ": " + why); };
  if (!root || t.lifter.known(root) != nullptr || !lift::is_writeable(root) || !lift::is_number_array(root.get()))
    refuse("the array was not created in this call");
  for (const SharedMemory& shared : t.arrays->shared) {
    if (Borrowed(shared.array) == root) refuse("a tensor shares the memory of the array");
  }
  Ref frozen = frozen_array(root, what);
  for (int i = 0; i < lift::fields_of(root).dimensions; i++) {
    if (lift::fields_of(frozen).strides[i] != lift::fields_of(root).strides[i]) refuse("its memory layout");
  }
  Ref copy = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(lift::array_type()), "copy"));
  Ref order = checked(PyUnicode_InternFromString("K"));
  PyObject* arguments[] = {frozen.get(), order.get()};
  t.lifter.symbolic_arrays.add(root);
  t.lifter.symbolic_arrays.promoted = true;
  t.recorder.note_array_call(copy, arguments, 2, {}, Ref::share(root), false);
}

// A copy of a concrete array among the arguments, with its current contents.
Ref ArrayNodes::frozen_array(Borrowed array, const std::string& what) {
  const lift::ArrayFields& fields = lift::fields_of(array);
  for (int i = 0; i < fields.dimensions; i++) {
    if (fields.strides[i] < 0) stop(report::Reason::native_call, what + ": a constant with negative strides");
  }
  Ref copy = checked(PyObject_CallMethod(array.get(), "copy", "s", "K"));
  t.recorder.keep_array(copy);
  t.keep_alive.push_back(Ref(copy));
  return copy;
}

// Records a view that was made of an array before that array was promoted.
void ArrayNodes::note_symbolic_array(Borrowed array, const std::string& what) {
  lift::SymbolicArrays& symbolic = t.lifter.symbolic_arrays;
  if (symbolic.is_result(array)) return;
  Borrowed root = lift::array_root(array);
  if (!symbolic.is_result(root) || !lift::is_c_contiguous(root) ||
      lift::is_writeable(array) != lift::is_writeable(root))
    stop(report::Reason::native_call, what + ": a view of an array");
  auto attribute = [&](const char* name) { return checked(PyObject_GetAttrString(array.get(), name)); };
  Ref shape = attribute("shape"), dtype = attribute("dtype"), strides = attribute("strides");
  Ref offset = checked(PyLong_FromSsize_t(lift::fields_of(array).data - lift::fields_of(root).data));
  PyObject* arguments[] = {shape.get(), dtype.get(), root.get(), offset.get(), strides.get()};
  symbolic.add(array);
  t.recorder.note_array_call(reinterpret_cast<PyObject*>(lift::array_type()), arguments, 5, {}, Ref::share(array),
                             false);
}

// Records a numpy call as a node. `written`: the arrays that it writes to.
Ref ArrayNodes::record_array_call(const std::string& what, Borrowed callable, const std::vector<PyObject*>& arguments,
                                  size_t positional, Borrowed keyword_names, const std::vector<Borrowed>& written) {
  lift::SymbolicArrays& symbolic = t.lifter.symbolic_arrays;
  if (t.functorch->transformed || t.recorder.is_silent())
    stop(report::Reason::native_call, what + " inside a transform, a conditional or an autograd function");
  for (Borrowed array : written) {
    if (!lift::is_array(array.get())) stop(report::Reason::native_call, what + " into something other than an array");
    if (t.recorder.has_symbols()) stop(report::Reason::unknown_number, what + ": an array is written");
    if (!is_symbolic_array(array)) promote_array(array, what);
    if (!lift::is_writeable(array)) stop(report::Reason::native_call, what + ": the array is read-only");
  }
  // The arguments of the node, and those of the call on example arrays.
  std::vector<Ref> given, example_arguments;
  std::vector<PyObject*> raw{nullptr}, example_raw{nullptr};
  std::vector<Borrowed> constants;
  for (PyObject* argument : arguments) {
    given.push_back(with_arrays(argument, [&](Borrowed array) {
      if (is_symbolic_array(array)) return note_symbolic_array(array, what), Ref();
      check_use(t, array, what.c_str());
      constants.push_back(lift::array_root(array));
      return frozen_array(array, what);
    }));
    raw.push_back(given.back().get());
    example_arguments.push_back(
        with_arrays(argument, [&](Borrowed array) { return Ref::share(symbolic.stand_in(array)); }));
    example_raw.push_back(example_arguments.back().get());
  }
  Ref result;
  {
    const Paused paused(t);
    const lift::WarningsRaise warnings;
    const lift::NumpyErrorsSet ignored(lift::NumpyErrorsSet::Kind::kIgnored);
    result = Ref::steal(PyObject_Vectorcall(callable.get(), example_raw.data() + 1,
                                            positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keyword_names.get()));
  }
  if (!result) stop(report::Reason::native_call, what + ": " + take_error_text());
  if (symbolic.has_preexisting())
    result = with_arrays(result, [&](Borrowed array) { return Ref::share(symbolic.original(array)); });
  std::vector<Borrowed> arrays;
  const bool returns_nothing = result.get() == Py_None && !written.empty();
  if (!returns_nothing && (!collect_arrays(result.get(), &arrays) || arrays.empty()))
    stop(report::Reason::unknown_number, what + " of an array that is computed from a tensor");
  bool is_new = false;
  for (Borrowed array : arrays) {
    if (symbolic.is_result(array)) continue;
    if (std::find(constants.begin(), constants.end(), lift::array_root(array)) != constants.end())
      stop(report::Reason::native_call, what + " returns a view of a constant");
    is_new = true;
  }
  for (Borrowed array : arrays) symbolic.add(array);
  if (is_new || !written.empty())
    t.recorder.note_array_call(callable, raw.data() + 1, positional, keyword_names, Ref(result), !written.empty());
  return result;
}

Ref ArrayNodes::operate_on_symbolic(binaryfunc operation, Borrowed left, Borrowed right) {
  size_t at = 0;
  while (at < std::size(kBinaryOperations) && kBinaryOperations[at].function != operation) at++;
  if (at == std::size(kBinaryOperations)) stop(report::Reason::native_call, "an operator on an array");
  const bool in_place = at >= kFirstInPlace && lift::is_array(left.get());
  if (at >= kFirstInPlace && !in_place) at -= kFirstInPlace;
  std::vector<Borrowed> written;
  if (in_place) written.push_back(left);
  return record_array_call(std::string("operator.") + kBinaryOperations[at].name,
                           operator_named(kBinaryOperations[at].name), {left.get(), right.get()}, 2, {}, written);
}

Ref ArrayNodes::operate_on_symbolic(unaryfunc operation, Borrowed operand) {
  const char* name = operation == PyNumber_Negative   ? "neg"
                     : operation == PyNumber_Positive ? "pos"
                     : operation == PyNumber_Invert   ? "invert"
                                                      : nullptr;
  if (name == nullptr) stop(report::Reason::native_call, "an operator on an array");
  return record_array_call(std::string("operator.") + name, operator_named(name), {operand.get()}, 1, {}, {});
}

Ref ArrayNodes::compare_symbolic(Borrowed left, Borrowed right, int operation) {
  constexpr const char* kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};  // Py_LT ...
  return record_array_call(std::string("operator.") + kNames[operation], operator_named(kNames[operation]),
                           {left.get(), right.get()}, 2, {}, {});
}

// The data of an index may determine the result's size: a mask, or the bounds of a slice.
static void check_index(Tracer& tracer, Borrowed key, bool writes, int depth = 0) {
  PyObject* k = key.get();
  if (tracer.array_nodes->is_symbolic_array(key) && !writes) {
    Ref kind = checked(PyObject_GetAttrString(lift::fields_of(key).dtype, "kind"));
    if (PyUnicode_CompareWithASCIIString(kind.get(), "b") == 0)
      stop(report::Reason::data_dependent, "an item of an array, by a mask that is computed from a tensor");
  }
  if (PySlice_Check(k) && tracer.array_nodes->holds_symbolic_array(key))
    stop(report::Reason::data_dependent, "an item of an array, by a slice that is computed from a tensor");
  if (depth > 0 || !PyTuple_CheckExact(k)) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); i++) check_index(tracer, PyTuple_GET_ITEM(k, i), writes, 1);
}

Ref ArrayNodes::item_of_symbolic(Borrowed array, Borrowed key) {
  check_index(t, key, false);
  return record_array_call("an item of an array", operator_named("getitem"), {array.get(), key.get()}, 2, {}, {});
}

void ArrayNodes::set_item_of_symbolic(Borrowed array, Borrowed key, Borrowed value) {
  check_index(t, key, true);
  (void)record_array_call("an item of an array is set", operator_named("setitem"),
                          {array.get(), key.get(), value.get()}, 3, {}, {array});
}

Ref ArrayNodes::attribute_of_symbolic(Borrowed array, Borrowed name) {
  const std::string_view text = PyUnicode_AsUTF8(name.get());
  if (text == "T" || text == "mT" || text == "real")
    return record_array_call("the attribute " + std::string(text), graph::torch_name("builtins", "getattr"),
                             {array.get(), name.get()}, 2, {}, {});
  if (text == "base" || text == "imag")
    stop(report::Reason::native_call, "the attribute " + std::string(text) + " of an array");
  if (text == "ndim" || text == "shape" || text == "size" || text == "strides" || text == "itemsize" ||
      text == "nbytes" || text == "dtype" || text == "__class__" || text == "__doc__")
    return checked(PyObject_GetAttr(array.get(), name.get()));
  if (find(kMethods, text) == nullptr)
    stop(report::Reason::native_call, "the attribute " + std::string(text) + " of an array");
  return checked(PyObject_GetAttr(array.get(), name.get()));
}

// A numpy function or an ndarray method that has a symbolic array among its arguments.
Ref ArrayNodes::call_on_symbolic(const std::string& name, Borrowed callable, Borrowed self, PyObject* const* arguments,
                                 size_t positional, Borrowed keyword_names, bool is_method) {
  const std::string_view last = last_word(name);
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  std::vector<PyObject*> given;
  Ref function = Ref::share(callable);
  if (self) {
    given.push_back(self.get());
    function =
        checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(lift::array_type()), std::string(last).c_str()));
    positional++;
  }
  given.insert(given.end(), arguments, arguments + total);
  if (!is_method && (last == "shape" || last == "ndim" || last == "size") && given.size() == 1 &&
      lift::is_array(given[0])) {
    const Paused paused(t);
    return checked(PyObject_CallOneArg(callable.get(), t.lifter.symbolic_arrays.stand_in(given[0]).get()));
  }
  const ArrayCall* row = is_method ? find(kMethods, last) : is_ufunc(callable) ? &kUfunc : find(kFunctions, last);
  // With `copy=False` nan_to_num writes to its argument.
  if (row == nullptr || (last == "where" && positional != 3) || (last == "nan_to_num" && total != 1))
    stop(report::Reason::native_call, name + " of an array that is computed from a tensor");
  std::vector<Borrowed> written;
  if (row->writes) written.push_back(given[0]);
  for (size_t i = 0; i < given.size(); i++) {
    const bool is_symbolic = holds_symbolic_array(given[i]);
    if (i < positional) {
      if (is_symbolic && i >= row->symbolic)
        stop(report::Reason::data_dependent, name + ": an argument that determines the shape");
    } else {
      const char* keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(keyword_names.get(), Py_ssize_t(i - positional)));
      if (keyword == nullptr) throw PyError();
      if (keyword == "where"sv || keyword == "like"sv) stop(report::Reason::native_call, name + " with " + keyword);
      if (keyword == "out"sv && given[i] != Py_None) {
        if (PyTuple_CheckExact(given[i])) {
          for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(given[i]); k++) written.push_back(PyTuple_GET_ITEM(given[i], k));
        } else {
          written.push_back(given[i]);
        }
        continue;
      }
      if (is_symbolic) stop(report::Reason::data_dependent, name + " with " + keyword);
    }
    if (!is_symbolic && !t.arrays->may_compute_with(given[i]))
      stop(report::Reason::native_call, name + " on something other than scalars and arrays");
  }
  // A ufunc takes `out` positionally, after the operands.
  if (is_ufunc(callable)) {
    Ref inputs = checked(PyObject_GetAttrString(callable.get(), "nin"));
    const auto operands = static_cast<size_t>(PyLong_AsLong(inputs.get()));
    for (size_t i = operands; i < positional; i++) {
      if (given[i] != Py_None) written.push_back(given[i]);
    }
  } else {
    // Other functions may take it after any other argument.
    for (size_t i = row->symbolic; i < positional; i++) {
      if (lift::is_array(given[i])) stop(report::Reason::native_call, name + " with an array behind its operands");
    }
  }
  return record_array_call(name, function, given, positional, keyword_names, written);
}

// numpy's iterator makes one view at a time; here all are made at once, over the same memory.
Ref rows_of_symbolic(Tracer& tracer, Borrowed value) {
  constexpr Py_ssize_t kMostRows = 256;
  if (!tracer.array_nodes->is_symbolic_array(value)) return {};
  const lift::ArrayFields& fields = lift::fields_of(value);
  if (fields.dimensions < 2 || fields.shape[0] > kMostRows) return {};
  Ref rows = checked(PyList_New(0));
  for (Py_ssize_t i = 0; i < fields.shape[0]; i++) {
    Ref row = get_item(tracer, value, checked(PyLong_FromSsize_t(i)));
    check_status(PyList_Append(rows.get(), row.get()));
  }
  return rows;
}

// len(a), abs(a). Null: it is neither.
Ref ArrayNodes::call_builtin_on_symbolic(Borrowed callable, PyObject* const* arguments, size_t positional,
                                         Borrowed keyword_names) {
  if (positional != 1 || keyword_names || !is_symbolic_array(arguments[0])) return {};
  if (is_builtin(callable, "len")) return checked(PyLong_FromSsize_t(length_of_symbolic(arguments[0])));
  if (is_builtin(callable, "abs")) return record_array_call("abs", callable, {arguments[0]}, 1, {}, {});
  return {};
}

Py_ssize_t ArrayNodes::length_of_symbolic(Borrowed array) {
  const Py_ssize_t length = PyObject_Length(array.get());
  if (length < 0) throw PyError();
  return length;
}

// --- between tensors and arrays --------------------------------------------------------------------------------------

// x.numpy(), or numpy.asarray(x). Null: x is not a tensor whose array's layout is known.
Ref ArrayNodes::array_of_tensor(Borrowed callable, Borrowed tensor) {
  if (!graph::is_tensor(tensor) || t.functorch->transformed || t.recorder.is_silent() ||
      t.function_modes->is_active() || t.torch_functions->is_overridden(tensor) ||
      tensor.type() != reinterpret_cast<PyTypeObject*>(THPVariableClass))
    return {};
  const at::Tensor& fake = fake::unpack(tensor.get());
  if (!fake::is_fake(fake) || fake::is_wrapped(fake) || !fake.device().is_cpu() || fake.layout() != at::kStrided ||
      fake.requires_grad() || fake.is_conj() || fake.is_neg() || !has_type_of_arrays(fake) ||
      fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || fake.numel() > kMostElements ||
      t.session.known_value(fake) || t.recorder.is_checkpointed()) {
    return {};
  }
  Ref array = [&] {
    const Paused paused(t);
    return make_example_array(fake.sizes(), fake.strides(), fake.scalar_type());
  }();
  if (!lift::is_number_array(array.get())) return {};
  PyObject* arguments[] = {tensor.get()};
  t.lifter.symbolic_arrays.add(array);
  t.recorder.note_array_call(callable, arguments, 1, {}, Ref(array), false);
  return array;
}

Ref ArrayNodes::numpy_of_tensor(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count) {
  if (name != "Tensor.numpy") return {};
  Borrowed self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  if (self ? count != 0 : count != 1) return {};
  Ref method = checked(PyObject_GetAttrString(THPVariableClass, "numpy"));
  return array_of_tensor(method, self ? self : Borrowed(arguments[0]));
}

// torch.from_numpy(array), torch.as_tensor(array), torch.tensor(array).
Ref ArrayNodes::tensor_of_symbolic(const std::string& name, Borrowed callable, PyObject* const* arguments,
                                   size_t positional, Borrowed keyword_names) {
  Borrowed array = arguments[0];
  const std::string_view last = last_word(name);
  auto refuse = [&](const std::string& why) { stop(report::Reason::native_call, name + " of an array " + why); };
  const bool copies = last == "tensor";
  if (positional != 1 || (!copies && last != "from_numpy" && last != "as_tensor"))
    refuse("that is computed from a tensor");
  if (t.functorch->transformed || t.recorder.is_silent() || t.recorder.is_checkpointed())
    refuse("inside a transform or a checkpoint");
  if (at::impl::PythonTorchFunctionTLS::stack_len() != 1) refuse("under a torch-function mode");
  note_symbolic_array(array, name);
  Ref type = t.arrays->torch_type(t.lifter.symbolic_arrays.stand_in(array));
  if (!type) refuse("whose type torch does not have");
  const lift::ArrayFields& fields = lift::fields_of(t.lifter.symbolic_arrays.stand_in(array));
  if (!lift::is_writeable(array)) refuse("that is read-only");
  const Py_ssize_t size = lift::element_size(array);
  std::vector<int64_t> sizes, strides;
  for (int i = 0; i < fields.dimensions; i++) {
    if (fields.shape[i] == 0 || fields.strides[i] < 0 || fields.strides[i] % size != 0)
      refuse("with strides that torch does not support");
    sizes.push_back(fields.shape[i]);
    strides.push_back(fields.strides[i] / size);
  }
  const at::ScalarType own_type = reinterpret_cast<THPDtype*>(type.get())->scalar_type;
  at::ScalarType wanted = own_type;
  std::vector<PyObject*> given = {nullptr, array.get()};
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    const char* keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(keyword_names.get(), i));
    if (keyword == nullptr) throw PyError();
    PyObject* value = arguments[positional + static_cast<size_t>(i)];
    given.push_back(value);
    if (value == Py_None) continue;
    if (keyword != "dtype"sv || !THPDtype_Check(value)) refuse(std::string("with ") + keyword);
    wanted = reinterpret_cast<THPDtype*>(value)->scalar_type;
  }
  at::Tensor fake = at::empty_strided(sizes, strides, at::TensorOptions(at::kCPU).dtype(own_type));
  if (copies || wanted != own_type) fake = fake.to(wanted, /*non_blocking=*/false, /*copy=*/true);
  Ref tensor = checked(THPVariable_Wrap(fake));
  t.recorder.note_array_call(callable, given.data() + 1, 1, keyword_names, Ref(tensor), false);
  return tensor;
}

}  // namespace alternator::trace
