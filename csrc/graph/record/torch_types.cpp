#include "graph/record/torch_types.h"

#include "py/import.h"
#include "py/lasting.h"

#include <torch/csrc/Generator.h>

#include <cstring>

namespace alternator::graph {

Ref torch_name(const char* module, const char* attribute) {
  Ref owner = import_module(module);
  return checked(PyObject_GetAttrString(owner.get(), attribute));
}

const TorchTypes& torch_types() {
  static constinit Lasting<TorchTypes> types;
  return types.get([] {
    auto type = [](const char* module, const char* attribute) {
      Ref object = torch_name(module, attribute);
      ALT_CHECK(PyType_Check(object.get()), attribute);
      // Kept for the life of the process: types are compared by address.
      return reinterpret_cast<PyTypeObject*>(object.release());
    };
    auto method = [](const char* name) {
      Ref tensor = torch_name("torch", "Tensor");
      return checked(PyObject_GetAttrString(tensor.get(), name));
    };
    return TorchTypes{
        .tensor = type("torch", "Tensor"),
        .parameter = type("torch.nn", "Parameter"),
        .size = type("torch", "Size"),
        .sym_int = type("torch", "SymInt"),
        .sym_float = type("torch", "SymFloat"),
        .sym_bool = type("torch", "SymBool"),
        .op_overload = type("torch._ops", "OpOverload"),
        .op_packet = type("torch._ops", "OpOverloadPacket"),
        .enumeration = type("enum", "Enum"),
        .tensor_iter = method("__iter__"),
        .tensor_unbind = method("unbind"),
        .tensor_item = method("item"),
        .tensor_size = method("size"),
        .torch_function = checked(PyObject_GetAttrString(method("__torch_function__").get(), "__func__")),
        .without_subclasses = torch_name("torch._C", "_disabled_torch_function_impl"),
    };
  });
}

bool is_generator(Borrowed object) {
  return Py_IS_TYPE(object.get(), reinterpret_cast<PyTypeObject*>(THPGeneratorClass));
}

bool is_array(Borrowed object) { return std::strcmp(object.type()->tp_name, "numpy.ndarray") == 0; }

}  // namespace alternator::graph
