#include "replay/known_hashes.h"

#include "cpython/dict_tables.h"
#include "cpython/objects.h"
#include "cpython/set_tables.h"
#include "lift/sources/addresses.h"
#include "lift/sources/plain.h"
#include "py/lasting.h"
#include "replay/set_order.h"
#include "replay/tensors.h"

#include <algorithm>
#include <cstring>

namespace alternator::replay {

PyTypeObject* stand_in_type() {
  static constinit Lasting<PyTypeObject*> lasting;
  PyTypeObject* type = lasting.get([] {
    static PyType_Slot slots[] = {
        {Py_tp_hash, reinterpret_cast<void*>(+[](PyObject* self) { return reinterpret_cast<StandIn*>(self)->hash; })},
        {}};
    static PyType_Spec spec = {"alternator.replay.StandIn", sizeof(StandIn), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
  if (type == nullptr) throw PyError();
  return type;
}

Ref make_stand_in(Borrowed key, Py_hash_t hash) {
  Ref made = checked(stand_in_type()->tp_alloc(stand_in_type(), 0));
  made.as<StandIn>()->hash = hash;
  made.as<StandIn>()->key = key.get();
  return made;
}

// --- while the program is written -----------------------------------------------------------------------------

// Whether the hash is the same on every run. `hash` -1: unknown, since the key is part of another one.
static bool is_stable_hash(Borrowed key, Py_hash_t hash, int depth = 0) {
  static constexpr int kDeepest = 20;
  PyObject* k = key.get();
  if (depth > kDeepest || lift::is_nan(k)) return false;
  if (lift::is_plain(k)) return true;
  if (is_tensor(key)) return false;
  hashfunc slot = key.type()->tp_hash;
  if (slot == PyTuple_Type.tp_hash) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); i++) {
      if (!is_stable_hash(PyTuple_GET_ITEM(k, i), -1, depth + 1)) return false;
    }
    return true;
  }
  if (slot == PyFrozenSet_Type.tp_hash) {
    PyObject* element;
    Py_hash_t stored;
    for (Py_ssize_t position = 0; _PySet_NextEntry(k, &position, &element, &stored) != 0;) {
      if (!is_stable_hash(element, stored, depth + 1)) return false;
    }
    return true;
  }
  if (slot == _PyWeakref_RefType.tp_hash) {
    PyObject* referent = PyWeakref_GET_OBJECT(k);
    return referent != Py_None && is_stable_hash(referent, hash, depth + 1);
  }
  Ref name = checked(PyUnicode_InternFromString("__hash__"));
  Borrowed own = _PyType_Lookup(key.type(), name.get());
  if (!own || !PyFunction_Check(own.get())) return false;
  return hash == -1 ? !lift::any_addresses() : !lift::is_address(hash);
}

// Whether hashing runs Python code, or reads an object that is filled only after it was made.
static bool needs_more(Builder& builder, Borrowed key) {
  PyObject* k = key.get();
  if (lift::is_plain(k)) return false;
  if (key.type()->tp_hash == PyTuple_Type.tp_hash) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); i++) {
      if (needs_more(builder, PyTuple_GET_ITEM(k, i))) return true;
    }
    return false;
  }
  if (key.type()->tp_hash == PyFrozenSet_Type.tp_hash) {
    if (!PyFrozenSet_CheckExact(k) && builder.world().source_of(key) == nullptr) return true;
    const std::vector<Ref> elements = set_elements(key);
    return std::ranges::any_of(elements, [&](const Ref& element) { return needs_more(builder, element); });
  }
  if (key.type()->tp_hash == _PyWeakref_RefType.tp_hash) {
    PyObject* referent = PyWeakref_GET_OBJECT(k);
    return referent != Py_None && needs_more(builder, referent);
  }
  return hash_needs_writes(builder, key);
}

void KnownHashes::add(Builder& builder, Borrowed key, Py_hash_t hash) {
  const bool has_code = needs_more(builder, key);
  if (has_code) {
    has_code_ = true;
    follow_addresses_ = follow_addresses_ || !is_stable_hash(key, hash);
  }
  hashes_.push_back(has_code ? hash : -1);
}

Ref KnownHashes::packed() const {
  return checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(hashes_.data()),
                                           static_cast<Py_ssize_t>(hashes_.size() * sizeof(Py_hash_t))));
}

// --- in a run -------------------------------------------------------------------------------------------------

static Ref stand_in_for(Borrowed packed, size_t index, Borrowed key) {
  Py_hash_t hash;
  memcpy(&hash, PyBytes_AS_STRING(packed.get()) + index * sizeof(hash), sizeof(hash));
  if (hash == -1) hash = PyObject_Hash(key.get());
  if (hash == -1) throw PyError();
  // A weak reference caches its hash.
  if (PyWeakref_CheckRef(key.get())) key.as<PyWeakReference>()->hash = hash;
  return make_stand_in(key, hash);
}

// However the filling ends, the stand-ins of the keys must not remain visible.
template <class Fill>
static void exchanging(Borrowed container, Fill&& fill) {
  auto exchange = [&] {
    auto stands_for = [](PyObject* stand_in) { return reinterpret_cast<StandIn*>(stand_in)->key; };
    (PyDict_Check(container.get()) ? cpython::exchange_keys : cpython::exchange_elements)(container.get(),
                                                                                          stand_in_type(), stands_for);
  };
  try {
    fill();
  } catch (const PyError&) {
    exchange();
    throw;
  }
  exchange();
}

void add_under_hashes(Borrowed dict, Borrowed packed, const std::vector<PyObject*>& items) {
  PyObject* d = dict.get();
  std::vector<Ref> stand_ins;
  for (size_t i = 0; i + 1 < items.size(); i += 2) stand_ins.push_back(stand_in_for(packed, i / 2, items[i]));
  exchanging(dict, [&] {
    for (size_t i = 0; i < stand_ins.size(); i++) {
      PyObject *key = stand_ins[i].get(), *value = items[2 * i + 1];
      check_status(PyODict_Check(d) ? PyODict_SetItem(d, key, value) : PyDict_SetItem(d, key, value));
    }
  });
}

void add_elements_under_hashes(Borrowed set, Borrowed packed, const std::vector<PyObject*>& elements, size_t table) {
  std::vector<Ref> stand_ins;
  std::vector<PyObject*> added;
  for (size_t i = 0; i < elements.size(); i++) {
    stand_ins.push_back(stand_in_for(packed, i, elements[i]));
    added.push_back(stand_ins.back().get());
  }
  if (PySet_Check(set.get())) return exchanging(set, [&] { fill_set(set, added.data(), added.size(), table); });
  Ref filled = checked(PySet_New(nullptr));
  exchanging(filled, [&] { fill_set(filled, added.data(), added.size(), table); });
  if (!cpython::copy_set_table(filled.get(), set.get())) PyErr_NoMemory(), throw PyError();
}

}  // namespace alternator::replay
