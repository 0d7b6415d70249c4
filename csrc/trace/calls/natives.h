// The natives table: what C code may run in a trace, what it does there, and which calls belong to torch.
#pragma once

#include "py/error.h"
#include "trace/calls/native_flags.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace alternator::trace {

class Natives {
 public:
  // Resolved on first use; never freed.
  static const Natives& table();

  // What a function or method does, bound or not. No flags: no row names it.
  NativeFlags flags(Borrowed callable) const;
  // What the constructor of exactly this type does.
  NativeFlags flags_of_type(PyTypeObject* type) const;

  bool function(Borrowed callable) const;  // a function that may run
  bool type(PyTypeObject* type) const;     // instances of exactly this type hold nothing but what they are given
  // A torch API call: what __torch_function__ sees, an operator, a factory.
  bool torch(Borrowed callable) const;
  // A torch function that no torch-function mode sees.
  bool recorded(Borrowed callable) const;
  void each_recorded(const std::function<void(Borrowed)>& visit) const;
  // ... nor anything that it calls.
  bool unseen(Borrowed callable) const;
  // Communicates with other processes: each call is executed concretely, as a whole.
  bool communicates(Borrowed callable) const;
  // A Python function that may run eagerly on plain values.
  bool computed(Borrowed callable) const;

  // Callables that the tracer handles specially.
#define ALT_IDENTITY(member, module, path) PyObject* member = nullptr;
#define ALT_OPTIONAL_IDENTITY(member, module, path) PyObject* member = nullptr;
#include "trace/calls/native_identities.def"
  PyObject* object_class = nullptr;    // the descriptor object.__class__
  PyObject* shield_code = nullptr;     // the code of every function that torch._disable_dynamo makes
  PyObject* optimizer_code = nullptr;  // ... of what every step() of an optimizer is wrapped in; null: not found
  std::vector<PyObject*> queries;      // process state and settings, guarded by calling again

 private:
  Natives();
  // native_identities.cpp
  void resolve_identities();
  // native_tables.cpp: the rows of natives.def
  void add_types();
  void add_functions();
  void add_methods();
  void add_torch_functions();

  struct Tables;
  Tables* tables_;
};

// The same builtin function or method, bound or not. `identity`: a member of Natives.
bool is_same_builtin(Borrowed callable, Borrowed identity);

// --- names, for messages (native_names.cpp) ---
// "math.sqrt"
std::string native_name(Borrowed callable);
// The name that its definition gives to a builtin function, a method or a slot; empty: it is none of these.
std::string_view defined_name(Borrowed callable);

}  // namespace alternator::trace
