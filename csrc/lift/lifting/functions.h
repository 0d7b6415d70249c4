// Default arguments of pre-existing functions, and the constants of the code that runs.
#pragma once

#include "lift/sources/pointer_tables.h"
#include "lift/sources/source.h"

namespace alternator::lift {

class Lifter;

class Functions {
 public:
  explicit Functions(Lifter& lifter) : lifter_(lifter) {}

  // Lifts the default arguments that a call used, in the callee's slots.
  void use_defaults(PyFunctionObject* function, PyObject** slots);
  // A call may have failed for lack of default arguments: guards which ones the known functions have.
  void guard_defaults();
  // A code object whose instructions run: its constants are the same objects in every call.
  void note_code(Borrowed code);
  bool is_code_constant(Borrowed object) const { return code_constants_.count(object.get()) != 0; }

 private:
  void guard_defaults_of(PyFunctionObject* function, Source* source);

  Lifter& lifter_;
  PointerSet<PyObject> defaults_guarded_;  // functions
  PointerSet<PyObject> codes_, code_constants_;
};

}  // namespace alternator::lift
