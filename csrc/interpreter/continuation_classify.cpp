// Selects the continuation: the waiting instruction's operands determine whether its result follows from the inner
// frame's.
#include "interpreter/call_continuation.h"
#include "interpreter/special_methods.h"

#include "cpython/objects.h"

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
  bool call(PyObject* callable, PyObject** arguments, int total, int operands);
  bool generator_call(PyObject* callable, PyObject** arguments, int total, int operands);
  bool construct(PyTypeObject* type, int operands);
  bool attribute(PyObject* owner, PyObject* name, int operands);
  bool store_attribute(PyObject* owner, PyObject* name, bool is_delete, int operands);
  bool super_attribute(PyObject* cls, PyObject* self, PyObject* name, int operands);
  bool truth(int operands);
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
  const std::string name = native_name(callable);
  PyObject* self = PyCFunction_Check(callable) && total == 0 ? PyCFunction_GET_SELF(callable)
                   : total > 0                               ? arguments[0]
                                                             : nullptr;
  if (PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable) == inner.generator.get())
    self = inner.generator.get();
  if (self != inner.generator.get() || outer->keyword_names) return false;
  if (join_if(name == "next" || name == "send" || name == "__next__", Continuation::kReexecute, operands)) return true;
  // The thrown exception has arrived: stepping the revived generator gives what throw() would have returned.
  return join_if(name == "throw", Continuation::kValue, operands);
}

bool Classifier::call(PyObject* callable, PyObject** arguments, int total, int operands) {
  if (inner.generator) return generator_call(callable, arguments, total, operands);
  callable = unwrap_partial(unwrap_method(callable));
  if (called(unwrap_method(callable)) || called_special(callable, "__call__")) {
    join(Continuation::kValue, operands);
    return true;
  }
  if (PyType_Check(callable)) return construct(reinterpret_cast<PyTypeObject*>(callable), operands);
  if (PyCFunction_Check(callable) && strcmp(native_name(callable), "__build_class__") == 0 && total >= 2) {
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

bool Classifier::attribute(PyObject* owner, PyObject* name, int operands) {
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
bool Classifier::super_attribute(PyObject* cls, PyObject* self, PyObject* name, int operands) {
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

bool Classifier::store_attribute(PyObject* owner, PyObject* name, bool is_delete, int operands) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  const bool direct =
      is_delete ? descriptor_calls(*this, descriptor, "fdel", "__delete__") || called_special(owner, "__delattr__")
                : descriptor_calls(*this, descriptor, "fset", "__set__") || called_special(owner, "__setattr__");
  return join_if(direct, Continuation::kDiscard, operands);
}

bool Classifier::truth(int operands) {
  PyObject* object = peek(1);
  const bool has_bool = type_attribute(Py_TYPE(object), "__bool__") != nullptr;
  return join_if(called_special(object, has_bool ? "__bool__" : "__len__"), Continuation::kTruth, operands);
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
#define ALT_OPCODE(NAME, EFFECT, MEANING) \
  case NAME:                              \
    return #NAME " (" MEANING ")";
#include "cpython/opcodes.def"
#undef ALT_OPCODE
    default:  // not in an instruction: entered with an exception to raise
      return "throw() into a suspended frame";
  }
}

void Classifier::classify() {
  if (inner.continuation == Continuation::kCannot) {
    cannot(inner.cannot);
    return;
  }
  PyCodeObject* code = cpython::code_of(position.frame);
  const int oparg = position.oparg;
  auto name = [&](int index) { return PyTuple_GET_ITEM(code->co_names, index); };
  const bool from_function = !inner.generator;
  bool joined = false;
  PyObject* native = nullptr;
  switch (position.opcode) {
    case CALL: {
      const CallOperands operands(position.sp, oparg);
      native = operands.callable;
      joined = call(operands.callable, operands.arguments, operands.total, oparg + 2);
      break;
    }
    case CALL_KW: {
      outer->keyword_names = Ref::share(peek(1));
      const CallOperands operands(position.sp - 1, oparg);
      native = operands.callable;
      joined = call(operands.callable, operands.arguments, operands.total, oparg + 3);
      break;
    }
    case CALL_FUNCTION_EX: {
      const int operands = 3 + (oparg & 1);
      native = peek(2 + (oparg & 1) + (cpython::kCallableFirst ? 1 : 0));
      PyObject* tuple = peek(1 + (oparg & 1));
      joined = PyTuple_CheckExact(tuple) &&
               call(native, &PyTuple_GET_ITEM(tuple, 0), static_cast<int>(PyTuple_GET_SIZE(tuple)), operands) &&
               outer->continuation != Continuation::kReexecute && outer->continuation != Continuation::kClassBody;
      break;
    }
    case LOAD_ATTR:
      joined = from_function && attribute(peek(1), name(cpython::kLoadAttrHasMethodBit ? oparg >> 1 : oparg), 1);
      break;
    case LOAD_SUPER_ATTR:
      native = peek(3);
      joined = from_function && native == reinterpret_cast<PyObject*>(&PySuper_Type) &&
               super_attribute(peek(2), peek(1), name(oparg >> 2), 3);
      break;
    case STORE_ATTR:
      joined = from_function && store_attribute(peek(1), name(oparg), false, 2);
      break;
    case DELETE_ATTR:
      joined = from_function && store_attribute(peek(1), name(oparg), true, 1);
      break;
    case BINARY_SUBSCR:
      joined = from_function && (called_special(peek(2), "__getitem__") || called_special(peek(2), "__missing__"));
      join_if(joined, Continuation::kValue, 2);
      break;
    case STORE_SUBSCR:
      joined = join_if(from_function && called_special(peek(2), "__setitem__"), Continuation::kDiscard, 3);
      break;
    case BINARY_SLICE:
      joined = join_if(from_function && called_special(peek(3), "__getitem__"), Continuation::kValue, 3);
      break;
    case STORE_SLICE:
      joined = join_if(from_function && called_special(peek(3), "__setitem__"), Continuation::kDiscard, 4);
      break;
    case DELETE_SUBSCR:
      joined = join_if(from_function && called_special(peek(2), "__delitem__"), Continuation::kDiscard, 2);
      break;
    case UNARY_NEGATIVE:
      joined = join_if(from_function && called_special(peek(1), "__neg__"), Continuation::kValue, 1);
      break;
    case UNARY_INVERT:
      joined = join_if(from_function && called_special(peek(1), "__invert__"), Continuation::kValue, 1);
      break;
    case BINARY_OP:
      joined = from_function && attempted(operator_attempts(oparg, peek(2), peek(1)), Continuation::kOperator);
      break;
    case COMPARE_OP:
      joined = from_function && attempted(comparison_attempts(cpython::compare_operator(oparg), peek(2), peek(1)),
                                          Continuation::kComparison);
      break;
    case CONTAINS_OP:
      joined = join_if(from_function && called_special(peek(1), "__contains__"), Continuation::kContains, 2);
      break;
    case GET_ITER:
    case GET_YIELD_FROM_ITER:
      joined = join_if(from_function && called_special(peek(1), "__iter__"), Continuation::kIterator, 1);
      break;
    case FOR_ITER:
      joined = join_if(peek(1) == inner.generator.get(), Continuation::kReexecute, 1) ||
               join_if(from_function && called_special(peek(1), "__next__"), Continuation::kNext, 1);
      break;
    case SEND:
      joined = join_if(inner.generator && cpython::driven_generator(peek(2)) == inner.generator.get(),
                       Continuation::kReexecute, 2) ||
               join_if(from_function && called_special(peek(2), "__next__") && peek(1) == Py_None,
                       Continuation::kSendNext, 2);
      break;
    case BEFORE_WITH:
      // The manager on the stack was replaced by its bound __exit__ already.
      native = peek(1);
      joined =
          join_if(from_function && PyMethod_Check(native) && called_special(PyMethod_GET_SELF(native), "__enter__"),
                  Continuation::kValue, 0);
      break;
    case WITH_EXCEPT_START:
      native = peek(4);
      joined = join_if(from_function && called(unwrap_method(native)), Continuation::kValue, 0);
      break;
    case UNARY_NOT:
      joined = from_function && truth(1);
      break;
    default:
      if (cpython::is_truth_jump(position.opcode)) {
        joined = from_function && truth(1);
      } else if (cpython::is_load_method(position.opcode)) {
        joined = from_function && attribute(peek(1), name(oparg), 1);
      } else if (cpython::is_unary_positive(position.opcode, oparg)) {
        joined = join_if(from_function && called_special(peek(1), "__pos__"), Continuation::kValue, 1);
      }
      break;
  }
  if (joined && cpython::can_throw_at(code, outer->current)) return;
  std::string why = "native code lies between " + instruction();
  if (native != nullptr)
    why += std::string(" of ") + (*native_name(native) ? native_name(native) : text_of(native).c_str());
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
