// The Python object around a tensor, as torch lays it out. torch's header for it includes pybind11, which costs every
// file that includes it seven seconds. python_tensor.cpp includes that header once and checks every line of this one
// against it.
#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/Export.h>

TORCH_PYTHON_API extern PyObject* THPVariableClass;
TORCH_PYTHON_API extern PyObject* ParameterClass;
TORCH_PYTHON_API PyObject* THPVariable_Wrap(at::TensorBase&& var);
TORCH_PYTHON_API PyObject* THPVariable_Wrap(const at::TensorBase& var);
TORCH_PYTHON_API PyObject* THPVariable_Wrap(const at::TensorBase& var, PyTypeObject* type);

namespace alternator::fake {

struct PythonTensor {
  PyObject_HEAD;
  at::Tensor cdata;
  const at::Tensor& tensor() const { return cdata; }
};

inline bool is_tensor_type(PyTypeObject* type) {
  return type == reinterpret_cast<PyTypeObject*>(THPVariableClass) ||
         type == reinterpret_cast<PyTypeObject*>(ParameterClass) ||
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}
// By layout, not by isinstance: no user code runs.
inline bool is_tensor_object(PyObject* object) { return is_tensor_type(Py_TYPE(object)); }
inline const at::Tensor& unpack(PyObject* object) { return reinterpret_cast<PythonTensor*>(object)->tensor(); }

}  // namespace alternator::fake
