// The hash tables of sets and frozensets.
//
// Follows the logic of CPython's setobject.c.
// Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved. See LICENSES/PSF-2.0.txt.
#include "cpython/version.h"

#include "cpython/set_tables.h"

namespace alternator::cpython {

uint64_t set_layout(PyObject* set) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  uint64_t digest = 0xcbf29ce484222325u;
  auto mix = [&](uint64_t number) { digest = (digest ^ number) * 0x100000001b3u; };
  mix(static_cast<uint64_t>(s->mask));
  mix(static_cast<uint64_t>(s->finger));
  for (Py_ssize_t i = 0; i <= s->mask; i++) {
    const PyObject* key = s->table[i].key;
    mix(key == nullptr ? 0 : key == _PySet_Dummy ? 1 : 2);
  }
  return digest;
}

size_t set_table_size(PyObject* set) { return static_cast<size_t>(reinterpret_cast<PySetObject*>(set)->mask) + 1; }

// As set_table_resize() does.
bool resize_empty_set(PyObject* set, size_t size) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  if (set_table_size(set) == size) return true;
  auto* table = static_cast<setentry*>(PyMem_Calloc(size, sizeof(setentry)));
  if (table == nullptr) return false;
  s->table = table;
  s->mask = static_cast<Py_ssize_t>(size) - 1;
  return true;
}

bool copy_set_table(PyObject* from, PyObject* to, const std::function<PyObject*(PyObject*)>& replace) {
  auto* source = reinterpret_cast<PySetObject*>(from);
  auto* target = reinterpret_cast<PySetObject*>(to);
  const size_t size = set_table_size(from);
  if (!resize_empty_set(to, size)) return false;
  for (size_t i = 0; i < size; i++) {
    setentry entry = source->table[i];
    if (entry.key != nullptr && entry.key != _PySet_Dummy) {
      if (replace) entry.key = replace(entry.key);
      Py_INCREF(entry.key);
    }
    target->table[i] = entry;
  }
  target->fill = source->fill;
  target->used = source->used;
  target->finger = source->finger;
  return true;
}

void exchange_elements(PyObject* set, PyTypeObject* stand_in, PyObject* (*stands_for)(PyObject*)) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  for (Py_ssize_t i = 0; i <= s->mask; i++) {
    PyObject* old = s->table[i].key;
    if (old == nullptr || !Py_IS_TYPE(old, stand_in)) continue;
    s->table[i].key = Py_NewRef(stands_for(old));
    Py_DECREF(old);
  }
}

namespace {

constexpr size_t kLinearProbes = 9;
constexpr size_t kPerturbShift = 5;

// Calls visit(slot) for the slots of the probe sequence of this hash, in order, until it returns false.
template <class Visit>
void probe(size_t mask, Py_hash_t hash, Visit&& visit) {
  auto perturb = static_cast<size_t>(hash);
  size_t start = perturb & mask;
  while (true) {
    const size_t end = start + kLinearProbes <= mask ? start + kLinearProbes : start;
    for (size_t place = start; place <= end; place++) {
      if (!visit(place)) return;
    }
    perturb >>= kPerturbShift;
    start = (start * 5 + 1 + perturb) & mask;
  }
}

}  // namespace

// An element that occupies an earlier slot of another one's probe sequence was inserted before it. These dependencies
// have no cycle, since the table was filled in some order.
std::optional<std::vector<PyObject*>> set_filling_order(PyObject* set) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  const auto mask = static_cast<size_t>(s->mask);
  std::vector<PyObject*> order;
  std::vector<char> done(mask + 1);
  std::vector<size_t> waiting;
  for (size_t first = 0; first <= mask; first++) {
    waiting.push_back(first);
    while (!waiting.empty()) {
      const size_t here = waiting.back();
      PyObject* key = s->table[here].key;
      bool ready = true;
      bool gap = false;
      if (!done[here] && key != nullptr && key != _PySet_Dummy) {
        probe(mask, s->table[here].hash, [&](size_t place) {
          if (place == here) return false;
          gap = s->table[place].key == nullptr || s->table[place].key == _PySet_Dummy;
          if (gap) return false;
          if (done[place]) return true;
          waiting.push_back(place);
          return ready = false;
        });
        if (gap || waiting.size() > mask + 1) return std::nullopt;
        if (!ready) continue;
        order.push_back(key);
      }
      done[here] = 1;
      waiting.pop_back();
    }
  }
  return order;
}

}  // namespace alternator::cpython
