#include "trace/soundness/address_identity.h"

#include "cpython/decimal_layout.h"
#include "fake/python_tensor.h"
#include "lift/lifting/plain_origins.h"
#include "lift/sources/addresses.h"
#include "lift/sources/decimal_values.h"
#include "trace/core/refuse_value.h"
#include "trace/core/tracer.h"

#include <cmath>

namespace alternator::trace {

thread_local bool LookingUp::now = false;

PyTypeObject identity_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

static thread_local size_t made = 0;

size_t identities_made() { return made; }
void forget_identities() {
  made = 0;
  lift::forget_addresses();
}
void note_unbacked_symbol() { made++; }

Ref make_identity(Py_ssize_t number) {
  Ref value = checked(PyLong_FromSsize_t(number));
  Ref text = checked(PyTuple_Pack(1, value.get()));
  made++;
  lift::note_address(number);
  return checked(PyLong_Type.tp_new(&identity_type, text.get(), nullptr));
}

// --- the type -------------------------------------------------------------------------------------------------

static PyObject* refuse_identity() { return refuse(report::Reason::object_id, "an object's id() or hash"); }

static bool is_unguarded(PyObject* identity) {
  Tracer* tracer = Tracer::current();
  return tracer == nullptr || tracer->identities->unguarded.count(identity) != 0;
}

// Guards the identity of a plain value. False: impossible.
static bool guard_now(PyObject* identity) {
  Tracer* tracer = Tracer::current();
  if (tracer == nullptr || tracer->result.stopped) return false;
  auto found = tracer->identities->unguarded.find(identity);
  if (found == tracer->identities->unguarded.end()) return true;
  if (!tracer->lifter.origins->guard_text_identity(found->second)) return false;
  tracer->identities->unguarded.erase(found);
  return true;
}

// The address itself is needed: guards the object's identity. False: the object was created in this trace, or the value
// is a hash and not an address.
static bool guard_address(PyObject* identity) {
  Tracer* tracer = Tracer::current();
  if (tracer == nullptr || tracer->result.stopped) return false;
  auto found = tracer->identities->guarded.find(identity);
  lift::Known* known = found != tracer->identities->guarded.end() ? tracer->lifter.known(found->second) : nullptr;
  if (known == nullptr || known->original.get() != found->second) return false;
  if (known->source->access != lift::Access::kConstant)
    tracer->tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(known->original)});
  return true;
}

// No object lies below this address, and no hash of an address (address / 16) is below a sixteenth of it.
static constexpr long long kLowestAddress = 4096;

// A scalar that could be an address stored in an earlier call: it stays the same when the object is another one.
static bool may_be_address(PyObject* object) {
  if (PyFloat_Check(object)) return std::fabs(PyFloat_AS_DOUBLE(object)) >= kLowestAddress;
  if (!PyLong_Check(object)) return false;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow != 0 || number >= kLowestAddress || number <= -kLowestAddress;
}

static PyObject* compare_identities(PyObject* left, PyObject* right, int operation) {
  if (!PyLong_Check(right) && !PyFloat_Check(right)) Py_RETURN_NOTIMPLEMENTED;
  if (operation != Py_EQ && operation != Py_NE) return refuse_identity();
  if (!guard_now(left) || !guard_now(right)) return refuse_identity();
  if (!is_identity(left)) return refuse_identity();
  if (!is_identity(right) && may_be_address(right) && !(PyLong_CheckExact(right) && guard_address(left)))
    return refuse_identity();
  return PyLong_Type.tp_richcompare(left, right, operation);
}

static Py_hash_t hash_identity(PyObject* identity) {
  if (is_unguarded(identity)) {
    Tracer* tracer = Tracer::current();
    if (tracer == nullptr) return refuse_identity(), -1;
    // A lookup in a container that holds only identities of non-plain objects finds nothing, whichever object it is.
    if (!LookingUp::now) tracer->identities->stores_plain = true;
    if (tracer->identities->stores_plain && !guard_now(identity)) return refuse_identity(), -1;
  }
  return PyLong_Type.tp_hash(identity);
}

int init_identity() {
  static PyNumberMethods numbers;
  auto one = [](PyObject*) { return refuse_identity(); };
  auto two = [](PyObject*, PyObject*) { return refuse_identity(); };
  auto three = [](PyObject*, PyObject*, PyObject*) { return refuse_identity(); };
  numbers.nb_add = numbers.nb_subtract = numbers.nb_multiply = numbers.nb_remainder = numbers.nb_divmod = two;
  numbers.nb_lshift = numbers.nb_rshift = numbers.nb_and = numbers.nb_xor = numbers.nb_or = two;
  numbers.nb_floor_divide = numbers.nb_true_divide = two;
  numbers.nb_power = three;
  numbers.nb_negative = numbers.nb_positive = numbers.nb_absolute = numbers.nb_invert = one;
  numbers.nb_int = numbers.nb_float = numbers.nb_index = one;
  identity_type.tp_name = "int";
  identity_type.tp_base = &PyLong_Type;
  identity_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  identity_type.tp_as_number = &numbers;
  identity_type.tp_hash = hash_identity;
  identity_type.tp_richcompare = compare_identities;
  identity_type.tp_repr = one;
  identity_type.tp_str = one;
  return PyType_Ready(&identity_type);
}

// --- hashes ---------------------------------------------------------------------------------------------------

HashKind hash_kind(const lift::Lifter& lifter, Borrowed value, int depth) {
  PyTypeObject* type = value.type();
  hashfunc hash = type->tp_hash;
  if (is_identity(value)) return HashKind::kAddress;
  if (lift::is_nan(value.get())) return HashKind::kNan;
  auto all = [&](auto next) {
    HashKind kind = depth > 20 ? HashKind::kAddress : HashKind::kValue;
    while (Borrowed element = depth > 20 ? Borrowed() : next()) {
      kind = std::max(kind, hash_kind(lifter, element, depth + 1));
    }
    return kind;
  };
  if (hash == PyTuple_Type.tp_hash) {
    return all([&, i = Py_ssize_t(0)]() mutable -> Borrowed {
      return i < PyTuple_GET_SIZE(value.get()) ? PyTuple_GET_ITEM(value.get(), i++) : nullptr;
    });
  }
  if (hash == PyFrozenSet_Type.tp_hash) {
    return all([&, position = Py_ssize_t(0)]() mutable -> Borrowed {
      PyObject* element = nullptr;
      Py_hash_t ignored;
      return _PySet_NextEntry(value.get(), &position, &element, &ignored) != 0 ? element : nullptr;
    });
  }
  for (PyTypeObject* by_value :
       {&PyUnicode_Type, &PyLong_Type, &PyFloat_Type, &PyBytes_Type, &PyComplex_Type, &PyRange_Type}) {
    if (hash == by_value->tp_hash) return HashKind::kValue;
  }
  if (const lift::DecimalTypes* decimals = lift::decimal_types();
      decimals != nullptr && hash == decimals->decimal->tp_hash) {
    return cpython::is_decimal_nan(value.get()) ? HashKind::kNan : HashKind::kValue;
  }
  if (fake::is_tensor_object(value.get())) return HashKind::kAddress;
  // A class, a module or a builtin is guarded by identity.
  const lift::Known* known = lifter.known(value);
  if (known != nullptr && known->source != nullptr && known->source->access == lift::Access::kConstant &&
      hash == PyBaseObject_Type.tp_hash) {
    return HashKind::kValue;
  }
  if (lift::is_plain(value.get()) && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return HashKind::kValue;
  // An enum member, or an instance of a class with a __hash__ in Python, which the slot calls.
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) {
    Borrowed own = _PyType_Lookup(type, checked(PyUnicode_InternFromString("__hash__")).get());
    if (own && PyFunction_Check(own.get())) return HashKind::kPython;
  }
  return HashKind::kAddress;
}

bool iterates_by_address(const lift::Lifter& lifter, Borrowed object) {
  if (!PyAnySet_Check(object.get()) || PySet_GET_SIZE(object.get()) < 2) return false;
  const lift::Known* known = lifter.known(object);
  PyObject* element = nullptr;
  Py_hash_t hash;
  Py_ssize_t position = 0;
  if (known != nullptr && known->source != nullptr) {
    if (known->shadow == nullptr) return false;  // a pre-existing frozenset
    PyObject* before = known->shadow->snapshot.get();
    Py_ssize_t at = 0;
    bool same = PySet_GET_SIZE(object.get()) == PyList_GET_SIZE(before);
    while (same && _PySet_NextEntry(object.get(), &position, &element, &hash) != 0)
      same = element == PyList_GET_ITEM(before, at++);
    if (same) return false;
  }
  for (position = 0; _PySet_NextEntry(object.get(), &position, &element, &hash) != 0;) {
    const HashKind kind = hash_kind(lifter, element);
    if (kind >= HashKind::kAddress || (kind == HashKind::kPython && made > 0)) return true;
  }
  return false;
}

// --- where an identity is looked up or hidden -------------------------------------------------------------------

bool may_hold_address(Borrowed container) {
  PyObject* c = container.get();
  auto is = [](PyObject* element) { return !is_identity(element) && may_be_address(element); };
  PyObject *key = nullptr, *value = nullptr;
  Py_hash_t hash;
  if (PyDict_Check(c)) {
    for (Py_ssize_t position = 0; PyDict_Next(c, &position, &key, &value) != 0;) {
      if (is(key)) return true;
    }
  } else if (PyAnySet_Check(c)) {
    for (Py_ssize_t position = 0; _PySet_NextEntry(c, &position, &key, &hash) != 0;) {
      if (is(key)) return true;
    }
  } else if (PyList_Check(c) || PyTuple_Check(c)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(c); i++) {
      if (is(PySequence_Fast_GET_ITEM(c, i))) return true;
    }
  }
  return false;
}

bool holds_identity(Borrowed value, int depth) {
  PyObject* v = value.get();
  if (is_identity(value) || is_deferred_random(value) || is_deferred_string(value)) return true;
  if (made == 0) return false;
  if (PyList_Check(v) || PyTuple_Check(v)) {
    if (depth > 20) return true;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) {
      if (holds_identity(PySequence_Fast_GET_ITEM(v, i), depth + 1)) return true;
    }
  } else if (PyDict_Check(v)) {
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(v, &position, &key, &item) != 0;) {
      if (depth > 20 || holds_identity(key, depth + 1) || holds_identity(item, depth + 1)) return true;
    }
  }
  return false;
}

}  // namespace alternator::trace
