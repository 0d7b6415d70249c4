// The accessors: each finds a value by reading C structures, without running user code.
#include "lift/sources/source_step.h"

#include "cpython/iterator_copies.h"
#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/optree_types.h"
#include "lift/sources/tensor_spec.h"
#include "py/error.h"
#include "py/gc.h"
#include "py/lasting.h"
#include "py/names.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <structmember.h>
#include <torch/csrc/PyInterpreter.h>

namespace alternator::lift {

// --- instance dicts ---------------------------------------------------------------------------------------

// The stand-in for a threading.local's dict that does not exist yet has no entries, whatever the object keeps inline.
static bool is_empty(PyObject* stand_in) { return cpython::is_thread_local(Py_TYPE(stand_in)); }

Py_ssize_t attribute_count(PyObject* stand_in) {
  return is_empty(stand_in) ? 0 : cpython::inline_attribute_count(stand_in);
}

Found find_attribute(PyObject* stand_in, PyObject* name, PyObject** value) {
  *value = nullptr;
  if (is_empty(stand_in)) return Found::kNo;
  // Inline attribute names are exact str: only a str subclass with its own __eq__ could equal one otherwise.
  *value = PyUnicode_CheckExact(name) ? cpython::inline_attribute(stand_in, name) : nullptr;
  if (*value != nullptr) return Found::kYes;
  if (PyUnicode_CheckExact(name) || attribute_count(stand_in) == 0) return Found::kNo;
  return is_plain(name) ? Found::kNo : Found::kUnknown;
}

bool next_attribute(PyObject* stand_in, Py_ssize_t* position, PyObject** name, PyObject** value) {
  return !is_empty(stand_in) && cpython::next_inline_attribute(stand_in, position, name, value);
}

Ref real_dict(Borrowed stand_in) {
  if (cpython::is_thread_local(stand_in.type())) return cpython::make_thread_dict(stand_in.get());
  return Ref::steal(PyObject_GenericGetDict(stand_in.get(), nullptr));
}

namespace {

// The dict of an instance or of a class; the object itself as long as it has none. Null: it can have none.
PyObject* dict_of(PyObject* object) {
  if (PyType_Check(object)) return cpython::own_dict(reinterpret_cast<PyTypeObject*>(object));
  if (cpython::is_thread_local(Py_TYPE(object))) {
    if (PyObject* dict = cpython::thread_dict(object)) return dict;
    return cpython::is_filled_by_init(Py_TYPE(object)) ? nullptr : object;
  }
  PyObject** slot = cpython::instance_dict_slot(object);
  if (slot == nullptr) return nullptr;
  PyObject* dict = cpython::instance_dict(object);
  if (dict == nullptr) return object;
  return PyDict_CheckExact(dict) ? dict : nullptr;  // a dict subclass: unsupported
}

// --- fields -------------------------------------------------------------------------------------------------

// The value of a member or getset descriptor that a type has under a name. Null: no value, or another kind of
// descriptor.
PyObject* field(PyObject* object, PyTypeObject* type, PyObject* name, Ref* owner) {
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (descriptor == nullptr) return nullptr;
  const bool is_member = Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
  if (!is_member && !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) return nullptr;
  if (!PyObject_TypeCheck(object, PyDescr_TYPE(descriptor))) return nullptr;
  if (is_member) {
    PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
    if (member->type == T_OBJECT_EX || member->type == T_OBJECT) {
      PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + member->offset);
      return value == nullptr && member->type == T_OBJECT ? Py_None : value;
    }
    SavedError saved;
    *owner = Ref::steal(PyMember_GetOne(reinterpret_cast<char*>(object), member));
    return owner->get();
  }
  if (is_tensor(object)) return nullptr;  // a tensor's getters may call __torch_function__
  const PyGetSetDef* getset = reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset;
  if (getset->get == nullptr) return nullptr;
  SavedError saved;
  *owner = Ref::steal(getset->get(object, getset->closure));
  return owner->get();
}

// --- one function for each word of the finder column of accessors.def --------------------------------------------

PyObject* parent_itself(const Step&, PyObject* parent, Ref*, Memo*) { return parent; }
PyObject* key_itself(const Step& step, PyObject*, Ref*, Memo*) { return step.key; }
// take() does: whether it is there may be unknown.
PyObject* looked_up(const Step&, PyObject*, Ref*, Memo*) { return nullptr; }

PyObject* type_of(const Step&, PyObject* parent, Ref*, Memo*) { return reinterpret_cast<PyObject*>(Py_TYPE(parent)); }

PyObject* mro_of(const Step&, PyObject* parent, Ref*, Memo*) {
  return PyType_Check(parent) ? reinterpret_cast<PyTypeObject*>(parent)->tp_mro : nullptr;
}

PyObject* dict_at(const Step& step, PyObject* parent, Ref*, Memo*) {
  PyObject* dict = dict_of(parent);
  return step.index != 0 && dict == parent ? nullptr : dict;
}

PyObject* type_attribute(const Step& step, PyObject* parent, Ref*, Memo*) {
  return PyType_Check(parent) ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(parent), step.key) : nullptr;
}

// A metaclass may define names, such as __module__, that hide type's.
PyObject* field_at(const Step& step, PyObject* parent, Ref* owner, Memo*) {
  return field(parent, PyType_Check(parent) ? &PyType_Type : Py_TYPE(parent), step.key, owner);
}

// The default_factory of the C type, even if a subclass redefines that name.
PyObject* default_factory(const Step&, PyObject* object, Ref* owner, Memo*) {
  PyTypeObject* type = known_types().default_dict;
  return PyObject_TypeCheck(object, type) ? field(object, type, names::default_factory, owner) : nullptr;
}

PyObject* method_self(const Step&, PyObject* object, Ref* owner, Memo*) {
  if (PyMethod_Check(object)) return PyMethod_GET_SELF(object);
  if (!PyCFunction_Check(object)) return field(object, Py_TYPE(object), names::__self__, owner);
  PyObject* self = PyCFunction_GET_SELF(object);
  return self != nullptr ? self : Py_None;
}

PyObject* method_function(const Step&, PyObject* object, Ref* owner, Memo*) {
  if (PyMethod_Check(object)) return PyMethod_GET_FUNCTION(object);
  // Not in names.def: __func__ is a predefined identifier of C++.
  static constinit Lasting<PyObject*> name;
  PyObject* text = name.get([] { return checked(PyUnicode_InternFromString("__func__")).release(); });
  return field(object, Py_TYPE(object), text, owner);
}

PyObject* gradient(const Step&, PyObject* object, Ref* owner, Memo*) {
  if (!is_tensor(object)) return nullptr;
  // Not Tensor::grad(), which warns.
  const at::Tensor& gradient = fake::unpack(object).unsafeGetTensorImpl()->grad();
  if (!gradient.defined()) return Py_None;
  // A gradient without a Python object gets one now. No garbage collection meanwhile: it would run finalizers.
  const WithoutCollector without_collector;
  SavedError saved;
  *owner = Ref::steal(THPVariable_Wrap(gradient));
  return owner->get();
}

// Passing a default bypasses the variable's own one; the variable itself, which cannot be its value, marks "not set".
PyObject* context_value(const Step& step, PyObject* variable, Ref* owner, Memo*) {
  const bool without_default = step.index != 0;
  if (!PyContextVar_CheckExact(variable)) return nullptr;
  SavedError saved;
  PyObject* value = nullptr;
  if (PyContextVar_Get(variable, without_default ? variable : nullptr, &value) < 0) return nullptr;
  Ref found = Ref::steal(value);
  if (without_default && found.get() == variable) return nullptr;
  *owner = std::move(found);
  return owner->get();
}

// --- containers -----------------------------------------------------------------------------------------------

PyObject* element_at(const Step& step, PyObject* object, Ref* owner, Memo*) {
  const Py_ssize_t index = step.index;
  if (PyTuple_Check(object)) return index < PyTuple_GET_SIZE(object) ? PyTuple_GET_ITEM(object, index) : nullptr;
  if (PyList_Check(object)) return index < PyList_GET_SIZE(object) ? PyList_GET_ITEM(object, index) : nullptr;
  PyTypeObject* deque = known_types().deque;
  if (!PyObject_TypeCheck(object, deque) || index >= Py_SIZE(object)) return nullptr;
  *owner = Ref::steal(deque->tp_as_sequence->sq_item(object, index));
  return owner->get();
}

// The elements of a set, the keys or values of a dict or the names of inline attributes, one by one.
bool next_part(const Step& step, PyObject* object, Memo* memo, PyObject** part) {
  PyObject *value, *key;
  if (step.access == Access::kValue) return PyDict_Next(object, &memo->position, &key, part) != 0;
  if (step.access == Access::kElement) {
    auto* set = reinterpret_cast<PySetObject*>(object);
    while (memo->position <= set->mask) {
      const setentry& entry = set->table[memo->position++];
      if (entry.key == nullptr || entry.hash == -1) continue;  // unused, or removed
      *part = entry.key;
      return true;
    }
    return false;
  }
  if (step.among_attributes && !PyDict_CheckExact(object)) return next_attribute(object, &memo->position, part, &value);
  if (PyODict_Check(object)) return cpython::next_ordered_key(object, &memo->node, part);
  return PyDict_Next(object, &memo->position, part, &value) != 0;
}

PyObject* part_at(const Step& step, PyObject* object, Ref*, Memo* memo) {
  const bool stands_in = step.among_attributes && !PyDict_CheckExact(object);
  if (!stands_in && !(step.access == Access::kElement ? PyAnySet_Check(object) : PyDict_Check(object))) return nullptr;
  if (memo->next_index > step.index) {
    memo->next_index = memo->position = 0;
    memo->node = nullptr;
  }
  PyObject* part = nullptr;
  while (memo->next_index <= step.index) {
    if (!next_part(step, object, memo, &part)) return nullptr;
    memo->next_index++;
  }
  return part;
}

// --- parts of functions, results of reading calls ---------------------------------------------------------------

PyFunctionObject* function_of(PyObject* parent) {
  return PyFunction_Check(parent) ? reinterpret_cast<PyFunctionObject*>(parent) : nullptr;
}

PyObject* cell_at(const Step& step, PyObject* parent, Ref*, Memo*) {
  PyFunctionObject* function = function_of(parent);
  PyObject* closure = function != nullptr ? function->func_closure : nullptr;
  return closure != nullptr && step.index < PyTuple_GET_SIZE(closure) ? PyTuple_GET_ITEM(closure, step.index) : nullptr;
}

PyObject* contents_of(const Step&, PyObject* parent, Ref*, Memo*) {
  return PyCell_Check(parent) ? PyCell_GET(parent) : nullptr;
}

PyObject* defaults_of(const Step&, PyObject* parent, Ref*, Memo*) {
  PyFunctionObject* function = function_of(parent);
  return function != nullptr ? function->func_defaults : nullptr;
}

PyObject* keyword_defaults_of(const Step&, PyObject* parent, Ref*, Memo*) {
  PyFunctionObject* function = function_of(parent);
  return function != nullptr ? function->func_kwdefaults : nullptr;
}

PyObject* code_of(const Step&, PyObject* parent, Ref*, Memo*) {
  PyFunctionObject* function = function_of(parent);
  return function != nullptr ? function->func_code : nullptr;
}

PyObject* globals_of(const Step&, PyObject* parent, Ref*, Memo*) {
  PyFunctionObject* function = function_of(parent);
  return function != nullptr ? function->func_globals : nullptr;
}

PyObject* query_result(const Step&, PyObject* parent, Ref* owner, Memo*) {
  SavedError saved;
  *owner = PyCFunction_Check(parent) ? Ref::steal(PyObject_CallNoArgs(parent)) : Ref();
  return owner->get();
}

PyObject* reduced_state(const Step&, PyObject* parent, Ref* owner, Memo*) {
  if (!is_tree_spec(parent) && !is_decimal_context(parent)) return nullptr;
  const WithoutCollector without_collector;
  SavedError saved;
  if (is_decimal_context(parent)) {
    try {
      *owner = parts_of_context(parent);
    } catch (const PyError&) {
      return nullptr;
    }
    return owner->get();
  }
  *owner = Ref::steal(PyObject_CallMethod(parent, "__getstate__", nullptr));
  return owner->get();
}

PyObject* value_ahead(const Step& step, PyObject* parent, Ref* owner, Memo*) {
  *owner = cpython::look_ahead(parent, step.index).value;
  return owner->get();
}

PyObject* function_mode(const Step& step, PyObject*, Ref*, Memo*) {
  using at::impl::PythonTorchFunctionTLS;
  const bool there = step.index < PythonTorchFunctionTLS::stack_len();
  return there ? PythonTorchFunctionTLS::get_stack_at(step.index)->ptr(getPyInterpreter()) : nullptr;
}

PyObject* proxied_mapping(const Step&, PyObject* parent, Ref*, Memo*) {
  return Py_IS_TYPE(parent, &PyDictProxy_Type) ? cpython::proxied(parent) : cpython::viewed(parent);
}

PyObject* referent(const Step&, PyObject* parent, Ref*, Memo*) {
  return PyWeakref_CheckRef(parent) ? reinterpret_cast<PyWeakReference*>(parent)->wr_object : nullptr;
}

PyObject* found_at(const Step& step, PyObject* parent, Ref* owner, Memo* memo) {
  switch (step.access) {
#define ALT_ACCESSOR(kind, text, finder, ...) \
  case Access::kind:                          \
    return finder(step, parent, owner, memo);
#include "lift/sources/accessors.def"
#undef ALT_ACCESSOR
  }
  return nullptr;
}

}  // namespace

Found take(const Step& step, PyObject* parent, PyObject** value, Ref* owner, Memo* memo) {
  if (step.access == Access::kItem) {
    *value = nullptr;
    if (step.among_attributes && !PyDict_CheckExact(parent)) return find_attribute(parent, step.key, value);
    return PyDict_Check(parent) ? find_item(parent, step.key, value, &memo->keys) : Found::kNo;
  }
  if (step.access == Access::kCached) {
    *value = nullptr;
    PyObject* cache = cpython::lru_cache_dict(parent);
    const Found found = cache != nullptr ? find_item(cache, step.key, value, &memo->keys) : Found::kNo;
    if (found == Found::kYes) *value = cpython::lru_cache_result(parent, *value);
    return found;
  }
  *value = found_at(step, parent, owner, memo);
  return *value != nullptr ? Found::kYes : Found::kNo;
}

PyObject* follow(const Source& source, PyObject* parent, Ref* owner) {
  Memo memo;
  PyObject* value;
  return take(step_of(source), parent, &value, owner, &memo) == Found::kYes ? value : nullptr;
}

}  // namespace alternator::lift
