#include "cpython/decimal_layout.h"

#include "py/error.h"

#include <cstring>
#include <utility>

namespace alternator::cpython {

namespace {

// As in Modules/_decimal/_decimal.c and libmpdec's mpdecimal.h.
struct Decimal {
  PyObject_HEAD Py_hash_t hash;
  uint8_t flags;
  Py_ssize_t exponent, digits, length, allocated;
  size_t* words;
  size_t own_words[4];
};
// Sign, infinity and the two kinds of NaN; the remaining flags say who owns the coefficient's memory.
constexpr uint8_t kNegative = 1, kNan = 4, kSignallingNan = 8, kValueFlags = 15;

// The leading fields of a context; the rest is read through its attributes.
struct Context {
  PyObject_HEAD Py_ssize_t precision, largest, smallest;
  uint32_t traps, flags, new_trap;
  int rounding, clamp;
};
constexpr uint32_t kOverflow = 0x800, kRounded = 0x1000;

const Decimal& layout_of(PyObject* object) { return *reinterpret_cast<Decimal*>(object); }
Context& context_of(PyObject* object) { return *reinterpret_cast<Context*>(object); }

Ref probe(PyTypeObject* decimal, const char* text) {
  return checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(decimal), "s", text));
}

bool has_known_numbers(PyTypeObject* decimal) {
  if (decimal->tp_basicsize != sizeof(Decimal) || decimal->tp_itemsize != 0 || decimal->tp_dictoffset != 0)
    return false;
  Ref one = probe(decimal, "-12345E+6"), other = probe(decimal, "1234567890123456789012345E-7");
  Ref nan = probe(decimal, "NaN");
  const Decimal &small = layout_of(one.get()), &large = layout_of(other.get());
  return (small.flags & kValueFlags) == kNegative && small.exponent == 6 && small.digits == 5 && small.length == 1 &&
         small.words[0] == 12345 && (large.flags & kValueFlags) == 0 && large.exponent == -7 && large.digits == 25 &&
         large.length == 2 && (layout_of(nan.get()).flags & kValueFlags) == kNan;
}

bool has_known_contexts(PyTypeObject* type) {
  if (type->tp_basicsize < static_cast<Py_ssize_t>(sizeof(Context)) || type->tp_dictoffset != 0) return false;
  // prec, rounding, Emin, Emax, capitals, clamp, flags, traps
  Ref made =
      checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(type), "iOiiOi[][]", 7, Py_None, -9, 11, Py_None, 1));
  for (const auto& [name, signal] : {std::pair("flags", "Rounded"), std::pair("traps", "Overflow")}) {
    Ref raised = checked(PyObject_GetAttrString(made.get(), name)), all = checked(PySequence_Tuple(raised.get()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); i++) {
      PyObject* one = PyTuple_GET_ITEM(all.get(), i);
      Ref word = checked(PyObject_GetAttrString(one, "__name__"));
      if (PyUnicode_CompareWithASCIIString(word.get(), signal) == 0)
        check_status(PyObject_SetItem(raised.get(), one, Py_True));
    }
  }
  const Context& context = context_of(made.get());
  return context.precision == 7 && context.largest == 11 && context.smallest == -9 && context.flags == kRounded &&
         context.traps == kOverflow && context.clamp == 1;
}

}  // namespace

bool has_known_decimals(PyTypeObject* decimal, PyTypeObject* context) {
  return has_known_numbers(decimal) && has_known_contexts(context);
}

bool same_decimal(PyObject* a, PyObject* b) {
  const Decimal &x = layout_of(a), &y = layout_of(b);
  return (x.flags & kValueFlags) == (y.flags & kValueFlags) && x.exponent == y.exponent && x.digits == y.digits &&
         x.length == y.length && std::memcmp(x.words, y.words, static_cast<size_t>(x.length) * sizeof(size_t)) == 0;
}

bool is_decimal_nan(PyObject* decimal) { return (layout_of(decimal).flags & (kNan | kSignallingNan)) != 0; }

Signals signals_of(PyObject* context) { return {context_of(context).flags, context_of(context).traps}; }

void set_signals(PyObject* context, Signals signals) {
  context_of(context).flags = signals.flags;
  context_of(context).traps = signals.traps;
}

}  // namespace alternator::cpython
