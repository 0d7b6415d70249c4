// Legacy constructors: torch.autograd.Variable(x), torch.Tensor(2, 3), torch.LongTensor([1, 2]). They fill memory
// without the dispatcher; their results are recorded as calls of the modern functions.
#include "trace/torch/legacy_tensors.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/torch/torch_calls.h"

#include "cpython/objects.h"
#include "graph/record/torch_types.h"
#include "lift/sources/numpy_types.h"
#include "trace/calls/handlers.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace alternator::trace {

namespace {

bool is_true(Borrowed type, const char* attribute) {
  return checked(PyObject_GetAttrString(type.get(), attribute)).get() == Py_True;
}

bool is_in(Borrowed type, const char* module) {
  Ref name = checked(PyObject_GetAttrString(type.get(), "__module__"));
  return PyUnicode_Check(name.get()) && PyUnicode_CompareWithASCIIString(name.get(), module) == 0;
}

bool is_int(PyObject* object) {
  return PyLong_CheckExact(object) || (fake::is_symbol(object) && fake::class_of_symbol(object) == &PyLong_Type);
}

// Legacy constructors from data share an array's memory where the dtypes agree, as torch.as_tensor() does. A 0-d array
// may be a size instead.
bool is_number(PyObject* object) { return PyLong_Check(object) || PyFloat_Check(object); }

bool is_data_array(PyObject* object) { return lift::is_array(object) && lift::fields_of(object).dimensions > 0; }

// Scalars, and lists of them.
bool is_data(Borrowed object, int depth = 0) {
  constexpr int kDeepest = 32;
  PyObject* o = object.get();
  if (PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyRange_Check(o)) return true;
  if (cpython::is_native(Py_TYPE(o), "torch.Size")) {
    PyObject** sizes = &PyTuple_GET_ITEM(o, 0);
    return std::all_of(sizes, sizes + PyTuple_GET_SIZE(o), [](PyObject* size) { return PyLong_CheckExact(size); });
  }
  if ((!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) || depth > kDeepest) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) {
    if (!is_data(PySequence_Fast_GET_ITEM(o, i), depth + 1)) return false;
  }
  return true;
}

}  // namespace

bool are_sizes(PyObject* const* arguments, size_t count) {
  if (count == 1 && cpython::is_native(Py_TYPE(arguments[0]), "torch.Size")) return true;
  for (size_t i = 0; i < count; i++) {
    if (!is_int(arguments[i])) return false;
  }
  return true;
}

bool is_tensor_type(Borrowed object) { return cpython::is_native(object.type(), "torch.tensortype"); }

bool is_of_tensor_type(Tracer& /*t*/, Borrowed tensor, Borrowed type) {
  const at::Tensor& value = fake::unpack(tensor.get());
  Ref dtype = checked(PyObject_GetAttrString(type.get(), "dtype"));
  const bool is_cuda = is_true(type, "is_cuda");
  if (!is_in(type, is_cuda ? "torch.cuda" : "torch") || value.layout() != at::kStrided)
    stop(report::Reason::native_call, "an instance test against a tensor type");
  return reinterpret_cast<THPDtype*>(dtype.get())->scalar_type == value.scalar_type() &&
         (is_cuda ? value.is_cuda() : value.is_cpu());
}

// torch.nn.Parameter(x): an autograd leaf that shares x's storage. Other classes than torch.Tensor define their own
// construction.
static Ref call_parameter(Tracer& t, const Call& call) {
  const graph::TorchTypes& types = graph::torch_types();
  PyTypeObject* type = call.positional > 0 ? Py_TYPE(call.arguments[0]) : nullptr;
  if (type != types.tensor && type != types.parameter) return {};
  return call_torch(t, call);
}

// torch.nn.Buffer() returns a torch.Tensor that its __new__ makes: not an instance of Buffer, so __init__ does not run.
static Ref call_buffer(Tracer& t, const Call& call) {
  if (call.positional == 0 || Py_TYPE(call.arguments[0]) != graph::torch_types().tensor) return {};
  std::vector<PyObject*> given{nullptr, call.callable.get()};
  given.insert(given.end(), call.arguments, call.arguments + call.count());
  Ref makes = get_attribute(t, call.callable, checked(PyUnicode_InternFromString("__new__")));
  return trace::call(t, {makes, given.data() + 1, call.positional + 1, call.keyword_names});
}

static Ref call_variable(Tracer& t, const Call& call) {
  if (call.positional == 0 || !graph::is_tensor(call.arguments[0])) return {};
  return call_torch(t, call);
}

// `get_dtype` is only called where the constructor may be replaced at all.
template <class GetDtype>
static Ref call_constructor(Tracer& t, const Call& call, const GetDtype& get_dtype) {
  // A user's torch-function mode (a default device is one) would see these modern functions instead of the legacy one.
  if (call.keyword_names || at::impl::PythonTorchFunctionTLS::stack_len() != 1) return {};
  Ref dtype = get_dtype();
  if (!dtype) return {};
  PyObject* const* arguments = call.arguments;
  const size_t positional = call.positional;
  escape_all(t, arguments, positional);
  Ref list;
  PyObject* only[1];
  if (positional == 1 && PyRange_Check(arguments[0])) {
    only[0] = (list = checked(PySequence_List(arguments[0]))).get();
    arguments = only;
  }
  const bool array = positional == 1 && is_data_array(arguments[0]);
  const bool sizes = !array && are_sizes(arguments, positional);
  if (!sizes && !array && (positional != 1 || !is_data(arguments[0]) || is_number(arguments[0]))) return {};
  Ref zero = checked(PyLong_FromLong(0));
  std::vector<PyObject*> given = {nullptr};
  given.insert(given.end(), arguments, arguments + positional);
  if (positional == 0) given.push_back(zero.get());
  given.push_back(dtype.get());
  const char* modern = sizes ? "empty" : array ? "as_tensor" : "tensor";
  Ref function = graph::torch_name("torch", modern), names = checked(Py_BuildValue("(s)", "dtype"));
  return trace::call(t, {function, given.data() + 1, given.size() - 2, names});
}

bool register_legacy_tensors(Handlers& handlers) {
  handlers.add(reinterpret_cast<PyObject*>(graph::torch_types().parameter), call_parameter);
  handlers.add("torch.nn", "Buffer", call_buffer);
  handlers.add("torch.autograd", "Variable", call_variable);
  handlers.add(THPVariableClass, [](Tracer& t, const Call& call) {
    return call_constructor(
        t, call, [] { return checked(PyObject_CallNoArgs(graph::torch_name("torch", "get_default_dtype").get())); });
  });
  // torch.FloatTensor and its like.
  Ref one = graph::torch_name("torch", "FloatTensor");
  handlers.add_instances(one.type(), [](Tracer& t, const Call& call) {
    return call_constructor(t, call, [&]() -> Ref {
      if (is_true(call.callable, "is_cuda") || !is_in(call.callable, "torch")) return {};
      return checked(PyObject_GetAttrString(call.callable.get(), "dtype"));
    });
  });
  return true;
}

// x.new_tensor(data) and x.new(data) write into memory, which a fake has not: recorded as torch.tensor() with x's dtype
// and device.
Ref new_from_data(Tracer& t, const Call& call, MemberFlags method) {
  if ((method & (TensorMember::kNewTensor | TensorMember::kNew)) == 0) return {};
  Borrowed self = PyCFunction_Check(call.callable.get()) ? PyCFunction_GET_SELF(call.callable.get()) : nullptr;
  Call rest = call;
  if (!self || !graph::is_tensor(self)) {
    if (call.positional == 0) return {};
    self = call.arguments[0];
    rest = call.without_first();
  }
  if (!graph::is_tensor(self) || rest.positional != 1) return {};
  PyObject* const data = rest.arguments[0];
  const bool is_new = (method & TensorMember::kNew) != 0;
  const bool array = is_new ? is_data_array(data) : lift::is_array(data);
  if (!array && !is_data(data)) return {};
  if (is_new && (call.keyword_names || is_number(data))) return {};
  auto attribute_of_self = [&](const char* attribute) {
    return get_attribute(t, self, checked(PyUnicode_InternFromString(attribute)));
  };
  Ref options[] = {attribute_of_self("dtype"), attribute_of_self("device"), {}};
  constexpr const char* kNames[] = {"dtype", "device", "requires_grad"};
  for (size_t i = 0; i < rest.keywords(); i++) {
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](const char* text) {
      return PyUnicode_CompareWithASCIIString(rest.keyword_name(i).get(), text) == 0;
    });
    if (found == std::end(kNames)) return {};
    if (rest.keyword_value(i).get() != Py_None) options[found - kNames] = Ref::share(rest.keyword_value(i));
  }
  std::vector<PyObject*> given = {nullptr, data, options[0].get(), options[1].get()};
  if (options[2]) given.push_back(options[2].get());
  Ref names = options[2] ? checked(Py_BuildValue("(sss)", kNames[0], kNames[1], kNames[2]))
                         : checked(Py_BuildValue("(ss)", kNames[0], kNames[1]));
  const char* modern = array && is_new ? "as_tensor" : "tensor";
  return trace::call(t, {graph::torch_name("torch", modern), given.data() + 1, 1, names});
}

}  // namespace alternator::trace
