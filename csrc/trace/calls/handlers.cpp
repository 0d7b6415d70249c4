#include "trace/calls/handlers.h"

#include "py/import.h"
#include "trace/calls/code_table.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

namespace alternator::trace {

namespace {

using Register = bool (*)(Handlers&);

constexpr Register kFeatures[] = {
    register_output,
    register_logging,
    register_context_variables,
    register_decimals,
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
    // the standard library, numpy, optree
    register_library_functions,
    register_readers,
    register_lru_caches,
    register_single_dispatch,
    register_random_draws,
    register_symbols,
    register_numpy,
    register_optree,
    register_attribute_builtins,
    register_reflective_builtins,
};

}  // namespace

// Registration imports modules, and so may let another thread in: a table is published whole, and never freed.
const Handlers& Handlers::table() {
  static const Handlers* published = new Handlers;
  static std::vector<Register> waiting(std::begin(kFeatures), std::end(kFeatures));
  static uint64_t seen = 0;  // modules_version() when the waiting features were asked last
  const uint64_t now = modules_version();
  if (waiting.empty() || now == seen) return *published;
  std::vector<Register> still_waiting;
  Handlers added;
  for (Register feature : std::vector(waiting)) {
    if (!feature(added)) still_waiting.push_back(feature);
  }
  seen = now;
  if (still_waiting.size() == waiting.size()) return *published;
  auto next = std::make_unique<Handlers>(*published);
  next->add_all(added);
  waiting = std::move(still_waiting);
  return *(published = next.release());
}

void Handlers::add_all(const Handlers& others) {
  for (Table Handlers::* table :
       {&Handlers::handlers_, &Handlers::by_slot_, &Handlers::by_type_, &Handlers::by_self_}) {
    for (const auto& [key, handlers] : others.*table) {
      std::vector<Handler>& own = (this->*table)[key];
      own.insert(own.end(), handlers.begin(), handlers.end());
    }
  }
}

// Builtin functions and methods go by their definition, which a method shares with all that are bound of it.
const void* Handlers::key_of(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type) || Py_IS_TYPE(callable, &PyClassMethodDescr_Type))
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  return callable;
}

Ref Handlers::call(Tracer& t, const Call& call) const {
  PyObject* callable = call.callable.get();
  const auto asked = [&](const Table& table, const void* key) {
    const auto found = table.find(key);
    if (found == table.end()) return Ref();
    for (const Handler handler : found->second) {
      if (Ref result = handler(t, call)) return result;
    }
    return Ref();
  };
  if (Ref result = asked(handlers_, key_of(callable))) return result;
  if (PyFunction_Check(callable)) return asked(handlers_, PyFunction_GET_CODE(callable));
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    return self != nullptr ? asked(by_self_, Py_TYPE(self)) : Ref();
  }
  if (Py_IS_TYPE(callable, &PyWrapperDescr_Type))
    return asked(by_slot_, call.callable.as<PyWrapperDescrObject>()->d_base);
  return asked(by_type_, Py_TYPE(callable));
}

bool Handlers::has(Borrowed callable) const {
  if (handlers_.count(key_of(callable.get())) != 0) return true;
  return Py_IS_TYPE(callable.get(), &PyWrapperDescr_Type) &&
         by_slot_.count(callable.as<PyWrapperDescrObject>()->d_base) != 0;
}

void Handlers::add(Borrowed callable, Handler handler) {
  handlers_[key_of(Py_NewRef(callable.get()))].push_back(handler);  // lives as long as the process
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
  by_slot_[slot.as<PyWrapperDescrObject>()->d_base].push_back(handler);
}

void Handlers::add_instances(PyTypeObject* type, Handler handler) { by_type_[Py_NewRef(type)].push_back(handler); }

void Handlers::add_code(Borrowed code, Handler handler) { handlers_[Py_NewRef(code.get())].push_back(handler); }

void Handlers::add_bound(PyTypeObject* type, Handler handler) { by_self_[Py_NewRef(type)].push_back(handler); }

}  // namespace alternator::trace
