// The rest of an instruction, after the frame that it called has finished.
#include "cpython/attribute_error.h"
#include "interpreter/call_continuation.h"
#include "interpreter/class_body.h"
#include "interpreter/continuation_calls.h"
#include "interpreter/special_methods.h"

namespace alternator {

thread_local ContinuationCall continuation_call = nullptr;

namespace {

// Calls a builtin of the module operator, through which the tracer sees the use of a value.
Ref ask_operator(const char* name, Borrowed value) {
  Ref module = Ref::steal(PyImport_ImportModule("_operator"));
  Ref function = module ? Ref::steal(PyObject_GetAttrString(module.get(), name)) : Ref();
  PyObject* arguments[] = {nullptr, value.get()};
  return function ? call_in_continuation(function, arguments + 1, 1, {}) : Ref();
}

Tri truth_in_continuation(Borrowed value) {
  if (continuation_call == nullptr || PyBool_Check(value.get())) return truth(value);
  Ref answer = ask_operator("truth", value);
  return answer ? Tri(answer.get() == Py_True ? 1 : 0) : Tri(-1);
}

struct Deliverer {
  const FrameState& outer;
  const FrameState& inner;
  cpython::Frame* frame;
  PyObject** sp;
  cpython::CodeUnit* first = cpython::first_instruction(cpython::code_of(frame));
  int opcode = cpython::base_opcode(first[outer.current]);
  int oparg = full_argument();

  // Including the EXTENDED_ARG prefixes of the instruction.
  int full_argument() const {
    int value = cpython::argument(first[outer.current]), shift = 8;
    for (int i = outer.current - 1; i >= 0 && cpython::base_opcode(first[i]) == EXTENDED_ARG; i--, shift += 8) {
      value |= cpython::argument(first[i]) << shift;
    }
    return value;
  }
  PyObject* peek(int n) const { return sp[-n]; }
  // One past a call's last argument.
  PyObject** arguments_end() const { return opcode == CALL_KW ? sp - 1 : sp; }
  PyObject* name(int index) const { return PyTuple_GET_ITEM(cpython::code_of(frame)->co_names, index); }
  cpython::CodeUnit* after() const { return first + outer.current + 1 + cpython::caches(opcode); }
  void drop(int n) {
    for (; n > 0; n--) Py_XDECREF(*--sp);
  }
  Delivery go_on(cpython::CodeUnit* next) { return {sp, next}; }
  Delivery fail() { return {sp, nullptr}; }

  Delivery value(Ref result) {
    if (!result) return fail();
    drop(outer.operands);
    *sp++ = result.release();
    return go_on(after());
  }
  Delivery boolean(Tri value_of) {
    if (value_of.error()) return fail();
    return value(Ref::share(value_of.yes() ? Py_True : Py_False));
  }

  Delivery attribute(Ref result);
  Delivery comparison(Ref result);
  Delivery truth(Ref result);
  Delivery iterator(Ref result);
  Delivery next(Ref result);
  Delivery send_next(Ref result);
  Delivery constructed(Ref result);
  Delivery run(Ref result);
};

Delivery Deliverer::attribute(Ref result) {
  PyObject* owner = peek(1);
  const bool of_super = opcode == LOAD_SUPER_ATTR;
  const bool as_method = cpython::is_load_method(opcode) || (cpython::kLoadAttrHasMethodBit && (oparg & 1));
  if (!result && !of_super && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyObject* fallback = type_attribute(Py_TYPE(owner), "__getattr__");
    PyObject* attribute = name(cpython::kLoadAttrHasMethodBit ? oparg >> 1 : oparg);
    if (fallback != nullptr && Borrowed(fallback) != Borrowed(inner.function)) {
      PyErr_Clear();
      PyObject* arguments[] = {nullptr, owner, attribute};
      result = call_in_continuation(fallback, arguments + 1, 2, {});
    }
    if (!result) cpython::name_attribute_error(owner, attribute);
  }
  if (!result) return fail();
  drop(outer.operands);
  if (as_method && !cpython::kCallableFirst) *sp++ = nullptr;
  *sp++ = result.release();
  if (as_method && cpython::kCallableFirst) *sp++ = nullptr;
  return go_on(after());
}

Delivery Deliverer::comparison(Ref result) {
  const int operation = cpython::compare_operator(oparg);
  if (result && result.get() == Py_NotImplemented) {
    result = rest_of_comparison(operation, peek(2), peek(1), outer.attempt);
  }
  if (result && cpython::compare_to_bool(oparg)) return boolean(truth_in_continuation(result));
  return value(std::move(result));
}

// The result of __bool__ or __len__ as a truth value.
Tri truth_of_result(Borrowed result, bool is_bool) {
  if (!result) return Tri(-1);
  if (is_bool) {
    if (PyBool_Check(result.get())) return Tri(result.get() == Py_True ? 1 : 0);
    PyErr_Format(PyExc_TypeError, "__bool__ should return bool, returned %s", result.type()->tp_name);
    return Tri(-1);
  }
  const bool asks = continuation_call != nullptr && !PyLong_CheckExact(result.get());
  Ref index = asks ? ask_operator("index", result) : Ref::steal(PyNumber_Index(result.get()));
  if (!index) return Tri(-1);
  if (_PyLong_Sign(index.get()) < 0) {
    PyErr_SetString(PyExc_ValueError, "__len__() should return >= 0");
    return Tri(-1);
  }
  const Py_ssize_t length = PyNumber_AsSsize_t(index.get(), PyExc_OverflowError);
  return Tri(length < 0 ? -1 : length > 0 ? 1 : 0);
}

Delivery Deliverer::truth(Ref result) {
  const bool is_bool = Borrowed(type_attribute(Py_TYPE(peek(1)), "__bool__")) == Borrowed(inner.function);
  const Tri answer = truth_of_result(result, is_bool);
  if (answer.error()) return fail();
  if (opcode == UNARY_NOT) return boolean(Tri(answer.no() ? 1 : 0));
  const cpython::TruthJump jump = cpython::truth_jump(opcode, oparg);
  if (!jump.known) return boolean(answer);  // TO_BOOL
  const bool taken = answer.yes() == jump.wanted;
  if (!(jump.keeps_value && taken)) drop(1);
  return go_on(after() + (taken ? jump.units : 0));
}

Delivery Deliverer::iterator(Ref result) {
  if (result && !PyIter_Check(result.get())) {
    PyErr_Format(PyExc_TypeError, "iter() returned non-iterator of type '%.100s'", result.type()->tp_name);
    result.reset();
  }
  return value(std::move(result));
}

Delivery Deliverer::next(Ref result) {
  if (result) {
    *sp++ = result.release();
    return go_on(after());
  }
  if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return fail();
  PyErr_Clear();
  drop(1);
  return go_on(after() + oparg + cpython::kLoopEndUnits);
}

Delivery Deliverer::send_next(Ref result) {
  if (result) {
    drop(1);
    *sp++ = result.release();
    return go_on(after());
  }
  PyObject* returned = nullptr;
  if (_PyGen_FetchStopIterationValue(&returned) < 0) return fail();
  drop(cpython::kSendKeepsReceiver ? 1 : 2);
  *sp++ = returned;
  return go_on(after() + oparg);
}

// Calls the __init__ of an object's class. False: an error is set.
bool initialized(Borrowed object, Borrowed positional, Borrowed named) {
  Borrowed method = type_attribute(object.type(), "__init__");
  if (!method) return true;
  std::vector<PyObject*> arguments = {nullptr, object.get()};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positional.get()); i++)
    arguments.push_back(PyTuple_GET_ITEM(positional.get(), i));
  const size_t count = arguments.size() - 1;
  Ref names = named ? Ref::steal(PyDict_Keys(named.get())) : Ref();
  if (names) names = Ref::steal(PyList_AsTuple(names.get()));
  if (named && !names) return false;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); i++)
    arguments.push_back(PyDict_GetItemWithError(named.get(), PyTuple_GET_ITEM(names.get(), i)));
  const Ref held = Ref::share(method);
  Ref result = call_in_continuation(held, arguments.data() + 1, count, names);
  if (result && result.get() != Py_None) {
    PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", result.type()->tp_name);
    return false;
  }
  return static_cast<bool>(result);
}

// __new__ returned: __init__ follows if the object is of the class, with the same arguments.
Delivery Deliverer::constructed(Ref result) {
  if (!result) return fail();
  Ref type, arguments, keywords;
  if (opcode == CALL_FUNCTION_EX) {
    const int has_keywords = oparg & 1;
    type = Ref::share(peek(2 + has_keywords + (cpython::kCallableFirst ? 1 : 0)));
    arguments = Ref::share(peek(1 + has_keywords));
    if (has_keywords) keywords = Ref::share(peek(1));
  } else {
    PyObject** end = arguments_end();
    type = Ref::share(end[-oparg - (cpython::kCallableFirst ? 2 : 1)]);
    const Py_ssize_t named = outer.keyword_names ? PyTuple_GET_SIZE(outer.keyword_names.get()) : 0;
    const Py_ssize_t positional = oparg - named;
    PyObject** begin = end - oparg;
    arguments = Ref::steal(PyTuple_New(positional));
    keywords = named > 0 ? Ref::steal(PyDict_New()) : Ref();
    if (!arguments || (named > 0 && !keywords)) return fail();
    for (Py_ssize_t i = 0; i < positional; i++) PyTuple_SET_ITEM(arguments.get(), i, Py_NewRef(begin[i]));
    for (Py_ssize_t i = 0; i < named; i++) {
      PyObject* key = PyTuple_GET_ITEM(outer.keyword_names.get(), i);
      if (PyDict_SetItem(keywords.get(), key, begin[positional + i]) < 0) return fail();
    }
  }
  if (PyObject_TypeCheck(result.get(), type.as<PyTypeObject>())) {
    if (continuation_call != nullptr) {
      if (!initialized(result, arguments, keywords)) return fail();
      return value(std::move(result));
    }
    initproc init = Py_TYPE(result.get())->tp_init;
    if (init != nullptr && init(result.get(), arguments.get(), keywords.get()) < 0) return fail();
  }
  return value(std::move(result));
}

Delivery Deliverer::run(Ref result) {
  switch (outer.continuation) {
    case Continuation::kValue:
      return value(std::move(result));
    case Continuation::kDiscard:
      if (!result) return fail();
      drop(outer.operands);
      return go_on(after());
    case Continuation::kAttribute:
      return attribute(std::move(result));
    case Continuation::kOperator:
      if (result && result.get() == Py_NotImplemented) {
        result = rest_of_operator(oparg, peek(2), peek(1), outer.attempt);
      }
      return value(std::move(result));
    case Continuation::kComparison:
      return comparison(std::move(result));
    case Continuation::kTruth:
      return truth(std::move(result));
    case Continuation::kContains: {
      if (!result) return fail();
      const Tri found = truth_in_continuation(result);
      return boolean(found.error() ? found : Tri(found.yes() != (oparg != 0) ? 1 : 0));
    }
    case Continuation::kIterator:
      return iterator(std::move(result));
    case Continuation::kNext:
      return next(std::move(result));
    case Continuation::kSendNext:
      return send_next(std::move(result));
    case Continuation::kInstance:
      if (result && result.get() != Py_None) {
        PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", result.type()->tp_name);
        return fail();
      }
      return value(result ? Ref::share(inner.first_argument) : Ref());
    case Continuation::kNew:
      return constructed(std::move(result));
    case Continuation::kClassBody: {
      if (!result) return fail();
      PyObject** arguments = arguments_end() - oparg;
      return value(finish_class_body(arguments, oparg, outer.keyword_names, inner.locals_mapping, result));
    }
    case Continuation::kNone:
    case Continuation::kReexecute:
    case Continuation::kCannot:
      break;
  }
  PyErr_SetString(PyExc_SystemError, "alternator: a continuation that delivers nothing");
  return fail();
}

}  // namespace

Delivery deliver(const FrameState& outer, const FrameState& inner, cpython::Frame* frame, PyObject** sp, Ref result) {
  return Deliverer{outer, inner, frame, sp}.run(std::move(result));
}

}  // namespace alternator
