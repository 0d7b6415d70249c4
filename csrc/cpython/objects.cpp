#include "cpython/version.h"

#include "cpython/objects.h"

#include "py/error.h"
#include "py/import.h"
#include "py/lasting.h"

#include <internal/pycore_dict.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_object.h>
#include <internal/pycore_runtime.h>

#include <cstring>

namespace alternator::cpython {

// --- inline attributes --------------------------------------------------------------------------------

namespace {

bool is_managed(PyObject* object) { return (Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0; }

// The inline values in place of an instance dict; null where there are none.
PyDictValues* inline_values(PyObject* object) {
  if (!is_managed(object)) return nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  if ((Py_TYPE(object)->tp_flags & Py_TPFLAGS_INLINE_VALUES) == 0) return nullptr;
  if (_PyObject_GetManagedDict(object) != nullptr) return nullptr;
  PyDictValues* values = _PyObject_InlineValues(object);
  return values->valid ? values : nullptr;
#elif PY_VERSION_HEX >= 0x030C0000
  PyDictOrValues found = *_PyObject_DictOrValuesPointer(object);
  return _PyDictOrValues_IsValues(found) ? _PyDictOrValues_GetValues(found) : nullptr;
#else
  return *_PyObject_ValuesPointer(object);
#endif
}

// How many values are set, and their indices in insertion order.
Py_ssize_t value_count(PyDictValues* values) {
#if PY_VERSION_HEX >= 0x030D0000
  return values->size;
#else
  return reinterpret_cast<uint8_t*>(values)[-2];
#endif
}

Py_ssize_t value_index(PyDictValues* values, Py_ssize_t position) {
#if PY_VERSION_HEX >= 0x030D0000
  return get_insertion_order_array(values)[position];
#else
  return reinterpret_cast<uint8_t*>(values)[-3 - position];
#endif
}

PyDictKeysObject* shared_keys(PyObject* object) {
  return reinterpret_cast<PyHeapTypeObject*>(Py_TYPE(object))->ht_cached_keys;
}

bool same_text(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!PyUnicode_CheckExact(a) || !PyUnicode_CheckExact(b)) return false;
  if (PyUnicode_GET_LENGTH(a) != PyUnicode_GET_LENGTH(b)) return false;
  return PyUnicode_Compare(a, b) == 0;
}

}  // namespace

PyObject** instance_dict_slot(PyObject* object) {
  if (is_managed(object)) return reinterpret_cast<PyObject**>(object) - 3;
  // _PyObject_GetDictPtr() would materialize a managed dict, and only that.
  return Py_TYPE(object)->tp_dictoffset != 0 ? _PyObject_GetDictPtr(object) : nullptr;
}

PyObject* instance_dict(PyObject* object) {
  PyObject** slot = instance_dict_slot(object);
  if (slot == nullptr) return nullptr;
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
  if (is_managed(object) && _PyDictOrValues_IsValues(*_PyObject_DictOrValuesPointer(object))) return nullptr;
#endif
  return *slot;
}

PyObject* inline_attribute(PyObject* object, PyObject* name) {
  PyDictValues* values = inline_values(object);
  if (values == nullptr) return nullptr;
  PyDictKeysObject* keys = shared_keys(object);
  PyDictUnicodeEntry* entries = DK_UNICODE_ENTRIES(keys);
  for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
    if (entries[i].me_key == name) return values->values[i];
  }
  for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
    if (entries[i].me_key != nullptr && same_text(entries[i].me_key, name)) return values->values[i];
  }
  return nullptr;
}

Py_ssize_t inline_attribute_count(PyObject* object) {
  PyDictValues* values = inline_values(object);
  return values != nullptr ? value_count(values) : 0;
}

bool next_inline_attribute(PyObject* object, Py_ssize_t* position, PyObject** name, PyObject** value) {
  PyDictValues* values = inline_values(object);
  if (values == nullptr || *position >= value_count(values)) return false;
  const Py_ssize_t index = value_index(values, (*position)++);
  *name = DK_UNICODE_ENTRIES(shared_keys(object))[index].me_key;
  *value = values->values[index];
  return true;
}

bool has_str_keys_only(PyObject* dict) {
  return reinterpret_cast<PyDictObject*>(dict)->ma_keys->dk_kind != DICT_KEYS_GENERAL;
}

bool next_hashed_entry(PyObject* dict, Py_ssize_t* position, PyObject** key, PyObject** value, Py_hash_t* hash) {
  PyDictKeysObject* keys = reinterpret_cast<PyDictObject*>(dict)->ma_keys;
  PyDictKeyEntry* entries = DK_ENTRIES(keys);
  while (*position < keys->dk_nentries) {
    const PyDictKeyEntry& entry = entries[(*position)++];
    if (entry.me_value == nullptr) continue;
    *key = entry.me_key;
    *value = entry.me_value;
    *hash = entry.me_hash;
    return true;
  }
  return false;
}

PyObject* proxied(PyObject* proxy) {
  struct Layout {  // of mappingproxyobject in CPython's descrobject.c
    PyObject_HEAD PyObject* mapping;
  };
  return reinterpret_cast<Layout*>(proxy)->mapping;
}

PyObject* viewed(PyObject* object) {
  if (!PyDictKeys_Check(object) && !PyDictItems_Check(object) && !PyDictValues_Check(object)) return nullptr;
  return reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict);
}

bool is_native(PyTypeObject* type, const char* name) {
  return (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 && strcmp(type->tp_name, name) == 0;
}

PyObject* own_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* dict = PyType_GetDict(type);  // static builtin types keep theirs elsewhere
  Ref(Ref::steal(dict)).reset();          // the type keeps it alive
  return dict;
#else
  return type->tp_dict;
#endif
}

const void* native_definition(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type)) return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  if (Py_IS_TYPE(callable, &PyWrapperDescr_Type)) return reinterpret_cast<PyWrapperDescrObject*>(callable)->d_base;
  return nullptr;
}

void forget_subclass(PyTypeObject* base, PyTypeObject* type) {
  void* table = base->tp_subclasses;                 // a PyObject* up to 3.11
  auto* subclasses = static_cast<PyObject*>(table);  // {address of the class: weak reference}
  if (subclasses == nullptr || !PyDict_CheckExact(subclasses)) return;
  Ref address = Ref::steal(PyLong_FromVoidPtr(type));
  if (!address || PyDict_DelItem(subclasses, address.get()) < 0) PyErr_Clear();
}

bool has_audit_hooks() {
#if PY_VERSION_HEX >= 0x030C0000
  const bool native = _PyRuntime.audit_hooks.head != nullptr;
#else
  const bool native = _PyRuntime.audit_hook_head != nullptr;
#endif
  return native || PyInterpreterState_Get()->audit_hooks != nullptr;
}

// --- versions -------------------------------------------------------------------------------------------

uint64_t dict_version(PyObject* dict) {
  const uint64_t tag = reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#if PY_VERSION_HEX >= 0x030D0000
  return tag >> 12;  // the low bits: watchers and the count of watched changes
#elif PY_VERSION_HEX >= 0x030C0000
  return tag >> 8;  // the low bits: watchers
#else
  return tag;
#endif
}

uint32_t type_version(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030D0000
  if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) == 0) return 0;
#endif
  return type->tp_version_tag;
}

// --- functools.lru_cache ------------------------------------------------------------------------------

namespace {

// As in Modules/_functoolsmodule.c.
struct LruLink {
  PyObject_HEAD LruLink *previous, *next;
  Py_hash_t hash;
  PyObject *key, *result;
};
struct LruCache {
  LruLink root;
  void* wrapper;
  int typed;
  PyObject* cache;
};

PyTypeObject* lru_cache_type() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    Ref found = checked(PyObject_GetAttrString(import_module("_functools").get(), "_lru_cache_wrapper"));
    const bool fits =
        PyType_Check(found.get()) && found.as<PyTypeObject>()->tp_basicsize > static_cast<Py_ssize_t>(sizeof(LruCache));
    return fits ? reinterpret_cast<PyTypeObject*>(found.release()) : nullptr;
  });
}

}  // namespace

PyObject* lru_cache_dict(PyObject* object) {
  if (lru_cache_type() == nullptr || Py_TYPE(object) != lru_cache_type()) return nullptr;
  auto* self = reinterpret_cast<LruCache*>(object);
  return self->typed == 0 && self->cache != nullptr && PyDict_CheckExact(self->cache) ? self->cache : nullptr;
}

PyObject* lru_cache_result(PyObject* object, PyObject* value) {
  auto* self = reinterpret_cast<LruCache*>(object);
  // An unbounded cache keeps no linked list.
  const bool is_listed = self->root.next != nullptr && self->root.next != &self->root;
  return is_listed ? reinterpret_cast<LruLink*>(value)->result : value;
}

}  // namespace alternator::cpython
