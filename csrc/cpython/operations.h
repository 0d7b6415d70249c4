// Helpers that CPython's eval loop uses and does not export: same results, same messages.
#pragma once

#include "cpython/version.h"
#include "py/error.h"

namespace alternator::cpython {

// --- exceptions -------------------------------------------------------------------------------------
struct Handler {
  int depth;        // height to which the value stack is unwound
  int target;       // index of the handler's first instruction
  bool push_lasti;  // whether the index of the raising instruction is pushed below the exception
};
// The handler that covers the instruction at `index`; false: there is none.
bool find_handler(PyCodeObject* code, int index, Handler* handler);

enum class Raised : uint8_t {
  kNew,      // an exception is set; the raising line is still to be added to its traceback
  kReraised  // the handled exception is set again; its traceback has this line already
};
// `raise`, `raise exception`, `raise exception from cause`. Null means "not given".
Raised raise_exception(PyThreadState* ts, Ref exception, Ref cause);
// -1 (TypeError set) unless `type` is valid in an `except` clause.
int check_except_type(Borrowed type);
// `except*`: splits an exception group (or a naked exception) into the matching part and the rest. Null `match` means
// an error.
struct GroupMatch {
  Ref match, rest;
};
GroupMatch match_exception_group(Borrowed exception, Borrowed type);

// --- messages -----------------------------------------------------------------------------------------
void set_name_error(PyObject* error_type, const char* format, Borrowed name);
void set_not_defined(Borrowed name);
// The local, cell or free variable with this index has no value.
void set_unbound(PyCodeObject* code, int index);
// Converts the error of a failed `**kwargs` merge into the TypeError that a call raises.
void rewrite_kwargs_error(Borrowed function, Borrowed kwargs);
// -1 (TypeError set) where `*args` cannot be iterated.
int check_star_args(Borrowed function, Borrowed args);

// --- names --------------------------------------------------------------------------------------------
// A mapping's entry; null without an error where it is absent.
Ref lookup_mapping(Borrowed mapping, Borrowed name);
// Global, then builtin, else NameError.
Ref load_global(Borrowed globals, Borrowed builtins, Borrowed name);
Ref load_build_class(Borrowed builtins);
int setup_annotations(Borrowed locals);

// --- unpacking ----------------------------------------------------------------------------------------
// Fills `before` values, then (if after >= 0) a list and `after` values, downwards from `top`.
bool unpack_iterable(Borrowed iterable, int before, int after, PyObject** top);

// --- imports ------------------------------------------------------------------------------------------
Ref import_name(PyThreadState* ts, Frame* frame, Borrowed name, Borrowed fromlist, Borrowed level);
Ref import_from(Borrowed module, Borrowed name);
int import_star(Borrowed locals, Borrowed module);

// --- pattern matching ---------------------------------------------------------------------------------
// A tuple of values, None where a key is missing, null on error.
Ref match_keys(Borrowed mapping, Borrowed keys);
// A tuple of attributes, null where it does not match (or an error is set).
Ref match_class(Borrowed subject, Borrowed type, Py_ssize_t positional, Borrowed keyword_names);

// --- generators and coroutines ------------------------------------------------------------------------
Ref awaitable_iterator(Borrowed object);
// GET_AWAITABLE: `oparg` says whether the object came from __aenter__ (1) or __aexit__ (2).
Ref get_awaitable(Borrowed object, int oparg);
Ref get_async_iterator(Borrowed object);
Ref get_async_next(Borrowed iterator);
// The object that a suspended generator delegates to; null without an error where there is none.
Ref yield_from_target(PyGenObject* generator);

// --- one opcode in the default loop ---------------------------------------------------------------------
// A few opcodes call functions that CPython does not export. They run as separate code objects.
enum class Micro : uint8_t;
Ref run_micro(Micro which, std::initializer_list<PyObject*> arguments);
// The frame hook passes these code objects to the default loop.
bool is_micro(const PyCodeObject* code);
// Called once, when the extension is imported. -1: an exception is set.
int init_micros();
// CALL_INTRINSIC_1 and _2, where our loop does not implement them itself (3.12+).
Ref call_intrinsic1(PyThreadState* ts, int which, Borrowed value);
Ref call_intrinsic2(PyThreadState* ts, int which, Borrowed left, Borrowed right);

}  // namespace alternator::cpython
