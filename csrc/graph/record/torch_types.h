// The Python types and functions of torch that csrc/graph compares with or calls, looked up once.
#pragma once

#include "py/error.h"

#include "fake/python_tensor.h"

#include <string_view>

namespace alternator::graph {

// An attribute of a torch module, which lives as long as the process: `torch_name("torch.fx", "Graph")`.
Ref torch_name(const char* module, const char* attribute);

// Cheaper than THPVariable_Check, which calls the metaclass.
inline bool is_tensor(Borrowed object) {
  return PyObject_TypeCheck(object.get(), reinterpret_cast<PyTypeObject*>(THPVariableClass));
}
// torch.Generator itself, not a subclass.
bool is_generator(Borrowed object);
// The name of the package torch or of a module in it.
bool is_of_torch(std::string_view module);
// A type of torch's extension module: most of them no header exports.
bool is_native_of_torch(PyTypeObject* type);
// numpy.ndarray.
bool is_array(Borrowed object);
inline const at::Tensor& as_tensor(Borrowed object) { return fake::unpack(object.get()); }

struct TorchTypes {
  PyTypeObject* tensor;       // torch.Tensor
  PyTypeObject* parameter;    // torch.nn.Parameter
  PyTypeObject* size;         // torch.Size
  PyTypeObject* sym_int;      // torch.SymInt
  PyTypeObject* sym_float;    // torch.SymFloat
  PyTypeObject* sym_bool;     // torch.SymBool
  PyTypeObject* op_overload;  // torch._ops.OpOverload
  PyTypeObject* op_packet;    // torch._ops.OpOverloadPacket
  PyTypeObject* enumeration;  // enum.Enum
  Ref make_tensor;            // torch.tensor
  Ref tensor_data;            // torch.Tensor.data, the descriptor
  Ref tensor_iter;            // torch.Tensor.__iter__
  Ref tensor_unbind;          // torch.Tensor.unbind
  Ref tensor_item;            // torch.Tensor.item
  Ref tensor_size;            // torch.Tensor.size
  Ref torch_function;         // torch.Tensor.__torch_function__, the function
  Ref without_subclasses;     // torch._C._disabled_torch_function_impl
};

// Never freed. Imported on first use; throws PyError if torch differs from the known versions.
const TorchTypes& torch_types();

}  // namespace alternator::graph
