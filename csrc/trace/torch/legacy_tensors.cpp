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
#include "py/lasting.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace alternator::trace {

static Ref call_parameter(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional,
                          Borrowed keyword_names);
static Ref call_buffer(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional,
                       Borrowed keyword_names);

namespace {

PyObject* legacy_variable() {
  static constinit Lasting<PyObject*> found;
  return found.get([] { return graph::torch_name("torch.autograd", "Variable").release(); });
}

bool is_true(Borrowed type, const char* attribute) {
  return checked(PyObject_GetAttrString(type.get(), attribute)).get() == Py_True;
}

bool is_in(Borrowed type, const char* module) {
  Ref name = checked(PyObject_GetAttrString(type.get(), "__module__"));
  return PyUnicode_Check(name.get()) && PyUnicode_CompareWithASCIIString(name.get(), module) == 0;
}

// Legacy constructors from data share an array's memory where the dtypes agree, as torch.as_tensor() does. A 0-d array
// may be a size instead.
bool is_number(PyObject* object) { return PyLong_Check(object) || PyFloat_Check(object); }

bool is_data_array(PyObject* object) { return lift::is_array(object) && lift::fields_of(object).dimensions > 0; }

}  // namespace

bool is_data(Borrowed object, int depth) {
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

bool are_sizes(PyObject* const* arguments, size_t count) {
  if (count == 1 && cpython::is_native(Py_TYPE(arguments[0]), "torch.Size")) return true;
  for (size_t i = 0; i < count; i++) {
    if (!PyLong_CheckExact(arguments[i])) return false;
  }
  return true;
}

bool is_tensor_type(Borrowed object) { return cpython::is_native(object.type(), "torch.tensortype"); }

bool is_of_tensor_type(Tracer& t, Borrowed tensor, Borrowed type) {
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
static Ref call_parameter(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional,
                          Borrowed keyword_names) {
  const graph::TorchTypes& types = graph::torch_types();
  if (callable.get() != reinterpret_cast<PyObject*>(types.parameter) || positional == 0) return {};
  PyTypeObject* type = Py_TYPE(arguments[0]);
  if (type != types.tensor && type != types.parameter) return {};
  return call_torch(t, callable, arguments, positional, keyword_names);
}

// torch.nn.Buffer() returns a torch.Tensor that its __new__ makes: not an instance of Buffer, so __init__ does not run.
static Ref call_buffer(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional,
                       Borrowed keyword_names) {
  static constinit Lasting<Ref> lasting;
  if (callable != Borrowed(lasting.get([] { return graph::torch_name("torch.nn", "Buffer"); }))) return {};
  if (positional == 0 || Py_TYPE(arguments[0]) != graph::torch_types().tensor) return {};
  const size_t named = keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0;
  std::vector<PyObject*> given{nullptr, callable.get()};
  given.insert(given.end(), arguments, arguments + positional + named);
  return call(t, get_attribute(t, callable, checked(PyUnicode_InternFromString("__new__"))), given.data() + 1,
              positional + 1, keyword_names);
}

Ref call_legacy_constructor(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t positional,
                            Borrowed keyword_names) {
  if (Ref made = call_parameter(t, callable, arguments, positional, keyword_names)) return made;
  if (Ref made = call_buffer(t, callable, arguments, positional, keyword_names)) return made;
  if (callable == Borrowed(legacy_variable())) {
    if (positional == 0 || !graph::is_tensor(arguments[0])) return {};
    return call_torch(t, callable, arguments, positional, keyword_names);
  }
  const bool is_tensor_class = callable == Borrowed(THPVariableClass);
  if ((!is_tensor_class && !is_tensor_type(callable)) || keyword_names) return {};
  // A user's torch-function mode (a default device is one) would see these modern functions instead of the legacy one.
  if (at::impl::PythonTorchFunctionTLS::stack_len() != 1) return {};
  Ref dtype;
  if (is_tensor_class) {
    dtype = checked(PyObject_CallNoArgs(graph::torch_name("torch", "get_default_dtype").get()));
  } else {
    if (is_true(callable, "is_cuda") || !is_in(callable, "torch")) return {};
    dtype = checked(PyObject_GetAttrString(callable.get(), "dtype"));
  }
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
  return call(t, function, given.data() + 1, given.size() - 2, names);
}

// x.new_tensor(data) and x.new(data) write into memory, which a fake has not: recorded as torch.tensor() with x's dtype
// and device.
Ref new_from_data(Tracer& t, Borrowed callable, const std::string& name, PyObject* const* arguments, size_t positional,
                  Borrowed keyword_names) {
  if (name != "Tensor.new_tensor" && name != "Tensor.new") return {};
  Borrowed self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  if (!self || !graph::is_tensor(self)) {
    if (positional == 0) return {};
    self = *arguments++;
    positional--;
  }
  const bool is_new = name == "Tensor.new";
  const bool array = positional == 1 && (is_new ? is_data_array(arguments[0]) : lift::is_array(arguments[0]));
  if (!graph::is_tensor(self) || positional != 1 || (!array && !is_data(arguments[0]))) return {};
  if (is_new && (keyword_names || is_number(arguments[0]))) return {};
  auto attribute_of_self = [&](const char* attribute) {
    return get_attribute(t, self, checked(PyUnicode_InternFromString(attribute)));
  };
  Ref options[] = {attribute_of_self("dtype"), attribute_of_self("device"), {}};
  constexpr const char* kNames[] = {"dtype", "device", "requires_grad"};
  for (Py_ssize_t i = 0; keyword_names && i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    PyObject* given = PyTuple_GET_ITEM(keyword_names.get(), i);
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](const char* text) {
      return PyUnicode_CompareWithASCIIString(given, text) == 0;
    });
    if (found == std::end(kNames)) return {};
    if (arguments[1 + i] != Py_None) options[found - kNames] = Ref::share(arguments[1 + i]);
  }
  std::vector<PyObject*> given = {nullptr, arguments[0], options[0].get(), options[1].get()};
  if (options[2]) given.push_back(options[2].get());
  Ref names = options[2] ? checked(Py_BuildValue("(sss)", kNames[0], kNames[1], kNames[2]))
                         : checked(Py_BuildValue("(ss)", kNames[0], kNames[1]));
  const char* modern = array && is_new ? "as_tensor" : "tensor";
  return call(t, graph::torch_name("torch", modern), given.data() + 1, 1, names);
}

}  // namespace alternator::trace
