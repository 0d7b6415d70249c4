#include "interpreter/special_methods.h"

#include "cpython/operations.h"
#include "interpreter/continuation_calls.h"

namespace alternator {

PyObject* type_attribute(PyTypeObject* type, const char* name) {
  const SavedError raised;  // _PyType_Lookup would take an error that is already set for its own, and clear it
  Ref key = Ref::steal(PyUnicode_InternFromString(name));
  return key ? _PyType_Lookup(type, key.get()) : nullptr;
}

struct OperatorRow {
  const char *symbol, *method, *reflected, *in_place;
};
static constexpr OperatorRow kOperators[] = {
#define ALT_OPERATOR(symbol, method, reflected, in_place) {symbol, #method, #reflected, #in_place},
#include "interpreter/special_methods.def"
#undef ALT_OPERATOR
};
static constexpr int kOperatorCount = std::size(kOperators);
static_assert(kOperatorCount == NB_INPLACE_ADD);

static constexpr const char* kComparisons[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
static constexpr const char* kSymbols[] = {"<", "<=", "==", "!=", ">", ">="};
static constexpr int kSwapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};

static void add_attempt(std::vector<Attempt>* attempts, const char* name, PyObject* self, PyObject* argument) {
  if (PyObject* method = type_attribute(Py_TYPE(self), name)) attempts->push_back({method, self, argument});
}

std::vector<Attempt> operator_attempts(int oparg, PyObject* left, PyObject* right) {
  std::vector<Attempt> attempts;
  const bool in_place = oparg >= kOperatorCount;
  const OperatorRow& row = kOperators[oparg % kOperatorCount];
  if (in_place) add_attempt(&attempts, row.in_place, left, right);
  const bool same_type = Py_TYPE(left) == Py_TYPE(right);
  // A subclass that overrides the reflected method is tried first.
  const bool right_first =
      !same_type && PyType_IsSubtype(Py_TYPE(right), Py_TYPE(left)) &&
      type_attribute(Py_TYPE(right), row.reflected) != nullptr &&
      type_attribute(Py_TYPE(right), row.reflected) != type_attribute(Py_TYPE(left), row.reflected);
  if (right_first) add_attempt(&attempts, row.reflected, right, left);
  add_attempt(&attempts, row.method, left, right);
  if (!right_first && !same_type) add_attempt(&attempts, row.reflected, right, left);
  return attempts;
}

std::vector<Attempt> comparison_attempts(int comparison, PyObject* left, PyObject* right) {
  std::vector<Attempt> attempts;
  const bool right_first = Py_TYPE(left) != Py_TYPE(right) && PyType_IsSubtype(Py_TYPE(right), Py_TYPE(left));
  if (right_first) add_attempt(&attempts, kComparisons[kSwapped[comparison]], right, left);
  add_attempt(&attempts, kComparisons[comparison], left, right);
  if (!right_first) add_attempt(&attempts, kComparisons[kSwapped[comparison]], right, left);
  return attempts;
}

// Null without an error: all returned NotImplemented.
static Ref try_after(const std::vector<Attempt>& attempts, int tried) {
  for (size_t i = static_cast<size_t>(tried) + 1; i < attempts.size(); i++) {
    PyObject* arguments[] = {nullptr, attempts[i].self, attempts[i].argument};
    Ref result = call_in_continuation(attempts[i].method, arguments + 1, 2, {});
    if (!result || result.get() != Py_NotImplemented) return result;
  }
  return {};
}

Ref rest_of_operator(int oparg, PyObject* left, PyObject* right, int asked) {
  Ref result = try_after(operator_attempts(oparg, left, right), asked);
  if (!result && !PyErr_Occurred()) {
    const OperatorRow& row = kOperators[oparg % kOperatorCount];
    const bool in_place = oparg >= kOperatorCount;
    const bool power = oparg % kOperatorCount == NB_POWER;
    PyErr_Format(PyExc_TypeError, "unsupported operand type(s) for %.100s%s: '%.100s' and '%.100s'",
                 in_place && power ? "**" : row.symbol, in_place ? "=" : "", Py_TYPE(left)->tp_name,
                 Py_TYPE(right)->tp_name);
  }
  return result;
}

Ref rest_of_comparison(int comparison, PyObject* left, PyObject* right, int asked) {
  Ref result = try_after(comparison_attempts(comparison, left, right), asked);
  if (result || PyErr_Occurred()) return result;
  if (comparison == Py_EQ) return Ref::share(left == right ? Py_True : Py_False);
  if (comparison == Py_NE) return Ref::share(left != right ? Py_True : Py_False);
  PyErr_Format(PyExc_TypeError, "'%s' not supported between instances of '%.100s' and '%.100s'", kSymbols[comparison],
               Py_TYPE(left)->tp_name, Py_TYPE(right)->tp_name);
  return {};
}

}  // namespace alternator
