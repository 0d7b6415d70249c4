// Callables that mean something of their own to the tracer: callable -> handler. Each feature registers its handlers;
// callables are resolved to identities once, and a call costs one look-up.
#pragma once

#include "lift/lifting/pointer_tables.h"
#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

// Null without an error: this call has no meaning of its own, and goes through the generic stages (call_dispatch.cpp).
using Handler = Ref (*)(Tracer& t, const Call& call);

class Handlers {
 public:
  // With the handlers of every feature whose modules are loaded. Called at the beginning of a trace.
  static const Handlers& table();

  Handler find(Borrowed callable) const;

  // --- registration: names that this version of CPython or torch lacks are left out ---
  // A function, a builtin, a class; or a slot wrapper, in its unbound form.
  void add(Borrowed callable, Handler handler);
  // Attributes of a module, with spaces between them.
  void add(const char* module, const char* names, Handler handler);
  // Methods of a type, whether they are called bound or not.
  void add_methods(PyTypeObject* type, const char* names, Handler handler);
  // The slot wrappers of a special method, whichever type they belong to.
  void add_slot(const char* name, Handler handler);
  // Calls of instances of exactly this type.
  void add_instances(PyTypeObject* type, Handler handler);

  // What a callable is found by; also for other tables of callables.
  static const void* key_of(PyObject* callable);

 private:
  lift::PointerMap<const void, Handler> handlers_;
  lift::PointerMap<const void, Handler> by_slot_;  // by what the slot wrappers of a special method have in common
  lift::PointerMap<PyTypeObject, Handler> by_type_;
};

// One for each feature, in its own folder. False: its module is not loaded yet, nothing was added, and the next trace
// asks again.
bool register_attribute_builtins(Handlers& handlers);
bool register_context_variables(Handlers& handlers);
bool register_decimals(Handlers& handlers);
bool register_reflective_builtins(Handlers& handlers);
bool register_autograd_functions(Handlers& handlers);
bool register_checkpoint(Handlers& handlers);
bool register_cond(Handlers& handlers);
bool register_flags(Handlers& handlers);
bool register_flex_attention(Handlers& handlers);
bool register_flex_operator(Handlers& handlers);
bool register_function_modes(Handlers& handlers);
bool register_functorch(Handlers& handlers);
bool register_generators(Handlers& handlers);
bool register_legacy_tensors(Handlers& handlers);
bool register_loops(Handlers& handlers);
bool register_scoped_modes(Handlers& handlers);
bool register_torch_functions(Handlers& handlers);

}  // namespace alternator::trace
