// The meaning of an opcode, separate from moving values on the stack.
//
// The loop and the opcodes are written once over a `Semantics`; `Concrete` is plain CPython. Another implementation
// derives from it and overrides what it needs to observe: reads of names, cells, attributes and items, iteration, truth
// tests, calls, stores. It is a template parameter, so that Concrete costs nothing.
//
// Conventions: arguments are borrowed, results owned. A null result means that a Python exception is set, except where
// a comment says that null means "absent". An int result is 0, or -1 with an exception.
#pragma once

#include "cpython/operations.h"

namespace alternator {

// What the loop knows at an instruction boundary.
struct Position {
  PyThreadState* ts;
  cpython::Frame* frame;
  PyObject** sp;              // one past the top of the value stack
  cpython::CodeUnit* next;    // the next instruction
  int opcode = 0, oparg = 0;  // of the instruction that is being executed, where one is
  int saved_exception_slot = -1;
  PyObject* first_argument = nullptr;
  PyObject* keyword_names = nullptr;

  int next_index() const { return static_cast<int>(next - cpython::first_instruction(cpython::code_of(frame))); }
  int stack_size() const { return static_cast<int>(sp - cpython::stack_base(frame)); }
};

enum class Verdict : uint8_t {
  kGo,       // execute the instruction
  kLeave,    // the default loop continues from here
  kCapture,  // record the chain of frames and abandon it
  kFail      // an exception is set
};

// A builtin that takes its arguments as an array is called directly, as CPython's specialized instructions do. That
// also saves a level of recursion, which CPython does not spend on it either once its code is specialized. False: it is
// not such a function.
inline bool call_fast_builtin(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                              Ref* result) {
  if (!Py_IS_TYPE(callable.get(), &PyCFunction_Type)) return false;
  const PyMethodDef* method = callable.as<PyCFunctionObject>()->m_ml;
  constexpr int kConventions = METH_VARARGS | METH_FASTCALL | METH_NOARGS | METH_O | METH_KEYWORDS | METH_METHOD;
  const int convention = method->ml_flags & kConventions;
  auto* function = reinterpret_cast<void (*)()>(method->ml_meth);
  PyObject* self = PyCFunction_GET_SELF(callable.get());
  const auto count = static_cast<Py_ssize_t>(positional);
  if (convention == METH_FASTCALL && !keyword_names) {
    *result = Ref::steal(reinterpret_cast<_PyCFunctionFast>(function)(self, arguments, count));
    return true;
  }
  if (convention == (METH_FASTCALL | METH_KEYWORDS)) {
    auto* with_keywords = reinterpret_cast<_PyCFunctionFastWithKeywords>(function);
    *result = Ref::steal(with_keywords(self, arguments, count, keyword_names.get()));
    return true;
  }
  return false;
}

struct Concrete {
  // An observer is called at every instruction boundary, and may request a capture.
  static constexpr bool kObserves = false;
  // Whether another loop may see the frame's values; otherwise cannot_leave() must end what continues.
  static constexpr bool kMayLeave = true;
  Verdict at_boundary(const Position&) { return Verdict::kGo; }
  // A frame starts (it is not resumed).
  int enter(cpython::Frame*) { return 0; }
  // A value is about to be stored where none of our opcodes sees it read: in a container, a cell, a result.
  int escape(Borrowed) { return 0; }
  // A frame ends with this result.
  int returning(cpython::Frame*, Borrowed) { return 0; }
  // These become the elements of a new tuple or list. 1: gathered() must be called with it.
  int gather(PyObject**, int) { return 0; }
  void gathered(Borrowed) {}

  // --- names ---
  PyObject* local(PyObject** slot) { return *slot; }        // borrowed; null: unbound
  PyObject* moved_local(PyObject** slot) { return *slot; }  // the same, where it is only pushed onto the stack
  Ref load_global(Borrowed globals, Borrowed builtins, Borrowed name) {
    return cpython::load_global(globals, builtins, name);
  }
  int store_global(Borrowed globals, Borrowed name, Borrowed value) {
    return PyDict_SetItem(globals.get(), name.get(), value.get());
  }
  int delete_global(Borrowed globals, Borrowed name) { return PyDict_DelItem(globals.get(), name.get()); }
  Ref load_local_name(Borrowed locals, Borrowed name) { return cpython::lookup_mapping(locals, name); }  // null: absent
  int store_local_name(Borrowed locals, Borrowed name, Borrowed value) {
    return PyDict_CheckExact(locals.get()) ? PyDict_SetItem(locals.get(), name.get(), value.get())
                                           : PyObject_SetItem(locals.get(), name.get(), value.get());
  }
  int delete_local_name(Borrowed locals, Borrowed name) { return PyObject_DelItem(locals.get(), name.get()); }
  Ref load_cell(Borrowed cell) { return Ref::share(PyCell_GET(cell.get())); }  // null: empty
  int store_cell(Borrowed cell, Ref value) {                                   // null: empties it
    Ref old = Ref::steal(PyCell_GET(cell.get()));
    PyCell_SET(cell.get(), value.release());
    return 0;
  }
  int copy_free_variables(cpython::Frame*) { return 0; }  // called before the closure's cells become locals

  // --- attributes and items ---
  Ref get_attribute(Borrowed owner, Borrowed name) { return Ref::steal(PyObject_GetAttr(owner.get(), name.get())); }
  // True: `method` is a function that takes the owner as its first argument.
  bool get_method(Borrowed owner, Borrowed name, Ref* method) {
    PyObject* found = nullptr;
    const bool unbound = _PyObject_GetMethod(owner.get(), name.get(), &found) != 0;
    *method = Ref::steal(found);
    return unbound;
  }
  int set_attribute(Borrowed owner, Borrowed name, Borrowed value) {  // null value: delete
    return PyObject_SetAttr(owner.get(), name.get(), value.get());
  }
  Ref get_item(Borrowed container, Borrowed key) { return Ref::steal(PyObject_GetItem(container.get(), key.get())); }
  int set_item(Borrowed container, Borrowed key, Borrowed value) {
    return PyObject_SetItem(container.get(), key.get(), value.get());
  }
  int delete_item(Borrowed container, Borrowed key) { return PyObject_DelItem(container.get(), key.get()); }
  Ref special_method(Borrowed owner, Borrowed name) {  // bound; null: absent
    return Ref::steal(_PyObject_LookupSpecial(owner.get(), name.get()));
  }
  Py_ssize_t length(Borrowed object) { return PyObject_Length(object.get()); }

  // --- operators ---
  Ref unary(unaryfunc operation, Borrowed value) { return Ref::steal(operation(value.get())); }
  Ref binary(binaryfunc operation, Borrowed left, Borrowed right) {
    return Ref::steal(operation(left.get(), right.get()));
  }
  Ref compare(Borrowed left, Borrowed right, int operation) {
    return Ref::steal(PyObject_RichCompare(left.get(), right.get(), operation));
  }
  Tri contains(Borrowed container, Borrowed value) { return alternator::contains(container, value); }
  bool is(Borrowed left, Borrowed right) { return left == right; }
  Tri truth(Borrowed value) {
    if (value.get() == Py_True) return Tri(1);
    if (value.get() == Py_False || value.get() == Py_None) return Tri(0);
    return alternator::truth(value);
  }
  // `conversion` is str, repr, ascii or null.
  Ref format(Borrowed value, PyObject* (*conversion)(PyObject*), Borrowed spec) {
    Ref converted = conversion != nullptr ? Ref::steal(conversion(value.get())) : Ref::share(value);
    if (!converted || (PyUnicode_CheckExact(converted.get()) && !spec)) return converted;
    return Ref::steal(PyObject_Format(converted.get(), spec.get()));
  }
  Ref convert(PyObject* (*conversion)(PyObject*), Borrowed value) { return Ref::steal(conversion(value.get())); }

  // The parts of an f-string.
  Ref join(PyObject* const* parts, int count) {
    Ref empty = Ref::steal(PyUnicode_New(0, 0));
    if (!empty) return {};
    return Ref::steal(_PyUnicode_JoinArray(empty.get(), parts, count));
  }

  // --- iteration ---
  Ref get_iterator(Borrowed iterable) { return Ref::steal(PyObject_GetIter(iterable.get())); }
  Ref next(Borrowed iterator) { return Ref::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get())); }
  PySendResult send(Borrowed receiver, Borrowed value, Ref* result) {
    PyObject* out = nullptr;
    const PySendResult status = PyIter_Send(receiver.get(), value.get(), &out);
    *result = Ref::steal(out);
    return status;
  }
  bool unpack(Borrowed iterable, int before, int after, PyObject** top) {
    return cpython::unpack_iterable(iterable, before, after, top);
  }
  int list_extend(Borrowed list, Borrowed iterable) {
    return Ref::steal(_PyList_Extend(list.as<PyListObject>(), iterable.get())) ? 0 : -1;
  }
  int set_update(Borrowed set, Borrowed iterable) { return _PySet_Update(set.get(), iterable.get()); }
  int dict_update(Borrowed dict, Borrowed mapping) { return PyDict_Update(dict.get(), mapping.get()); }
  int dict_merge(Borrowed dict, Borrowed mapping) { return _PyDict_MergeEx(dict.get(), mapping.get(), 2); }

  // --- calls ---
  // `arguments` has a free slot before it (PY_VECTORCALL_ARGUMENTS_OFFSET).
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
    Ref result;
    if (call_fast_builtin(callable, arguments, positional, keyword_names, &result)) return result;
    return Ref::steal(PyObject_Vectorcall(callable.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                          keyword_names.get()));
  }
  Ref call_with_tuple(Borrowed callable, Borrowed arguments, Borrowed keywords) {
    return Ref::steal(PyObject_Call(callable.get(), arguments.get(), keywords.get()));
  }
  Ref make_tuple(Borrowed iterable) { return Ref::steal(PySequence_Tuple(iterable.get())); }
  Ref make_function(Borrowed code, Borrowed globals) { return Ref::steal(PyFunction_New(code.get(), globals.get())); }
  Ref load_build_class(Borrowed builtins) { return cpython::load_build_class(builtins); }

  // --- exceptions, imports, patterns, coroutines ---
  int check_raise(Borrowed) { return 0; }  // called for an exception that is raised, and for its cause
  // The operand of a raise statement, before it is processed. It may be replaced.
  int before_raise(Ref*) { return 0; }
  // An exception is set and passes through a frame; its line is not in the traceback yet.
  void raising() {}
  // The frame ends here, because its chain is captured or abandoned.
  void abandoned(cpython::Frame*) {}
  // Signals, pending calls, asynchronous exceptions.
  int handle_breaker(PyThreadState* ts) { return cpython::handle_breaker(ts); }
  Tri exception_matches(Borrowed exception, Borrowed type) {
    if (cpython::check_except_type(type) < 0) return Tri(-1);
    return Tri(PyErr_GivenExceptionMatches(exception.get(), type.get()));
  }
  // The arguments of __exit__ for an exception. Null: there is no traceback, where no exception is set.
  Ref class_of(Borrowed exception) { return Ref::share(reinterpret_cast<PyObject*>(exception.type())); }
  Ref traceback_of(Borrowed exception) { return Ref::steal(PyException_GetTraceback(exception.get())); }
  Ref import_name(PyThreadState* ts, cpython::Frame* frame, Borrowed name, Borrowed fromlist, Borrowed level) {
    return cpython::import_name(ts, frame, name, fromlist, level);
  }
  Ref import_from(Borrowed module, Borrowed name) { return cpython::import_from(module, name); }
  int import_star(Borrowed locals, Borrowed module) { return cpython::import_star(locals, module); }
  Ref match_keys(Borrowed mapping, Borrowed keys) { return cpython::match_keys(mapping, keys); }
  Ref match_class(Borrowed subject, Borrowed type, int positional, Borrowed keyword_names) {  // null: may be "no"
    return cpython::match_class(subject, type, positional, keyword_names);
  }
  Ref get_awaitable(Borrowed object, int oparg) { return cpython::get_awaitable(object, oparg); }
  Ref get_async_iterator(Borrowed object) { return cpython::get_async_iterator(object); }
  Ref get_async_next(Borrowed iterator) { return cpython::get_async_next(iterator); }
};

}  // namespace alternator
