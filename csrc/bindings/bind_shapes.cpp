// shapes.Environment and shapes.Expression: for the translation to and from sympy, and for tests.
#include "bindings/bind_shapes.h"

#include "shapes/evaluation.h"
#include "shapes/guard_bytecode.h"
#include "shapes/python_objects.h"

namespace alternator {

namespace {

using namespace shapes;

[[noreturn]] void raise(PyObject* type, const char* message) {
  PyErr_SetString(type, message);
  throw PyError();
}

Ref wrap(Borrowed owner, Expression node) { return python_expression(owner, node); }
Expression unwrap(Borrowed owner, Borrowed object) { return expression_of(owner, object); }

Expression condition_of(Borrowed owner, Borrowed object) {
  const Expression node = unwrap(owner, object);
  if (node == nullptr || node->sort() != Sort::kBoolean) raise(PyExc_TypeError, "a condition is wanted");
  return node;
}

std::vector<Expression> unwrap_all(Borrowed owner, Borrowed sequence) {
  const Ref items = checked(PySequence_Fast(sequence.get(), "a sequence of Expressions is wanted"));
  std::vector<Expression> nodes;
  nodes.reserve(static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get())));
  for (Py_ssize_t index = 0; index < PySequence_Fast_GET_SIZE(items.get()); index++) {
    nodes.push_back(unwrap(owner, PySequence_Fast_GET_ITEM(items.get(), index)));
  }
  return nodes;
}

// Nothing: int64 cannot hold it.
std::optional<int64_t> int64_of(Borrowed object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.get(), &overflow);
  if (value == -1 && PyErr_Occurred()) throw PyError();
  return overflow == 0 ? std::optional<int64_t>(value) : std::nullopt;
}

int64_t checked_int64(Borrowed object) {
  const std::optional<int64_t> value = int64_of(object);
  if (!value) raise(PyExc_OverflowError, "the int does not fit into 64 bits");
  return *value;
}

double checked_double(Borrowed object) {
  const double value = PyFloat_AsDouble(object.get());
  if (value == -1 && PyErr_Occurred()) throw PyError();
  return value;
}

Ref string(const std::string& text) {
  return checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

// --------------------------------------------------------------------------------------------------- building
// expressions

Expression fold(std::span<const Expression> operands,
                Expression (ExpressionBuilder::*operation)(Expression, Expression), ShapeEnvironment& environment) {
  Expression result = operands[0];
  for (const Expression operand : operands.subspan(1)) result = (environment.*operation)(result, operand);
  return result;
}

void check_operands(Kind kind, std::span<const Expression> operands) {
  const bool conversion = kind >= Kind::kTruncToInt && kind <= Kind::kRoundToInt;
  Sort wanted = Sort::kInteger;
  if (kind == Kind::kAnd || kind == Kind::kOr || kind == Kind::kNot) wanted = Sort::kBoolean;
  if (kind >= Kind::kFloatAdd || conversion) wanted = Sort::kFloat;
  const bool any = kind == Kind::kAnd || kind == Kind::kOr || kind == Kind::kSum || kind == Kind::kProduct ||
                   kind == Kind::kMin || kind == Kind::kMax;
  const bool one = takes_one(kind);
  if (operands.empty() || (!any && operands.size() != (one ? 1 : 2)))
    raise(PyExc_TypeError, "wrong number of operands");
  for (const Expression operand : operands) {
    if (operand != nullptr && operand->sort() != wanted) raise(PyExc_TypeError, "an operand of the wrong sort");
  }
}

Expression build(ShapeEnvironment& environment, Kind kind, std::span<const Expression> operands) {
  check_operands(kind, operands);
  switch (kind) {
    case Kind::kSum:
      return fold(operands, &ExpressionBuilder::add, environment);
    case Kind::kProduct:
      return fold(operands, &ExpressionBuilder::multiply, environment);
    case Kind::kFloorDiv:
      return environment.floor_divide(operands[0], operands[1]);
    case Kind::kMod:
      return environment.modulo(operands[0], operands[1]);
    case Kind::kMin:
      return environment.minimum(operands);
    case Kind::kMax:
      return environment.maximum(operands);
    case Kind::kEq:
      return environment.equal(operands[0], operands[1]);
    case Kind::kNe:
      return environment.not_equal(operands[0], operands[1]);
    case Kind::kLe:
      return environment.less_equal(operands[0], operands[1]);
    case Kind::kAnd:
      return environment.all_of(operands);
    case Kind::kOr:
      return environment.any_of(operands);
    case Kind::kNot:
      return environment.negation(operands[0]);
    default:
      break;
  }
  return operands.size() == 1 ? environment.convert(kind, operands[0])
                              : environment.combine(kind, operands[0], operands[1]);
}

PyObject* environment_make(PyObject* self, PyObject* args) {
  return guarded([&]() -> Ref {
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    const char* wanted = count > 0 ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(args, 0)) : nullptr;
    if (wanted == nullptr) raise(PyExc_TypeError, "make(kind, *operands) needs the name of a kind");
    std::vector<Expression> operands;
    for (Py_ssize_t index = 1; index < count; index++) operands.push_back(unwrap(self, PyTuple_GET_ITEM(args, index)));
    const std::optional<Kind> kind = kind_named(wanted);
    if (!kind) raise(PyExc_ValueError, "no kind of expression has that name");
    return wrap(self, build(environment_of(self), *kind, operands));
  });
}

PyObject* environment_less(PyObject* self, PyObject* args) {
  return guarded([&]() -> Ref {
    PyObject* operands[2];
    if (!PyArg_ParseTuple(args, "OO:less", &operands[0], &operands[1])) return {};
    const Expression nodes[] = {unwrap(self, operands[0]), unwrap(self, operands[1])};
    check_operands(Kind::kLe, nodes);
    return wrap(self, environment_of(self).less(nodes[0], nodes[1]));
  });
}

PyObject* environment_power(PyObject* self, PyObject* args) {
  return guarded([&]() -> Ref {
    PyObject* base = nullptr;
    long long exponent = 0;
    if (!PyArg_ParseTuple(args, "OL:power", &base, &exponent)) return {};
    const Expression node = unwrap(self, base);
    check_operands(Kind::kSum, {&node, 1});
    return wrap(self, environment_of(self).power(node, exponent));
  });
}

PyObject* environment_integer(PyObject* self, PyObject* value) {
  return guarded([&]() -> Ref {
    const std::optional<int64_t> number = int64_of(value);
    return wrap(self, number ? environment_of(self).integer(*number) : nullptr);
  });
}

PyObject* environment_boolean(PyObject* self, PyObject* value) {
  return guarded([&]() -> Ref { return wrap(self, environment_of(self).boolean(truth(value).value())); });
}

PyObject* environment_real(PyObject* self, PyObject* value) {
  return guarded([&]() -> Ref { return wrap(self, environment_of(self).real(checked_double(value))); });
}

PyObject* environment_symbol(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> Ref {
    static const char* keywords[] = {"hint", "low", "high", nullptr};
    PyObject* hint = Py_None;
    PyObject* low = Py_None;
    PyObject* high = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO:symbol", const_cast<char**>(keywords), &hint, &low, &high)) {
      return {};
    }
    std::optional<int64_t> known;
    if (hint != Py_None) known = checked_int64(hint);
    Interval given;
    if (low != Py_None) given.low = checked_int64(low);
    if (high != Py_None) given.high = checked_int64(high);
    if (given.low > given.high || (known && !given.contains(*known))) {
      raise(PyExc_ValueError, "the hint is not within the bounds");
    }
    return wrap(self, environment_of(self).add_symbol(known, given));
  });
}

PyObject* environment_float_symbol(PyObject* self, PyObject* hint) {
  return guarded([&]() -> Ref {
    std::optional<double> known;
    if (hint != Py_None) known = checked_double(hint);
    return wrap(self, environment_of(self).add_float_symbol(known));
  });
}

// ------------------------------------------------------------------------------------------------------ facts and
// guards

PyObject* environment_simplify(PyObject* self, PyObject* expression) {
  return guarded([&]() -> Ref { return wrap(self, environment_of(self).simplify(unwrap(self, expression))); });
}

PyObject* environment_decide(PyObject* self, PyObject* condition) {
  return guarded([&]() -> Ref {
    const std::optional<bool> decided = environment_of(self).decide(condition_of(self, condition));
    return Ref::share(!decided ? Py_None : *decided ? Py_True : Py_False);
  });
}

PyObject* environment_assume(PyObject* self, PyObject* args) {
  return guarded([&]() -> Ref {
    PyObject* condition = nullptr;
    unsigned int tag = 0;
    if (!PyArg_ParseTuple(args, "O|I:assume", &condition, &tag)) return {};
    switch (environment_of(self).assume(condition_of(self, condition), tag)) {
      case Assumed::kKnown:
        return string("known");
      case Assumed::kRecorded:
        return string("recorded");
      case Assumed::kContradiction:
        break;
    }
    return string("contradiction");
  });
}

PyObject* environment_guards(PyObject* self, PyObject*) {
  return guarded([&]() -> Ref {
    Ref list = checked(PyList_New(0));
    for (const Guard& guard : environment_of(self).guards()) {
      const Ref condition = wrap(self, guard.condition);
      const Ref item = checked(Py_BuildValue("(OI)", condition.get(), guard.tag));
      check_status(PyList_Append(list.get(), item.get()));
    }
    return list;
  });
}

Expression integer_of(Borrowed owner, Borrowed object) {
  const Expression node = unwrap(owner, object);
  if (node == nullptr || node->sort() != Sort::kInteger) raise(PyExc_TypeError, "an integer expression is wanted");
  return node;
}

PyObject* environment_interval(PyObject* self, PyObject* expression) {
  return guarded([&]() -> Ref {
    const Interval interval = environment_of(self).facts().interval(integer_of(self, expression));
    const auto bound = [](bool exists, int64_t value) {
      return exists ? checked(PyLong_FromLongLong(value)) : Ref::share(Py_None);
    };
    const Ref low = bound(interval.has_low(), interval.low), high = bound(interval.has_high(), interval.high);
    return checked(PyTuple_Pack(2, low.get(), high.get()));
  });
}

PyObject* environment_congruence(PyObject* self, PyObject* expression) {
  return guarded([&]() -> Ref {
    const Congruence known = environment_of(self).facts().congruence(integer_of(self, expression));
    return checked(
        Py_BuildValue("(LL)", static_cast<long long>(known.modulus), static_cast<long long>(known.remainder)));
  });
}

// The registers of a call, one value for each symbol.
std::vector<Register> registers_of(const ShapeEnvironment& environment, Borrowed values) {
  const Ref items = checked(PySequence_Fast(values.get(), "a sequence of numbers is wanted"));
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get())) != environment.symbol_count()) {
    raise(PyExc_ValueError, "one value for each symbol is wanted");
  }
  std::vector<Register> registers(environment.symbol_count());
  for (size_t index = 0; index < registers.size(); index++) {
    const Borrowed item = PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(index));
    if (environment.symbol(index)->kind == Kind::kSymbol) {
      registers[index].integer = checked_int64(item);
    } else {
      registers[index].real = checked_double(item);
    }
  }
  return registers;
}

// check(conditions, values, results=()): None if a condition does not hold, else the values of the results.
PyObject* environment_check(PyObject* self, PyObject* args) {
  return guarded([&]() -> Ref {
    PyObject* conditions = nullptr;
    PyObject* values = nullptr;
    PyObject* results = nullptr;
    if (!PyArg_ParseTuple(args, "OO|O:check", &conditions, &values, &results)) return {};
    const std::vector<Expression> wanted = results != nullptr ? unwrap_all(self, results) : std::vector<Expression>();
    std::vector<Expression> all = unwrap_all(self, conditions);
    for (const Expression condition : all) {
      if (condition == nullptr || condition->sort() != Sort::kBoolean) raise(PyExc_TypeError, "a condition is wanted");
    }
    for (const Expression result : wanted) {
      if (result == nullptr) raise(PyExc_TypeError, "an Expression is wanted");
    }
    const std::vector<Register> registers = registers_of(environment_of(self), values);
    const std::optional<GuardBytecode> program = GuardBytecode::compile(all, wanted);
    if (!program) raise(PyExc_OverflowError, "the program is too large");
    std::vector<Register> found(wanted.size());
    if (!program->check(registers.data(), found.data())) return Ref::share(Py_None);
    Ref list = checked(PyList_New(0));
    for (size_t index = 0; index < found.size(); index++) {
      check_status(PyList_Append(list.get(), python_number(wanted[index]->sort(), found[index]).get()));
    }
    return list;
  });
}

PyObject* environment_new(PyTypeObject*, PyObject*, PyObject*) {
  return guarded([&]() -> Ref { return python_environment(std::make_shared<ShapeEnvironment>()); });
}

void environment_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<EnvironmentObject*>(self)->environment.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

PyCFunction with_keywords(PyObject* (*function)(PyObject*, PyObject*, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef environment_methods[] = {
    {"symbol", with_keywords(environment_symbol), METH_VARARGS | METH_KEYWORDS,
     "symbol(hint=None, low=None, high=None): a new symbol"},
    {"float_symbol", environment_float_symbol, METH_O, "float_symbol(hint): a new symbol for a float"},
    {"integer", environment_integer, METH_O, "integer(value): a constant; None if int64 cannot hold it"},
    {"boolean", environment_boolean, METH_O, "boolean(value): a constant"},
    {"real", environment_real, METH_O, "real(value): a float constant"},
    {"make", environment_make, METH_VARARGS, "make(kind, *operands): an expression, or None"},
    {"less", environment_less, METH_VARARGS, "less(a, b): a comparison of integers"},
    {"power", environment_power, METH_VARARGS, "power(base, exponent): an expression, or None"},
    {"simplify", environment_simplify, METH_O, "simplify(expression): under all that is assumed"},
    {"decide", environment_decide, METH_O, "decide(condition): True, False, or None if it depends"},
    {"assume", environment_assume, METH_VARARGS, "assume(condition, tag=0): 'known', 'recorded' or 'contradiction'"},
    {"guards", environment_guards, METH_NOARGS, "guards(): the (condition, tag) that were recorded"},
    {"interval", environment_interval, METH_O, "interval(expression): (low, high); None is no bound"},
    {"congruence", environment_congruence, METH_O, "congruence(expression): (modulus, remainder)"},
    {"check", environment_check, METH_VARARGS,
     "check(conditions, values, results=()): None if one does not hold, else the list of results"},
    {}};
PyType_Slot environment_slots[] = {{Py_tp_new, reinterpret_cast<void*>(environment_new)},
                                   {Py_tp_dealloc, reinterpret_cast<void*>(environment_dealloc)},
                                   {Py_tp_methods, environment_methods},
                                   {}};
PyType_Spec environment_spec = {"alternator.shapes.Environment", sizeof(EnvironmentObject), 0, Py_TPFLAGS_DEFAULT,
                                environment_slots};

}  // namespace

int bind_shapes(PyObject* module) {
  return guarded(-1, [&]() {
    Ref environment = checked(PyType_FromSpec(&environment_spec));
    check_status(PyModule_AddObjectRef(module, "Environment", environment.get()));
    set_python_environment_type(environment.as<PyTypeObject>());
    (void)environment.release();  // it lasts as long as the process
    return PyModule_AddObjectRef(module, "Expression", reinterpret_cast<PyObject*>(python_expression_type()));
  });
}

}  // namespace alternator
