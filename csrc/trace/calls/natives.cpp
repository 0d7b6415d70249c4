#include "trace/calls/natives.h"

#include "cpython/method_wrappers.h"
#include "fake/python_tensor.h"
#include "lift/sources/known_types.h"
#include "lift/sources/optree_types.h"
#include "lift/sources/pointer_tables.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/native_tables.h"

#include <cstring>

namespace alternator::trace {

const Natives& Natives::table() {
  static constinit Lasting<const Natives*> table;
  return *table.get([] { return new Natives; });
}

// A method by its definition, which it shares with all that are bound of it; a slot by its wrapper in the type.
const void* Natives::Tables::key_of(PyObject* callable) const {
  if (const cpython::MethodWrapper* wrapper = cpython::as_method_wrapper(callable)) return wrapper->slot;
  const void* key = Handlers::key_of(callable);
  return key == constructor ? callable : key;
}

uint64_t Natives::Tables::flags_by_name(std::string_view name) const {
  const auto found = by_name.find(name);
  return found != by_name.end() ? found->second : native::kPlain;
}

NativeFlags Natives::flags(Borrowed callable) const {
  const auto found = tables_->callables.find(tables_->key_of(callable.get()));
  if (found != tables_->callables.end()) return {found->second};
  const bool is_function = PyCFunction_Check(callable.get()) && (PyCFunction_GET_SELF(callable.get()) == nullptr ||
                                                                 PyModule_Check(PyCFunction_GET_SELF(callable.get())));
  return {is_function ? native::kPlain : tables_->flags_by_name(defined_name(callable))};
}

NativeFlags Natives::flags_of_type(PyTypeObject* type) const {
  const auto found = tables_->types.find(type);
  return {found != tables_->types.end() ? found->second : native::kPlain};
}

bool is_same_builtin(Borrowed callable, Borrowed identity) {
  return Handlers::key_of(callable.get()) == Handlers::key_of(identity.get());
}

bool Natives::type(PyTypeObject* type) const {
  if (tables_->types.count(type) != 0) return true;
  const lift::TreeTypes* trees = lift::tree_types();
  return trees != nullptr && (type == trees->spec || type == trees->iterator);
}

bool Natives::recorded(Borrowed callable) const { return tables_->recorded.count(callable.get()) != 0; }
void Natives::each_recorded(const std::function<void(Borrowed)>& visit) const {
  for (PyObject* function : tables_->recorded) visit(function);
}
bool Natives::computed(Borrowed callable) const { return tables_->computed.count(callable.get()) != 0; }
bool Natives::communicates(Borrowed callable) const { return tables_->communicating.count(callable.get()) != 0; }
bool Natives::unseen(Borrowed callable) const { return tables_->unseen.count(callable.get()) != 0; }

bool Natives::torch(Borrowed callable) const {
  if (tables_->torch.count(callable.get()) != 0) return true;
  PyTypeObject* type = callable.type();
  if (type == tables_->op_overload || type == tables_->op_packet) return true;
  if (PyCFunction_Check(callable.get())) {
    PyObject* self = PyCFunction_GET_SELF(callable.get());
    if (self != nullptr && fake::is_tensor_object(self)) return true;
    // torch.relu and the like are methods of a class object; bound again on each look-up.
    return self != nullptr && self == reinterpret_cast<PyObject*>(tables_->variable_functions);
  }
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) {
    PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(callable.get())->d_type;
    return PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(THPVariableClass), owner) && owner != &PyBaseObject_Type;
  }
  if (const cpython::MethodWrapper* wrapper = cpython::as_method_wrapper(callable.get()))
    return fake::is_tensor_object(wrapper->self);
  return false;
}

static PyTypeObject* static_base(PyTypeObject* type) {
  while (type != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) type = type->tp_base;
  return type;
}

bool Natives::function(Borrowed callable) const {
  const NativeFlags known = flags(callable);
  if (known.has(native::kDenied)) return false;
  if (known.has(native::kListed)) return true;
  if (PyCFunction_Check(callable.get())) {
    const auto* function = callable.as<PyCFunctionObject>();
    // A static method, such as str.maketrans, is not passed its type, but has it in m_self.
    PyObject* self = function->m_self;
    if (lift::is_self_of_function(self)) return false;
    if ((function->m_ml->ml_flags & METH_STATIC) != 0 && !PyType_Check(self)) return false;
    PyTypeObject* owner = PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
    // A method of a lifted or private object of a known type; what a class inherits from `object` is harmless.
    PyTypeObject* base = type(owner) ? owner : static_base(owner);
    return base != nullptr && type(base);
  }
  PyTypeObject* kind = callable.type();
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type) {
    return type(reinterpret_cast<PyDescrObject*>(callable.get())->d_type);
  }
  if (kind == &_PyMethodWrapper_Type) return true;  // bound: its self is lifted, its type is checked at look-up
  return type(kind);                                // itemgetter, partial, ...
}

}  // namespace alternator::trace
