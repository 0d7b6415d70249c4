// Selects the continuation: the waiting instruction's operands determine whether its result follows from the inner
// frame's.
#include "interpreter/call_continuation.h"
#include "interpreter/special_methods.h"

#include "cpython/objects.h"
#include "py/import.h"
#include "py/lasting.h"

#include <algorithm>
#include <span>

namespace alternator {

namespace {

// The operands of CALL, wherever this version puts them.
struct CallOperands {
  PyObject* callable;
  PyObject** arguments;  // `self` first, where there is one
  int total;

  CallOperands(PyObject** sp, int count) {
    PyObject* upper = sp[-count - 1];
    PyObject* lower = sp[-count - 2];
    const bool has_self = cpython::kCallableFirst ? upper != nullptr : lower != nullptr;
    total = count + (has_self ? 1 : 0);
    arguments = sp - total;
    callable = cpython::kCallableFirst || has_self ? lower : upper;
  }
};

struct Classifier {
  const Position& position;
  const FrameState& inner;
  FrameState* outer;
  PyCodeObject* code = cpython::code_of(position.frame);
  int oparg = position.oparg;
  bool from_function = !inner.generator;
  PyObject* callee = nullptr;  // native code that may lie between, to name it

  PyObject* name(int index) const { return PyTuple_GET_ITEM(code->co_names, index); }
  PyObject* peek(int n) const { return position.sp[-n]; }
  bool called(PyObject* attribute) const { return attribute != nullptr && attribute == inner.function.get(); }
  bool called_special(PyObject* object, const char* name) const {
    return object != nullptr && called(type_attribute(Py_TYPE(object), name));
  }
  void join(Continuation continuation, int operands) {
    outer->continuation = continuation;
    outer->operands = operands;
  }
  bool join_if(bool condition, Continuation continuation, int operands) {
    if (condition) join(continuation, operands);
    return condition;
  }
  void cannot(std::string why) {
    outer->continuation = Continuation::kCannot;
    outer->cannot = std::move(why);
  }

  void classify();
  // Whether the frame goes on with the inner frame's result; `outer` then says how.
  bool joined();
  bool special(int operand, const char* method, Continuation continuation, int operands);
  bool call();
  [[maybe_unused]] bool call_with_names();
  bool call_unpacked();
  bool attribute();
  [[maybe_unused]] bool super_attribute();
  bool stored_attribute();
  bool deleted_attribute();
  bool binary_operator();
  bool comparison();
  bool next_of_loop();
  bool next_of_delegate();
  bool enter();
  bool exit();
  [[maybe_unused]] bool intrinsic();
  bool truth();

  bool call_of(PyObject* callable, PyObject** arguments, int total, int operands);
  bool generator_call(PyObject* callable, PyObject** arguments, int total, int operands);
  bool construct(PyTypeObject* type, int operands);
  bool attribute_of(PyObject* owner, PyObject* name, int operands);
  bool stored_attribute_of(PyObject* owner, PyObject* name, bool is_delete, int operands);
  bool super_attribute_of(PyObject* cls, PyObject* self, PyObject* name, int operands);
  bool attempted(const std::vector<Attempt>& attempts, Continuation continuation);
  // The __mro_entries__ of a base would be called again: the result may differ, and its side effects would repeat.
  bool bases_are_types(PyObject** arguments, int total) const {
    const Py_ssize_t named = outer->keyword_names ? PyTuple_GET_SIZE(outer->keyword_names.get()) : 0;
    for (Py_ssize_t i = 2; i < total - named; i++) {
      if (!PyType_Check(arguments[i])) return false;
    }
    return true;
  }
  std::string instruction() const;
};

std::string text_of(PyObject* object) {
  Ref text = Ref::steal(PyObject_Repr(reinterpret_cast<PyObject*>(Py_TYPE(object))));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return utf8 != nullptr ? utf8 : "an object";
}

PyObject* unwrap_method(PyObject* callable) {
  return PyMethod_Check(callable) ? PyMethod_GET_FUNCTION(callable) : callable;
}

PyObject* unwrap_partial(PyObject* callable) {
  // functools.partial returns its callee's result unchanged.
  while (cpython::is_native(Py_TYPE(callable), "functools.partial")) {
    Ref function = Ref::steal(PyObject_GetAttrString(callable, "func"));
    if (!function) {
      PyErr_Clear();
      break;
    }
    callable = function.get();  // kept alive by the partial object
  }
  return callable;
}

const char* native_name(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type))
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method->ml_name;
  if (Py_IS_TYPE(callable, &PyWrapperDescr_Type))
    return reinterpret_cast<PyWrapperDescrObject*>(callable)->d_base->name;
  return "";
}

// The native functions through which a frame may lead to another one, and what they do with its result.
struct NativeCallers {
  static const void* of(Borrowed owner, const char* name) {
    Ref found = Ref::steal(PyObject_GetAttrString(owner.get(), name));
    if (!found) PyErr_Clear();  // the program may delete builtins
    return found ? cpython::native_definition(found.get()) : nullptr;
  }
  static const void* builtin(const char* name) { return of(import_module("builtins"), name); }
  static const void* method(PyTypeObject& type, const char* name) {
    return of(reinterpret_cast<PyObject*>(&type), name);
  }
  const void* build_class[1] = {builtin("__build_class__")};
  const void* resumes[4] = {builtin("next"), method(PyGen_Type, "__next__"), method(PyGen_Type, "send"),
                            method(PyCoro_Type, "send")};
  const void* throws[2] = {method(PyGen_Type, "throw"), method(PyCoro_Type, "throw")};
};
const NativeCallers& native_callers() {
  static constinit Lasting<NativeCallers> callers;
  return callers.get();
}
bool is_one_of(std::span<const void* const> definitions, PyObject* callable) {
  const void* definition = cpython::native_definition(callable);
  return definition != nullptr && std::ranges::find(definitions, definition) != definitions.end();
}

bool Classifier::construct(PyTypeObject* type, int operands) {
  if (Py_TYPE(type)->tp_call != PyType_Type.tp_call) return false;
  if (join_if(called(type_attribute(type, "__init__")) && inner.first_argument, Continuation::kInstance, operands))
    return true;
  PyObject* constructor = type_attribute(type, "__new__");
  if (constructor != nullptr && Py_IS_TYPE(constructor, &PyStaticMethod_Type)) {
    Ref function = Ref::steal(PyObject_GetAttrString(constructor, "__func__"));
    if (!function) PyErr_Clear();
    return join_if(called(function.get()), Continuation::kNew, operands);
  }
  return false;
}

bool Classifier::generator_call(PyObject* callable, PyObject** arguments, int total, int operands) {
  PyObject* self = PyCFunction_Check(callable) && total == 0 ? PyCFunction_GET_SELF(callable)
                   : total > 0                               ? arguments[0]
                                                             : nullptr;
  if (PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable) == inner.generator.get())
    self = inner.generator.get();
  if (self != inner.generator.get() || outer->keyword_names) return false;
  if (join_if(is_one_of(native_callers().resumes, callable), Continuation::kReexecute, operands)) return true;
  // The thrown exception has arrived: stepping the revived generator gives what throw() would have returned.
  return join_if(is_one_of(native_callers().throws, callable), Continuation::kValue, operands);
}

bool Classifier::call_of(PyObject* callable, PyObject** arguments, int total, int operands) {
  if (inner.generator) return generator_call(callable, arguments, total, operands);
  callable = unwrap_partial(unwrap_method(callable));
  if (called(unwrap_method(callable)) || called_special(callable, "__call__")) {
    join(Continuation::kValue, operands);
    return true;
  }
  if (PyType_Check(callable)) return construct(reinterpret_cast<PyTypeObject*>(callable), operands);
  if (total >= 2 && is_one_of(native_callers().build_class, callable)) {
    return join_if(called(arguments[0]) && inner.locals_mapping && bases_are_types(arguments, total),
                   Continuation::kClassBody, operands);
  }
  return false;
}

bool descriptor_calls(const Classifier& classifier, PyObject* descriptor, const char* property_field,
                      const char* slot) {
  if (descriptor == nullptr) return false;
  if (Py_IS_TYPE(descriptor, &PyProperty_Type)) {
    Ref function = Ref::steal(PyObject_GetAttrString(descriptor, property_field));
    if (!function) PyErr_Clear();
    return classifier.called(function.get());
  }
  return classifier.called_special(descriptor, slot);
}

bool Classifier::attribute_of(PyObject* owner, PyObject* name, int operands) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  if (descriptor_calls(*this, descriptor, "fget", "__get__") || called_special(owner, "__getattr__") ||
      called_special(owner, "__getattribute__")) {
    join(Continuation::kAttribute, operands);
    return true;
  }
  if (PyType_Check(owner)) {
    PyObject* own = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner), name);
    return join_if(descriptor_calls(*this, own, "fget", "__get__"), Continuation::kAttribute, operands);
  }
  if (PyModule_Check(owner)) {
    return join_if(called(PyDict_GetItemString(PyModule_GetDict(owner), "__getattr__")), Continuation::kAttribute,
                   operands);
  }
  return false;
}

// super().name: the class after `cls` in the MRO of the object (or class) itself.
bool Classifier::super_attribute_of(PyObject* cls, PyObject* self, PyObject* name, int operands) {
  if (!PyType_Check(cls)) return false;
  auto* start = reinterpret_cast<PyTypeObject*>(cls);
  PyTypeObject* type = Py_TYPE(self);
  if (PyType_Check(self) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(self), start)) {
    type = reinterpret_cast<PyTypeObject*>(self);
  }
  PyObject* order = type->tp_mro;
  bool after = false;
  for (Py_ssize_t i = 0; order != nullptr && i < PyTuple_GET_SIZE(order); i++) {
    PyObject* base = PyTuple_GET_ITEM(order, i);
    if (!after) {
      after = base == cls;
      continue;
    }
    PyObject* dict = cpython::own_dict(reinterpret_cast<PyTypeObject*>(base));
    if (PyObject* found = dict != nullptr ? PyDict_GetItemWithError(dict, name) : nullptr) {
      return join_if(descriptor_calls(*this, found, "fget", "__get__"), Continuation::kAttribute, operands);
    }
  }
  return false;
}

bool Classifier::stored_attribute_of(PyObject* owner, PyObject* name, bool is_delete, int operands) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  const bool direct =
      is_delete ? descriptor_calls(*this, descriptor, "fdel", "__delete__") || called_special(owner, "__delattr__")
                : descriptor_calls(*this, descriptor, "fset", "__set__") || called_special(owner, "__setattr__");
  return join_if(direct, Continuation::kDiscard, operands);
}

// Both operands may have the same function. Which operand's method was called follows from the arguments, unless both
// are the same object.
bool Classifier::attempted(const std::vector<Attempt>& attempts, Continuation continuation) {
  int found = 0;
  for (size_t i = 0; i < attempts.size(); i++) {
    if (!called(attempts[i].method) || attempts[i].self != inner.first_argument.get()) continue;
    outer->attempt = static_cast<int>(i);
    found++;
  }
  return join_if(found == 1, continuation, 2);
}

std::string Classifier::instruction() const {
  switch (position.opcode) {
#define ALT_OPCODE(NAME, EFFECT, OPERANDS, CONTINUATION, MEANING) \
  case NAME:                                                      \
    return #NAME " (" MEANING ")";
#include "cpython/opcodes.def"
#undef ALT_OPCODE
    default:  // not in an instruction: entered with an exception to raise
      return "throw() into a suspended frame";
  }
}

// --- one function for each word of the continuation column of opcodes.def -----------------------------------------

bool Classifier::special(int operand, const char* method, Continuation continuation, int operands) {
  return join_if(from_function && called_special(peek(operand), method), continuation, operands);
}

bool Classifier::call() {
  const CallOperands operands(position.sp, oparg);
  callee = operands.callable;
  return call_of(operands.callable, operands.arguments, operands.total, oparg + 2);
}

bool Classifier::call_with_names() {
  outer->keyword_names = Ref::share(peek(1));
  const CallOperands operands(position.sp - 1, oparg);
  callee = operands.callable;
  return call_of(operands.callable, operands.arguments, operands.total, oparg + 3);
}

bool Classifier::call_unpacked() {
  const int has_keywords = oparg & 1;
  callee = peek(2 + has_keywords + (cpython::kCallableFirst ? 1 : 0));
  PyObject* tuple = peek(1 + has_keywords);
  return PyTuple_CheckExact(tuple) &&
         call_of(callee, &PyTuple_GET_ITEM(tuple, 0), static_cast<int>(PyTuple_GET_SIZE(tuple)), 3 + has_keywords) &&
         outer->continuation != Continuation::kReexecute && outer->continuation != Continuation::kClassBody;
}

bool Classifier::attribute() {
  return from_function && attribute_of(peek(1), name(cpython::kLoadAttrHasMethodBit ? oparg >> 1 : oparg), 1);
}

bool Classifier::super_attribute() {
  callee = peek(3);
  return from_function && callee == reinterpret_cast<PyObject*>(&PySuper_Type) &&
         super_attribute_of(peek(2), peek(1), name(oparg >> 2), 3);
}

bool Classifier::stored_attribute() { return from_function && stored_attribute_of(peek(1), name(oparg), false, 2); }
bool Classifier::deleted_attribute() { return from_function && stored_attribute_of(peek(1), name(oparg), true, 1); }

bool Classifier::binary_operator() {
  return from_function && attempted(operator_attempts(oparg, peek(2), peek(1)), Continuation::kOperator);
}

bool Classifier::comparison() {
  return from_function &&
         attempted(comparison_attempts(cpython::compare_operator(oparg), peek(2), peek(1)), Continuation::kComparison);
}

bool Classifier::next_of_loop() {
  return join_if(peek(1) == inner.generator.get(), Continuation::kReexecute, 1) ||
         special(1, "__next__", Continuation::kNext, 1);
}

bool Classifier::next_of_delegate() {
  const bool drives = inner.generator && cpython::driven_generator(peek(2)) == inner.generator.get();
  return join_if(drives, Continuation::kReexecute, 2) ||
         (peek(1) == Py_None && special(2, "__next__", Continuation::kSendNext, 2));
}

bool Classifier::enter() {
  // The manager on the stack was replaced by its bound __exit__ already.
  callee = peek(1);
  return join_if(from_function && PyMethod_Check(callee) && called_special(PyMethod_GET_SELF(callee), "__enter__"),
                 Continuation::kValue, 0);
}

bool Classifier::exit() {
  callee = peek(4);
  return join_if(from_function && called(unwrap_method(callee)), Continuation::kValue, 0);
}

bool Classifier::intrinsic() {
  return cpython::is_unary_positive(position.opcode, oparg) && special(1, "__pos__", Continuation::kValue, 1);
}

bool Classifier::truth() {
  PyObject* object = peek(1);
  const bool has_bool = type_attribute(Py_TYPE(object), "__bool__") != nullptr;
  return special(1, has_bool ? "__bool__" : "__len__", Continuation::kTruth, 1);
}

bool Classifier::joined() {
  using enum Continuation;
  constexpr bool native = false;
  switch (position.opcode) {
#define ALT_OPCODE(NAME, EFFECT, OPERANDS, CONTINUATION, MEANING) \
  case NAME:                                                      \
    return CONTINUATION;
#include "cpython/opcodes.def"
#undef ALT_OPCODE
    default:
      return false;
  }
}

void Classifier::classify() {
  if (inner.continuation == Continuation::kCannot) {
    cannot(inner.cannot);
    return;
  }
  if (joined() && cpython::can_throw_at(code, outer->current)) return;
  std::string why = "native code lies between " + instruction();
  if (callee != nullptr)
    why += std::string(" of ") + (*native_name(callee) ? native_name(callee) : text_of(callee).c_str());
  cannot(why + " and the frame that it led to");
}

}  // namespace

void classify_continuation(const Position& position, const FrameState& inner, FrameState* outer) {
  Classifier{position, inner, outer}.classify();
}

const char* continuation_name(Continuation continuation) {
  static constexpr const char* kNames[] = {
#define ALT_CONTINUATION(kind, meaning) #kind,
#include "interpreter/continuations.def"
#undef ALT_CONTINUATION
  };
  return kNames[static_cast<size_t>(continuation)] + 1;
}

const char* continuation_meaning(Continuation continuation) {
  static constexpr const char* kMeanings[] = {
#define ALT_CONTINUATION(kind, meaning) meaning,
#include "interpreter/continuations.def"
#undef ALT_CONTINUATION
  };
  return kMeanings[static_cast<size_t>(continuation)];
}

}  // namespace alternator
