// The natives table: what C code may run in a trace, and which calls belong to torch.
#pragma once

#include "py/error.h"

#include <functional>
#include <vector>

namespace alternator::trace {

class Natives {
 public:
  // Resolved on first use; never freed.
  static const Natives& table();

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
  // Builtins that the tracer handles specially.
  PyObject *getattr, *setattr, *hasattr, *delattr, *vars, *id, *len, *dir, *super_type, *isinstance, *build_class,
      *type_type, *print;
  PyObject *tensor_hash, *function_base, *setup_context, *abc_token, *get_ident, *hash, *shield_code, *module_call_code,
      *module_getattr_code, *module_entry_code, *optimizer_code, *function_apply, *transformed_apply, *backward_hook,
      *object_class, *checkpoint, *no_context;
  PyObject *exc_info, *next, *cond;
  std::vector<PyObject*> queries;  // process state and settings, guarded by calling again
  PyObject *globals, *locals, *eval, *exec, *compile, *get_frame, *get_module_name;  // see frame_access.cpp
  PyObject *generic, *subclasses, *abc_init;                                         // see class_creation.cpp
  PyObject *object_getattribute, *object_setattr, *object_delattr, *type_setattr, *type_delattr, *dict_get,
      *list_append;

 private:
  Natives();
  bool is_denied(Borrowed callable) const;
  struct Sets;
  Sets* sets_;
};

// "math.sqrt", for messages.
std::string native_name(Borrowed callable);

}  // namespace alternator::trace
