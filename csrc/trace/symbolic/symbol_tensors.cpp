// torch.tensor() of unbacked symbols. Eagerly it writes their values into memory; recorded are 0-d tensors, one for
// each scalar, stacked.
#include "trace/symbolic/symbol_tensors.h"
#include "trace/core/tracer.h"
#include "trace/torch/torch_calls.h"

#include "cpython/objects.h"
#include "graph/record/torch_symbol.h"
#include "graph/record/torch_types.h"
#include "trace/symbolic/tensors_as_numbers.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include <optional>

namespace alternator::trace {

namespace {

// A scalar, or nested lists of scalars with equal lengths on each level.
struct ScalarData {
  std::vector<Py_ssize_t> sizes;
  size_t count = 0;
  bool has_symbol = false;  // one of them is an unbacked symbol
  bool floating = false;    // one of them is a float
};

bool inspect(Borrowed data, size_t depth, ScalarData* numbers) {
  constexpr size_t kDeepest = 8, kMost = 256;
  PyObject* d = data.get();
  if (PyList_CheckExact(d) || PyTuple_CheckExact(d)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(d);
    if (size == 0 || depth >= kDeepest) return false;
    if (depth == numbers->sizes.size() && numbers->count == 0) numbers->sizes.push_back(size);
    if (depth >= numbers->sizes.size() || numbers->sizes[depth] != size) return false;
    for (Py_ssize_t i = 0; i < size; i++)
      if (!inspect(PySequence_Fast_GET_ITEM(d, i), depth + 1, numbers)) return false;
    return true;
  }
  if (depth != numbers->sizes.size() || ++numbers->count > kMost) return false;
  const bool symbol = fake::is_symbol(data);
  if (symbol ? fake::is_truth_symbol(data) : !PyLong_CheckExact(d) && !PyFloat_CheckExact(d)) return false;
  numbers->has_symbol = numbers->has_symbol || symbol;
  numbers->floating =
      numbers->floating || (symbol ? fake::class_of_symbol(data) == &PyFloat_Type : PyFloat_CheckExact(d));
  return true;
}

at::ScalarType type_of(Borrowed dtype) { return reinterpret_cast<THPDtype*>(dtype.get())->scalar_type; }

bool is_wide_enough(at::ScalarType type, bool floating) {
  if (type == at::kLong) return !floating;
  return type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Nested lists of 0-d tensors, all of one dtype that represents the result of .item() exactly.
bool are_scalars(const Tracer& tracer, Borrowed data, std::optional<at::ScalarType>* type, int depth = 0) {
  constexpr int kDeepest = 8;
  PyObject* d = data.get();
  if (PyList_CheckExact(d) || PyTuple_CheckExact(d)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(d);
    for (Py_ssize_t i = 0; i < size; i++)
      if (!are_scalars(tracer, PySequence_Fast_GET_ITEM(d, i), type, depth + 1)) return false;
    return size > 0 && depth < kDeepest;
  }
  if (depth == 0 || !graph::is_tensor(data)) return false;
  const at::Tensor& tensor = fake::unpack(d);
  if (tensor.dim() != 0 || !graph::is_unbacked_scalar(tracer.session, data)) return false;
  if (*type && **type != tensor.scalar_type()) return false;
  *type = tensor.scalar_type();
  return is_wide_enough(**type, at::isFloatingType(**type));
}

Ref numbers_of(Tracer& tracer, Borrowed data) {
  if (graph::is_tensor(data)) return number_in(tracer, data.get());
  Ref numbers = checked(PyList_New(0));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data.get()); i++)
    check_status(PyList_Append(numbers.get(), numbers_of(tracer, PySequence_Fast_GET_ITEM(data.get(), i)).get()));
  return numbers;
}

// torch.tensor, or another binding of the same native function.
bool is_tensor_constructor(Borrowed callable) {
  const void* definition = cpython::native_definition(callable.get());
  return definition != nullptr && definition == cpython::native_definition(graph::torch_types().make_tensor.get());
}

// torch.tensor([loss, loss]): with the tensors' dtype, unless one is given.
Ref tensor_of_scalars(Tracer& tracer, const Call& call) {
  std::optional<at::ScalarType> type;
  if (!are_scalars(tracer, call.arguments[0], &type)) return {};
  Ref data = numbers_of(tracer, call.arguments[0]), names = checked(PyList_New(0));
  std::vector<PyObject*> given = {nullptr, data.get()};
  bool typed = false;
  for (size_t i = 0; i < call.keywords(); i++) {
    PyObject* name = call.keyword_name(i).get();
    const bool is_type = PyUnicode_CompareWithASCIIString(name, "dtype") == 0;
    if (is_type && call.keyword_value(i).get() == Py_None) continue;
    typed = typed || is_type;
    check_status(PyList_Append(names.get(), name));
    given.push_back(call.keyword_value(i).get());
  }
  if (!typed) {
    check_status(PyList_Append(names.get(), checked(PyUnicode_InternFromString("dtype")).get()));
    given.push_back(reinterpret_cast<PyObject*>(torch::getTHPDtype(*type)));
  }
  return call_torch(tracer, {call.callable, given.data() + 1, 1, checked(PyList_AsTuple(names.get()))});
}

}  // namespace

// Each scalar becomes a tensor of the widest dtype, since torch.tensor() turns what overflows a narrow one into
// infinity, and scalar_tensor() raises.
Ref tensor_of_symbols(Tracer& t, const Call& call) {
  if (!is_tensor_constructor(call.callable) || call.positional != 1 || t.is_transformed()) return {};
  if (t.recorder.captures_scalars()) {
    if (Ref made = tensor_of_scalars(t, call)) return made;
  }
  if (!t.recorder.has_symbols()) return {};
  ScalarData numbers;
  if (!inspect(call.arguments[0], 0, &numbers) || !numbers.has_symbol) return {};
  Ref dtype, device;
  for (size_t i = 0; i < call.keywords(); i++) {
    PyObject* keyword = call.keyword_name(i).get();
    PyObject* value = call.keyword_value(i).get();
    if (PyUnicode_CompareWithASCIIString(keyword, "dtype") == 0 && (value == Py_None || THPDtype_Check(value))) {
      if (value != Py_None) dtype = Ref::share(value);
    } else if (PyUnicode_CompareWithASCIIString(keyword, "device") == 0) {
      if (value != Py_None) device = Ref::share(value);
    } else if (value != Py_False) {
      return {};
    }
  }
  Ref wide = graph::torch_name("torch", "int64");
  if (!dtype) {
    dtype = numbers.floating ? checked(PyObject_CallNoArgs(graph::torch_name("torch", "get_default_dtype").get()))
                             : Ref(wide);
  }
  if (!is_wide_enough(type_of(dtype), numbers.floating)) return {};
  if (type_of(dtype) != at::kLong) wide = graph::torch_name("torch", "float64");

  Ref make = graph::torch_name("torch", "scalar_tensor"), stack = graph::torch_name("torch", "stack");
  Ref names = device ? checked(Py_BuildValue("(ss)", "dtype", "device")) : checked(Py_BuildValue("(s)", "dtype"));
  auto build = [&](auto& self, Borrowed data) -> Ref {
    if (!PyList_CheckExact(data.get()) && !PyTuple_CheckExact(data.get())) {
      PyObject* given[] = {nullptr, data.get(), wide.get(), device.get()};
      return call_torch(t, {make, given + 1, 1, names});
    }
    Ref parts = checked(PyList_New(0));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data.get()); i++)
      check_status(PyList_Append(parts.get(), self(self, PySequence_Fast_GET_ITEM(data.get(), i)).get()));
    PyObject* given[] = {nullptr, parts.get()};
    return call_torch(t, {stack, given + 1, 1, {}});
  };
  Ref made = build(build, call.arguments[0]);
  if (type_of(dtype) == type_of(wide)) return made;
  PyObject* given[] = {nullptr, made.get(), dtype.get()};
  return call_torch(t, {checked(PyObject_GetAttrString(THPVariableClass, "to")), given + 1, 2, {}});
}

}  // namespace alternator::trace
