#include "graph/record/torch_types.h"

#include "py/import.h"
#include "py/lasting.h"

#include <torch/csrc/Generator.h>

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
        .make_tensor = torch_name("torch", "tensor"),
        .tensor_data = method("data"),
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

bool is_of_torch(std::string_view module) { return module == "torch" || module.starts_with("torch."); }

bool is_native_of_torch(PyTypeObject* type) { return std::string_view(type->tp_name).starts_with("torch."); }

// Null until numpy is imported: there are no arrays before.
static PyTypeObject* array_class() {
  static PyTypeObject* found = nullptr;
  if (found != nullptr) return found;
  static constinit Lasting<Ref> name;
  const Ref& numpy = name.get([] { return checked(PyUnicode_InternFromString("numpy")); });
  PyObject* module = PyDict_GetItem(PyImport_GetModuleDict(), numpy.get());
  if (module == nullptr || !PyModule_Check(module)) return nullptr;
  PyObject* type = PyDict_GetItemString(PyModule_GetDict(module), "ndarray");  // null: the import is in progress
  if (type != nullptr && PyType_Check(type)) found = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
  return found;
}

bool is_array(Borrowed object) { return object.type() == array_class(); }

}  // namespace alternator::graph
