#include "trace/calls/handlers.h"

#include "py/import.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

namespace alternator::trace {

namespace {

using Register = bool (*)(Handlers&);

constexpr Register kFeatures[] = {
    register_attribute_builtins,
    register_context_variables,
    register_decimals,
    register_reflective_builtins,
    // torch
    register_flags,
    register_function_modes,
    register_generators,
    register_legacy_tensors,
    register_scoped_modes,
    register_torch_functions,
    // higher-order
    register_autograd_functions,
    register_checkpoint,
    register_cond,
    register_flex_attention,
    register_flex_operator,
    register_functorch,
    register_loops,
};

}  // namespace

// Registration imports modules, and so may let another thread in: a table is published whole, and never freed.
const Handlers& Handlers::table() {
  static const Handlers* published = new Handlers;
  static std::vector<Register> waiting(std::begin(kFeatures), std::end(kFeatures));
  if (waiting.empty()) return *published;
  std::vector<Register> still_waiting;
  Handlers added;
  for (Register feature : std::vector(waiting)) {
    Handlers own;
    if (!feature(own)) {
      still_waiting.push_back(feature);
      continue;
    }
    for (const auto& [key, handler] : own.handlers_) {
      ALT_CHECK(added.handlers_.emplace(key, handler).second, "two features claim one callable");
    }
    for (const auto& [slot, handler] : own.by_slot_) {
      ALT_CHECK(added.by_slot_.emplace(slot, handler).second, "two features claim one special method");
    }
    for (const auto& [type, handler] : own.by_type_) {
      ALT_CHECK(added.by_type_.emplace(type, handler).second, "two features claim the instances of one type");
    }
  }
  if (still_waiting.size() == waiting.size()) return *published;
  auto next = std::make_unique<Handlers>(*published);
  next->handlers_.insert(added.handlers_.begin(), added.handlers_.end());
  next->by_slot_.insert(added.by_slot_.begin(), added.by_slot_.end());
  next->by_type_.insert(added.by_type_.begin(), added.by_type_.end());
  waiting = std::move(still_waiting);
  return *(published = next.release());
}

// Builtin functions and methods go by their definition, which a method shares with all that are bound of it.
const void* Handlers::key_of(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type) || Py_IS_TYPE(callable, &PyClassMethodDescr_Type))
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  return callable;
}

Handler Handlers::find(Borrowed callable) const {
  if (const auto found = handlers_.find(key_of(callable.get())); found != handlers_.end()) return found->second;
  if (Py_IS_TYPE(callable.get(), &PyWrapperDescr_Type)) {
    const auto slot = by_slot_.find(callable.as<PyWrapperDescrObject>()->d_base);
    if (slot != by_slot_.end()) return slot->second;
  }
  const auto found = by_type_.find(callable.type());
  return found != by_type_.end() ? found->second : nullptr;
}

void Handlers::add(Borrowed callable, Handler handler) {
  handlers_[key_of(Py_NewRef(callable.get()))] = handler;  // lives as long as the process
}

static Ref attribute_or_null(Borrowed owner, const std::string& name) {
  Ref found = Ref::steal(PyObject_GetAttrString(owner.get(), name.c_str()));
  if (!found) PyErr_Clear();
  return found;
}

void Handlers::add(const char* module, const char* names, Handler handler) {
  Ref owner = import_module(module);
  std::istringstream words(names);
  for (std::string name; words >> name;) {
    if (Ref found = attribute_or_null(owner, name)) add(found, handler);
  }
}

void Handlers::add_methods(PyTypeObject* type, const char* names, Handler handler) {
  std::istringstream words(names);
  for (std::string name; words >> name;) {
    if (Ref found = attribute_or_null(reinterpret_cast<PyObject*>(type), name)) add(found, handler);
  }
}

void Handlers::add_slot(const char* name, Handler handler) {
  Ref slot = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyBaseObject_Type), name));
  by_slot_[slot.as<PyWrapperDescrObject>()->d_base] = handler;
}

void Handlers::add_instances(PyTypeObject* type, Handler handler) {
  by_type_[reinterpret_cast<PyTypeObject*>(Py_NewRef(type))] = handler;
}

}  // namespace alternator::trace
