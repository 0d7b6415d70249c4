// Callables that mean something of their own to the tracer: callable -> handler. Each feature registers its handlers;
// callables are resolved to identities once, and a call costs one look-up.
#pragma once

#include "lift/sources/pointer_tables.h"
#include "trace/core/call.h"

#include <vector>

namespace alternator::trace {

class Tracer;

// Null without an error: this call has no meaning of its own, and goes through the generic stages (call_dispatch.cpp).
using Handler = Ref (*)(Tracer& t, const Call& call);

class Handlers {
 public:
  // With the handlers of every feature whose modules are loaded. Called at the beginning of a trace.
  static const Handlers& table();

  // Null without an error: no handler wanted this call.
  Ref call(Tracer& t, const Call& call) const;
  // Whether this function or slot wrapper has a handler.
  bool has(Borrowed callable) const;

  // --- registration: names that this version of CPython or torch lacks are left out. Where several features register
  // the same callable, each is asked in turn, in the order of kFeatures ---
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
  // Python functions with this code: closures that a factory makes.
  void add_code(Borrowed code, Handler handler);
  // Builtin methods that are bound to an instance of exactly this type, whichever class defines them.
  void add_bound(PyTypeObject* type, Handler handler);

  // What a callable is found by; also for other tables of callables.
  static const void* key_of(PyObject* callable);

 private:
  using Table = lift::PointerMap<const void, std::vector<Handler>>;
  void add_all(const Handlers& others);

  Table handlers_;  // also by code
  Table by_slot_;   // by what the slot wrappers of a special method have in common
  Table by_type_, by_self_;
};

// One for each feature, in its own folder. False: its module is not loaded yet, nothing was added, and the next trace
// for which sys.modules has changed asks again.
bool register_attribute_builtins(Handlers& handlers);
bool register_context_variables(Handlers& handlers);
bool register_decimals(Handlers& handlers);
bool register_library_functions(Handlers& handlers);
bool register_logging(Handlers& handlers);
bool register_lru_caches(Handlers& handlers);
bool register_numpy(Handlers& handlers);
bool register_optree(Handlers& handlers);
bool register_output(Handlers& handlers);
bool register_random_draws(Handlers& handlers);
bool register_readers(Handlers& handlers);
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
bool register_single_dispatch(Handlers& handlers);
bool register_symbols(Handlers& handlers);

}  // namespace alternator::trace
