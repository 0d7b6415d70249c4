#include "replay/tensors.h"

#include "fake/python_tensor.h"
#include "fake/unbacked_symbol.h"
#include "py/import.h"

#include <torch/csrc/Generator.h>

namespace alternator::replay {

bool is_tensor(Borrowed object) { return fake::is_tensor_object(object.get()); }
bool is_symbol(Borrowed object) { return fake::is_symbol(object); }
Borrowed class_of_symbol(Borrowed object) { return reinterpret_cast<PyObject*>(fake::class_of_symbol(object)); }

bool is_generator(Borrowed object) {
  return Py_IS_TYPE(object.get(), reinterpret_cast<PyTypeObject*>(THPGeneratorClass));
}

TensorTraits tensor_traits(Borrowed object) {
  const at::Tensor& tensor = fake::unpack(object.get());
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object.get()));
  return {type == THPVariableClass || type == ParameterClass, tensor.requires_grad() && tensor.is_leaf()};
}

static Ref torch_attribute(const char* name) {
  Ref torch = import_module("torch");
  Ref tensor = checked(PyObject_GetAttrString(torch.get(), "Tensor"));
  return checked(PyObject_GetAttrString(tensor.get(), name));
}

static bool is_parameter_type(Borrowed type) {
  Ref nn = import_module("torch.nn.parameter");
  Ref parameter = checked(PyObject_GetAttrString(nn.get(), "Parameter"));
  return PyType_IsSubtype(type.as<PyTypeObject>(), parameter.as<PyTypeObject>()) != 0;
}

Ref adopt_output(Borrowed output, Borrowed type, bool wants_gradient) {
  ALT_CHECK(is_tensor(output), "a graph output is no tensor");
  Ref result = Ref::share(output);
  if (Borrowed(output.type()) != type) {
    if (is_parameter_type(type)) {
      result = checked(PyObject_CallFunction(torch_attribute("_make_subclass").get(), "OOO", type.get(), output.get(),
                                             wants_gradient ? Py_True : Py_False));
    } else {
      result = checked(
          PyObject_CallFunctionObjArgs(torch_attribute("as_subclass").get(), output.get(), type.get(), nullptr));
    }
  }
  const at::Tensor& tensor = fake::unpack(result.get());
  if (wants_gradient && !tensor.requires_grad()) tensor.set_requires_grad(true);
  return result;
}

}  // namespace alternator::replay
