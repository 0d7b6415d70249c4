// Resolves the callables that the tracer handles specially.
#include "trace/calls/natives.h"

#include "py/import.h"

#include <sstream>

namespace alternator::trace {

namespace {

// `path`: names with dots between them. Null, with an error: there is no such attribute.
Ref attribute_at(const char* module, const char* path) {
  Ref found = import_module(module);
  std::istringstream names(path);
  for (std::string name; found && std::getline(names, name, '.');)
    found = Ref::steal(PyObject_GetAttrString(found.get(), name.c_str()));
  return found;
}

Ref optional_at(const char* module, const char* path) {
  Ref found = attribute_at(module, path);
  if (!found) PyErr_Clear();
  return found;
}

PyObject* code_of_shields() {
  Ref decorator = checked(attribute_at("torch._compile", "_disable_dynamo"));
  Ref shielded = checked(PyObject_CallOneArg(decorator.get(), decorator.get()));
  return Py_NewRef(PyFunction_GET_CODE(shielded.get()));
}

// The last function that the decorator defines.
PyObject* code_of_optimizer_steps() {
  Ref decorator = checked(attribute_at("torch.optim.optimizer", "_use_grad_for_differentiable"));
  if (!PyFunction_Check(decorator.get())) return nullptr;
  PyObject* constants = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(decorator.get()))->co_consts;
  PyObject* inner = nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
    if (PyCode_Check(PyTuple_GET_ITEM(constants, i))) inner = PyTuple_GET_ITEM(constants, i);
  }
  return Py_XNewRef(inner);
}

}  // namespace

void Natives::resolve_identities() {
#define ALT_IDENTITY(member, module, path) member = checked(attribute_at(module, path)).release();
#define ALT_OPTIONAL_IDENTITY(member, module, path) member = optional_at(module, path).release();
#include "trace/calls/native_identities.def"
  object_class = Py_NewRef(_PyType_Lookup(&PyBaseObject_Type, checked(PyUnicode_InternFromString("__class__")).get()));
  shield_code = code_of_shields();
  optimizer_code = code_of_optimizer_steps();
}

}  // namespace alternator::trace
