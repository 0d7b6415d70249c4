#include "cpython/version.h"

#include "cpython/dict_tables.h"
#include "cpython/objects.h"

#include "py/error.h"

#include <internal/pycore_dict.h>
#include <internal/pycore_object.h>

#include <cstddef>

namespace alternator::cpython {

namespace {

// As in Objects/odictobject.c, which does not export it; check_ordered_dict() verifies the layout.
struct OrderedNode {
  PyObject* key;
  Py_hash_t hash;
  OrderedNode *next, *previous;
};

struct OrderedDict {
  PyDictObject dict;
  OrderedNode *first, *last;
  OrderedNode** fast_nodes;
  Py_ssize_t fast_nodes_size;
  void* resize_sentinel;
  size_t state;
  PyObject *instance_dict, *weak_references;
};

}  // namespace

bool next_ordered_key(PyObject* ordered_dict, void** position, PyObject** key) {
  auto* node = static_cast<OrderedNode*>(*position);
  node = node == nullptr ? reinterpret_cast<OrderedDict*>(ordered_dict)->first : node->next;
  if (node == nullptr) return false;
  *position = node;
  *key = node->key;
  return true;
}

int check_ordered_dict() {
  return guarded(-1, [] {
    bool known = PyODict_Type.tp_basicsize == sizeof(OrderedDict) &&
                 PyODict_Type.tp_dictoffset == static_cast<Py_ssize_t>(offsetof(OrderedDict, instance_dict)) &&
                 PyODict_Type.tp_weaklistoffset == static_cast<Py_ssize_t>(offsetof(OrderedDict, weak_references));
    if (known) {
      Ref dict = checked(PyODict_New());
      Ref names[3];
      for (int i = 0; i < 3; i++) {
        names[i] = checked(PyLong_FromLong(i));
        check_status(PyODict_SetItem(dict.get(), names[i].get(), Py_None));
      }
      checked(PyObject_CallMethod(dict.get(), "move_to_end", "O", names[0].get())).reset();
      void* position = nullptr;
      PyObject* key = nullptr;
      for (int i : {1, 2, 0}) known = known && next_ordered_key(dict.get(), &position, &key) && key == names[i].get();
      known = known && !next_ordered_key(dict.get(), &position, &key);
    }
    ALT_CHECK(known, "this CPython lays out OrderedDict differently");
    return 0;
  });
}

Py_hash_t ordered_hash(void* position) { return static_cast<OrderedNode*>(position)->hash; }

void exchange_keys(PyObject* dict, PyTypeObject* stand_in, PyObject* (*stands_for)(PyObject*)) {
  auto exchange = [&](PyObject** place) {
    PyObject* old = *place;
    if (old == nullptr || !Py_IS_TYPE(old, stand_in)) return;
    *place = Py_NewRef(stands_for(old));
    Py_DECREF(old);
  };
  if (PyODict_Check(dict)) {
    for (OrderedNode* node = reinterpret_cast<OrderedDict*>(dict)->first; node != nullptr; node = node->next)
      exchange(&node->key);
  }
  PyDictKeysObject* keys = reinterpret_cast<PyDictObject*>(dict)->ma_keys;
  if (keys->dk_kind != DICT_KEYS_GENERAL) return;  // str keys only
  for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) exchange(&DK_ENTRIES(keys)[i].me_key);
  // The replaced key held no references to other objects; the new one may.
  if (!PyObject_GC_IsTracked(dict)) PyObject_GC_Track(dict);
}

}  // namespace alternator::cpython
