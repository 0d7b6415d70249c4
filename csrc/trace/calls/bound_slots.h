// Pre-existing method wrappers, such as `length = items.__len__` or `torch.Tensor.shape.__get__`.
#pragma once

#include "cpython/objects.h"
#include "cpython/version.h"
#include "lift/sources/source.h"
#include "py/names.h"

namespace alternator::trace {

// The slot that one binds to its object; null: it is no method wrapper.
inline Ref slot_of_wrapper(Borrowed wrapper, Ref* name, Ref* owner) {
  if (!Py_IS_TYPE(wrapper.get(), &_PyMethodWrapper_Type)) return {};
  // Its members are plain C getters of the wrapper itself.
  *name = checked(PyObject_GetAttr(wrapper.get(), names::__name__));
  *owner = checked(PyObject_GetAttrString(wrapper.get(), "__objclass__"));
  PyObject* slot = PyDict_GetItemWithError(cpython::own_dict(owner->as<PyTypeObject>()), name->get());
  if (slot == nullptr && PyErr_Occurred()) throw PyError();
  return slot != nullptr && Py_IS_TYPE(slot, &PyWrapperDescr_Type) ? Ref::share(slot) : Ref();
}

// The same for a pre-existing one, with guards on which slot that is; null: it is no method wrapper. The object that it
// is bound to is found at Access::kMethodSelf.
inline Ref bound_slot(Borrowed wrapper, lift::SourceTree& tree, lift::Source* source) {
  Ref name, owner, slot = slot_of_wrapper(wrapper, &name, &owner);
  if (!slot) return {};
  Ref objclass = checked(PyUnicode_InternFromString("__objclass__"));
  const auto field = [&](Borrowed which) { return tree.child(source, lift::Access::kField, which); };
  tree.guard(source, {lift::GuardKind::kType, Ref::share(reinterpret_cast<PyObject*>(wrapper.type()))});
  tree.guard(field(names::__name__), {lift::GuardKind::kEquals, name});
  tree.guard(field(objclass), {lift::GuardKind::kIs, owner});
  return slot;
}

}  // namespace alternator::trace
