// Concrete numpy arrays: made from known values, they are computed while tracing, by numpy itself.
#include "trace/numpy/concrete_arrays.h"
#include "trace/numpy/array_nodes.h"
#include "trace/opcodes/items.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/torch_calls.h"

#include "graph/record/torch_types.h"
#include "lift/lifting/layouts.h"
#include "trace/calls/natives.h"
#include "trace/core/tracer.h"

#include <ATen/PythonTorchFunctionTLS.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

namespace alternator::trace {

namespace {

using namespace std::string_view_literals;

constexpr int kDeepest = 32;
constexpr Py_ssize_t kMostElements = 1 << 20;        // computed in a trace
constexpr Py_ssize_t kMostTensorElements = 1 << 14;  // embedded in a graph

template <size_t kCount>
bool among(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Attributes and methods that do not expose where the memory lies. Not `resize`: it checks the reference count.
constexpr std::array kAttributes = {"T"sv,    "mT"sv,   "base"sv,  "dtype"sv, "imag"sv,    "itemsize"sv,  "nbytes"sv,
                                    "ndim"sv, "real"sv, "shape"sv, "size"sv,  "strides"sv, "__class__"sv, "__doc__"sv};
constexpr std::array kMethods = {
    "all"sv,     "any"sv,          "argmax"sv,  "argmin"sv,  "argpartition"sv, "argsort"sv, "astype"sv,
    "clip"sv,    "compress"sv,     "conj"sv,    "copy"sv,    "cumprod"sv,      "cumsum"sv,  "diagonal"sv,
    "dot"sv,     "fill"sv,         "flatten"sv, "item"sv,    "max"sv,          "mean"sv,    "min"sv,
    "nonzero"sv, "partition"sv,    "prod"sv,    "put"sv,     "ravel"sv,        "repeat"sv,  "reshape"sv,
    "round"sv,   "searchsorted"sv, "sort"sv,    "squeeze"sv, "std"sv,          "sum"sv,     "swapaxes"sv,
    "take"sv,    "tobytes"sv,      "tolist"sv,  "trace"sv,   "transpose"sv,    "var"sv,     "view"sv,
    "__copy__"sv};
// They warn on empty input, or where the degrees of freedom are <= 0: only once, for warnings from numpy's modules.
constexpr std::array kWarning = {"mean"sv, "std"sv, "var"sv, "median"sv, "average"sv, "percentile"sv, "quantile"sv};
// Native code that treats an array as a sequence of scalars or as one scalar, not as a buffer.
constexpr std::array kSequenceUsers = {"builtins"sv,   "_operator"sv, "math"sv,        "itertools"sv,
                                       "_functools"sv, "list"sv,      "dict"sv,        "set"sv,
                                       "tuple"sv,      "deque"sv,     "OrderedDict"sv, "defaultdict"sv};

std::string_view last_word(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

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

// The kind of numpy callable.
enum class Callee : uint8_t { kNone, kFunction, kNumber, kMethod };

// `self`: the array or scalar that the method is bound to.
Callee callee_of(Borrowed callable, PyObject* const* arguments, size_t count, Borrowed* self) {
  PyObject* c = callable.get();
  if (PyType_Check(c)) {
    const bool makes_number = lift::numpy_kind_of(callable.as<PyTypeObject>()) != lift::NumpyKind::kNone;
    return makes_number ? Callee::kNumber : lift::is_dtype_class(callable) ? Callee::kFunction : Callee::kNone;
  }
  if (lift::is_numpy_function(callable)) return Callee::kFunction;
  if (PyCFunction_Check(c)) {
    PyObject* owner = PyCFunction_GET_SELF(c);
    if (owner == nullptr) return Callee::kNone;
    if (lift::is_numpy_number(owner)) return Callee::kNumber;
    if (!lift::is_array(owner)) return Callee::kNone;
    *self = owner;
    return Callee::kMethod;
  }
  const bool unbound = Py_IS_TYPE(c, &PyMethodDescr_Type) &&
                       reinterpret_cast<PyDescrObject*>(c)->d_type == lift::array_type() && count > 0 &&
                       lift::is_array(arguments[0]);
  return unbound ? Callee::kMethod : Callee::kNone;
}

bool has_canonical_strides(Borrowed array) {
  const lift::ArrayFields& fields = lift::fields_of(array);
  Py_ssize_t stride = lift::element_size(array);
  for (int i = fields.dimensions; i-- > 0;) {
    if (fields.strides[i] != stride) return false;
    stride *= fields.shape[i];
  }
  return true;
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

// Objects that native code iterates over and whose contents the garbage collector can traverse.
static bool may_be_iterated(Borrowed object) {
  PyObject* o = object.get();
  return PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) || PyIter_Check(o) ||
         PyDictKeys_Check(o) || PyDictValues_Check(o) || PyDictItems_Check(o) ||
         PyObject_TypeCheck(o, lift::known_types().deque);
}

// An opaque object that native code compares, computes with or iterates over wherever it finds it; or a namespace,
// whose attributes it compares.
static bool is_inspected_natively(const lift::Lifter& lifter, Borrowed object) {
  const lift::Known* known = lifter.known(object);
  PyTypeObject* type = object.type();
  if (known != nullptr && known->instance && lift::layout_base(type) == lift::known_types().simple_namespace)
    return true;
  if (known == nullptr || !known->opaque) return false;
  const PyNumberMethods* number = type->tp_as_number;
  const PySequenceMethods* sequence = type->tp_as_sequence;
  return type->tp_richcompare != PyBaseObject_Type.tp_richcompare || type->tp_iternext != nullptr ||
         (number != nullptr && (number->nb_add != nullptr || number->nb_bool != nullptr)) ||
         (sequence != nullptr && (sequence->sq_length != nullptr || sequence->sq_item != nullptr));
}

void check_arrays_within(Tracer& tracer, Borrowed value) {
  constexpr size_t kMost = 10'000;
  if ((!tracer.lifter.has_arrays() && tracer.lifter.symbolic_arrays.empty()) || !may_be_iterated(value)) return;
  std::vector<Ref> waiting;
  std::unordered_set<PyObject*> seen;
  waiting.push_back(Ref::share(value));
  while (!waiting.empty()) {
    Ref object = std::move(waiting.back());
    waiting.pop_back();
    if (lift::is_array(object.get()) || is_inspected_natively(tracer.lifter, object))
      check_use(tracer, object, "native code");
    if (!may_be_iterated(object) || !PyObject_IS_GC(object.get()) || !seen.insert(object.get()).second) continue;
    if (seen.size() > kMost)
      stop(report::Reason::native_call, "a large container, where there are pre-existing arrays or opaque objects");
    object.type()->tp_traverse(
        object.get(),
        [](PyObject* part, void* to) {
          static_cast<std::vector<Ref>*>(to)->push_back(Ref::share(part));
          return 0;
        },
        &waiting);
  }
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

Ref ConcreteArrays::call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  Borrowed self;
  if (Ref result = t.array_nodes->call_builtin_on_symbolic(callable, arguments, positional, keyword_names))
    return result;
  const Callee callee = callee_of(callable, arguments, positional, &self);
  if (callee == Callee::kNone) return {};
  const std::string name = native_name(callable);
  const std::string_view last = last_word(name);
  if (callee == Callee::kMethod && !among(kMethods, last)) stop(report::Reason::native_call, name);
  const bool is_symbolic =
      (self && t.array_nodes->is_symbolic_array(self)) ||
      std::any_of(arguments, arguments + total, [&](PyObject* a) { return t.array_nodes->holds_symbolic_array(a); });
  if (is_symbolic && callee != Callee::kNumber && !lift::is_dtype_class(callable))
    return t.array_nodes->call_on_symbolic(name, callable, self, arguments, positional, keyword_names,
                                           callee == Callee::kMethod);
  if (last == "asarray" && total == 1 && positional == 1) {
    if (Ref array = t.array_nodes->array_of_tensor(callable, arguments[0])) return array;
  }
  if (self) check_use(t, self, name.c_str());
  for (size_t i = 0; i < total; i++) {
    if (!may_compute_with(arguments[i]))
      stop(report::Reason::native_call, name + " on something other than scalars and arrays");
  }
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    // Where a mask is false, the result is uninitialized memory.
    PyObject* keyword = PyTuple_GET_ITEM(keyword_names.get(), i);
    for (const char* refused : {"where", "like", "ddof", "correction"}) {
      if (PyUnicode_CompareWithASCIIString(keyword, refused) == 0)
        stop(report::Reason::native_call, name + " with " + refused);
    }
  }
  if (among(kWarning, last)) {
    const bool of_empty = self ? is_empty(self.get()) : total > 0 && is_empty(arguments[0]);
    if (of_empty) stop(report::Reason::native_call, name + " of an empty array or sequence");
  }
  return compute(name, [&] {
    return PyObject_Vectorcall(callable.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               keyword_names.get());
  });
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
  PyTypeObject* type = array.type();
  if (_PyType_Lookup(type, name.get()) == nullptr) return checked(PyObject_GetAttr(array.get(), name.get()));
  if (t.array_nodes->is_symbolic_array(array)) return t.array_nodes->attribute_of_symbolic(array, name);
  check_use(t, array, "an attribute");
  const char* text = PyUnicode_AsUTF8(name.get());
  if (text == nullptr) throw PyError();
  const bool is_method = among(kMethods, text);
  // The memory of a pre-existing array is that of our copy.
  const bool is_base = strcmp(text, "base") == 0;
  Borrowed owner = is_base ? lift::array_owner(array) : Borrowed();
  if ((!is_method && !among(kAttributes, text)) || (is_base && (!owner || t.lifter.known(owner) != nullptr)))
    stop(report::Reason::native_call, std::string("the attribute ") + text + " of an array");
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

// To be called before native code receives arguments. True: there are arrays among them.
bool ConcreteArrays::check_array_arguments(const std::string& name, PyObject* const* arguments, size_t count) {
  bool arrays = false, tensors = false;
  for (size_t i = 0; i < count; i++) {
    arrays = arrays || lift::is_array(arguments[i]);
    tensors = tensors || graph::is_tensor(arguments[i]);
  }
  if (!arrays) return false;
  const std::string_view owner = std::string_view(name).substr(0, name.rfind('.'));
  if (tensors || !among(kSequenceUsers, owner)) stop(report::Reason::native_call, name + " of an array");
  return true;
}

// The same for a class that reads memory or warns. Classes that only store the array are allowed.
bool ConcreteArrays::check_array_arguments(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments,
                                           size_t count) {
  bool arrays = false;
  for (size_t i = 0; i < count; i++) {
    if (!lift::is_array(arguments[i])) continue;
    arrays = true;
    const bool is_number = PyType_IsSubtype(base, &PyFloat_Type) || PyType_IsSubtype(base, &PyLong_Type) ||
                           PyType_IsSubtype(base, &PyComplex_Type);
    if (is_number && base != &PyBool_Type && lift::fields_of(arguments[i]).dimensions > 0)
      stop(report::Reason::native_call, std::string(type->tp_name) + " of an array that is not 0-d");
    const bool reads_memory = base != &PyBaseObject_Type && base != &PyList_Type && base != &PyTuple_Type &&
                              !is_number && base != &PySet_Type && base != &PyFrozenSet_Type && base != &PyDict_Type &&
                              base != &PyEnum_Type && base != &PyZip_Type && base != &PyMap_Type &&
                              base != &PyFilter_Type && base != &PyReversed_Type && base != &PySlice_Type &&
                              base != lift::known_types().deque && base != lift::known_types().partial &&
                              base != lift::known_types().simple_namespace &&
                              !PyType_IsSubtype(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
    if (reads_memory) stop(report::Reason::native_call, std::string(type->tp_name) + " of an array");
  }
  return arrays;
}

// --- tensors of arrays --------------------------------------------------------------------------------------------

// Nothing else refers to the array's memory: only the current call holds it.
static bool is_last_user(Borrowed array) {
  Borrowed owner = lift::array_owner(array);
  return owner && Py_REFCNT(array.get()) == 1 && (owner == array || Py_REFCNT(owner.get()) == 1);
}

// Null: torch has no such dtype.
Ref ConcreteArrays::torch_type(Borrowed array) {
  const Paused paused(t);  // numpy computes the name in Python code
  Ref name = checked(PyObject_GetAttrString(lift::fields_of(array).dtype, "name"));
  const char* text = PyUnicode_AsUTF8(name.get());
  if (text == nullptr) throw PyError();
  constexpr std::array kNames = {"bool"sv,  "int8"sv,    "int16"sv,   "int32"sv,  "int64"sv,
                                 "uint8"sv, "float16"sv, "float32"sv, "float64"sv};
  return among(kNames, text) ? graph::torch_name("torch", text) : Ref();
}

// torch.tensor(array) copies, torch.from_numpy(array) and torch.as_tensor(array) share the memory: here that is a copy
// too, so no write to either may be observable through the other (see shared_changed()). Null: it is no such call.
Ref ConcreteArrays::tensor_of_array(const std::string& name, PyObject* const* arguments, size_t positional,
                                    Borrowed keyword_names) {
  const std::string_view last = last_word(name);
  const bool shares_memory = last == "from_numpy" || last == "as_tensor";
  if ((!shares_memory && last != "tensor") || positional != 1) return {};
  const bool last_use = lift::is_array(arguments[0]) && is_last_user(arguments[0]);
  Ref array = Ref::share(arguments[0]);
  const bool is_number = lift::is_numpy_number(array.get()) && last != "from_numpy";
  if (!is_number && !lift::is_array(array.get())) return {};
  if (is_number) {
    const Paused paused(t);
    array = checked(PyObject_CallOneArg(graph::torch_name("numpy", "asarray").get(), array.get()));
  }
  auto refuse = [&](const char* why) { stop(report::Reason::native_call, name + " of an array " + why); };
  // A user's torch-function mode (a default device is one) would see other functions than these.
  if (at::impl::PythonTorchFunctionTLS::stack_len() != 1) refuse("under a torch-function mode");
  Ref type = torch_type(array);
  if (!type) refuse("whose type torch does not have");
  if (lift::element_count(array) > kMostTensorElements) refuse("that is large");
  Borrowed owner = lift::array_owner(array);
  const bool preexisting = owner && t.lifter.known(owner) != nullptr;
  // numpy gives empty arrays zero strides, and torch keeps them.
  const bool is_empty = lift::element_count(array) == 0 && lift::fields_of(array).dimensions == 1;
  const bool has_zero_stride = is_empty && lift::fields_of(array).strides[0] == 0;
  if (!owner || (lift::element_count(array) == 0 && !is_empty) || !(has_zero_stride || has_canonical_strides(array)))
    refuse("with non-contiguous strides");
  if (shares_memory && !is_number && !preexisting && !lift::is_writeable(array)) refuse("that is read-only");

  bool shares = shares_memory && !is_number;
  std::vector<PyObject*> given = {nullptr, nullptr};
  std::vector<const char*> names;
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    const char* keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(keyword_names.get(), i));
    if (keyword == nullptr) throw PyError();
    PyObject* value = arguments[positional + static_cast<size_t>(i)];
    if (last == "from_numpy" || !(strcmp(keyword, "dtype") == 0 || strcmp(keyword, "device") == 0 ||
                                  (last == "tensor" && strcmp(keyword, "requires_grad") == 0))) {
      refuse((std::string("with ") + keyword).c_str());
    }
    if (value == Py_None) continue;
    if (strcmp(keyword, "dtype") == 0) {
      shares = shares && value == type.get();
      type = Ref::share(value);
      continue;
    }
    names.push_back(keyword);
    given.push_back(value);
  }
  Ref cpu = checked(PyUnicode_FromString("cpu"));
  if (last == "from_numpy") {
    names.push_back("device");
    given.push_back(cpu.get());
  }
  names.push_back("dtype");
  given.push_back(type.get());
  Ref keyword_tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
  for (size_t i = 0; i < names.size(); i++) {
    PyTuple_SET_ITEM(keyword_tuple.get(), static_cast<Py_ssize_t>(i),
                     checked(PyUnicode_InternFromString(names[i])).release());
  }
  Ref data, stride, tensor;
  if (is_empty) {
    data = checked(Py_BuildValue("(i)", 0));
    stride = checked(Py_BuildValue("(i)", has_zero_stride ? 0 : 1));
    given[1] = data.get();
    given.insert(given.begin() + 2, stride.get());
    tensor = call_torch(t, graph::torch_name("torch", "empty_strided"), given.data() + 1, 2, keyword_tuple);
  } else {
    data = checked(PyObject_CallMethod(array.get(), "tolist", nullptr));
    given[1] = data.get();
    tensor = call_torch(t, graph::torch_name("torch", "tensor"), given.data() + 1, 1, keyword_tuple);
  }
  if (shares && (preexisting || !last_use)) {
    if (t.deferred->points.empty()) {
      t.deferred->points = t.points_here();
      t.deferred->event = t.event_here(report::Reason::native_call, name + ": the tensor and the array share memory");
    }
    const lift::ArrayFields& memory = lift::fields_of(owner);
    const auto size = static_cast<size_t>(lift::element_count(owner) * lift::element_size(owner));
    shared.push_back({Ref::share(owner), std::string(memory.data, size), Ref(tensor), t.recorder.program().nodes.size(),
                      preexisting});
  }
  return tensor;
}

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
