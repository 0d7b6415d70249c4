// The rows of the lifting table for objects that consist of others.
#include "cpython/objects.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/lift_rows.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/unspecialized.h"
#include "py/lasting.h"
#include "py/names.h"

#include <cstring>

namespace alternator::lift {

Ref lift_tuple(Lifter& lifter, Borrowed tuple, Source* source) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple.get());
  lifter.guard_type(source, tuple);
  lifter.guard(source, GuardKind::kLength, {}, count);
  if (tuple.type() != &PyTuple_Type) lifter.classes->use_special_methods(tuple.type());
  Ref copy = checked(tuple.type()->tp_alloc(tuple.type(), count));
  bool same = true;
  const Specialized native_code_may_read_it(*lifter.unspecialized);
  for (Py_ssize_t i = 0; i < count; i++) {
    Borrowed element = PyTuple_GET_ITEM(tuple.get(), i);
    Ref lifted = lifter.lift(element, lifter.tree().child(source, Access::kIndex, {}, i));
    lifter.escape(lifted);
    same = same && Borrowed(lifted) == element;
    PyTuple_SET_ITEM(copy.get(), i, lifted.release());
  }
  const bool has_attributes = tuple.type()->tp_dictoffset != 0;
  source->bears_identity = count > 0 || has_attributes;
  Ref lifted = lifter.remember(tuple, same ? Ref::share(tuple) : std::move(copy), source);
  lifter.known_as(lifted).instance = has_attributes;
  return lifted;
}

Ref lift_slice(Lifter& lifter, Borrowed slice, Source* source) {
  if (Borrowed seen = lifter.lifted(slice)) {
    lifter.guard_same(source, lifter.known(seen)->source);
    return Ref::share(seen);
  }
  lifter.guard_type(source, slice);
  const auto part = [&](const char* text, Borrowed value) {
    const Ref name = checked(PyUnicode_InternFromString(text));
    return lifter.lift(value, lifter.tree().child(source, Access::kField, name));
  };
  auto* parts = slice.as<PySliceObject>();
  const Ref start = part("start", parts->start), stop = part("stop", parts->stop), step = part("step", parts->step);
  const bool same = start.get() == parts->start && stop.get() == parts->stop && step.get() == parts->step;
  return lifter.remember(slice, same ? Ref::share(slice) : checked(PySlice_New(start.get(), stop.get(), step.get())),
                         source);
}

Ref lift_method(Lifter& lifter, Borrowed method, Source* source) {
  lifter.guard_type(source, method);
  Ref self = lifter.lift(PyMethod_GET_SELF(method.get()), lifter.tree().child(source, Access::kMethodSelf));
  Ref function = lifter.lift(PyMethod_GET_FUNCTION(method.get()), lifter.tree().child(source, Access::kMethodFunction));
  return lifter.remember(method, checked(PyMethod_New(function.get(), self.get())), source);
}

Ref lift_proxy(Lifter& lifter, Borrowed proxy, Source* source) {
  lifter.guard_type(source, proxy);
  Ref mapping = lifter.lift(cpython::proxied(proxy.get()), lifter.tree().child(source, Access::kProxied));
  lifter.escape(mapping);
  source->bears_identity = true;
  return lifter.remember(proxy, checked(PyDictProxy_New(mapping.get())), source);
}

// A view of the private copy. Its contents are those of the view's base type, whatever a subclass overrides.
Ref lift_view(Lifter& lifter, Borrowed view, Source* source) {
  lifter.guard_type(source, view);
  Ref dict = lifter.lift(cpython::viewed(view.get()), lifter.tree().child(source, Access::kProxied));
  lifter.escape(dict);
  source->bears_identity = true;
  return lifter.remember(view, checked(_PyDictView_New(dict.get(), view.type())), source);
}

// An equal one, made of lifted parts: native code hands them to the program.
Ref lift_tree_spec(Lifter& lifter, Borrowed spec, Source* source) {
  lifter.guard_type(source, spec);
  Ref parts = checked(PyObject_CallMethod(spec.get(), "__getstate__", nullptr));
  Ref state = lifter.lift(parts, lifter.tree().child(source, Access::kReduced));
  Ref copy = checked(spec.type()->tp_new(spec.type(), checked(PyTuple_New(0)).get(), nullptr));
  checked(PyObject_CallMethod(copy.get(), "__setstate__", "(O)", state.get())).reset();
  source->bears_identity = true;
  return lifter.remember(spec, std::move(copy), source);
}

static const void* list_append() {
  static constinit Lasting<const void*> definition;
  return definition.get([] {
    Ref append = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyList_Type), "append"));
    return cpython::native_definition(append.get());
  });
}

Ref lift_builtin(Lifter& lifter, Borrowed builtin, Source* source) {
  auto* function = builtin.as<PyCFunctionObject>();
  PyObject* self = PyCFunction_GET_SELF(builtin.get());
  if (is_self_of_function(self) || PyType_Check(self)) {
    lifter.guard(source, GuardKind::kIs, builtin);
    return lifter.lift_itself(builtin, lifter.constant(builtin), false);
  }
  lifter.guard_type(source, builtin);
  Ref name = checked(PyUnicode_InternFromString(function->m_ml->ml_name));
  lifter.guard(lifter.tree().child(source, Access::kField, names::__name__), GuardKind::kEquals, name);
  Ref bound_to = lifter.lift(self, lifter.tree().child(source, Access::kMethodSelf));
  // list.append reads no element, so the list is not lifted whole; the call is handled like that of a method bound in
  // the trace.
  if (!PyList_CheckExact(self) || function->m_ml != list_append()) lifter.escape(bound_to);
  PyTypeObject* defining = PyCFunction_GET_CLASS(builtin.get());  // for METH_METHOD: re.match
  return lifter.remember(builtin, checked(PyCMethod_New(function->m_ml, bound_to.get(), function->m_module, defining)),
                         source);
}

// A weak reference to the lifted referent. A callback belongs to the pre-existing reference; the lifted one then has a
// callback that does nothing, so that it differs from what `weakref.ref(x)` returns.
Ref lift_weak_reference(Lifter& lifter, Borrowed reference, Source* source) {
  Ref referent = Ref::share(PyWeakref_GetObject(reference.get()));
  if (referent.get() == Py_None) {
    // It returns None forever. Its hash, if cached, is its own: another dead reference is not interchangeable.
    lifter.guard(source, GuardKind::kIs, reference);
    return lifter.lift_itself(reference, lifter.constant(reference), false);
  }
  lifter.guard_type(source, reference);
  source->bears_identity = true;
  Ref lifted = lifter.lift(referent, lifter.tree().child(source, Access::kReferent));
  Borrowed callback = reinterpret_cast<PyWeakReference*>(reference.get())->wr_callback;
  static PyMethodDef method = {"callback", [](PyObject*, PyObject*) { return Py_NewRef(Py_None); }, METH_O, nullptr};
  Ref nothing = callback ? checked(PyCFunction_New(&method, nullptr)) : Ref();
  lifter.guard(lifter.tree().child(source, Access::kField, checked(PyUnicode_InternFromString("__callback__"))),
               GuardKind::kType, reinterpret_cast<PyObject*>(callback ? callback.type() : Py_TYPE(Py_None)));
  return lifter.remember(reference, checked(PyWeakref_NewRef(lifted.get(), nothing.get())), source);
}

Ref lift_super(Lifter& lifter, Borrowed super, Source* source) {
  lifter.guard_type(source, super);
  auto field = [&](const char* text) {
    Ref name = checked(PyUnicode_InternFromString(text));
    // The members of PySuper_Type itself: super objects forward lookups to another class.
    Borrowed member = _PyType_Lookup(&PySuper_Type, name.get());
    Ref value = checked(member.type()->tp_descr_get(member.get(), super.get(), nullptr));
    return lifter.lift(value, lifter.tree().child(source, Access::kField, name));
  };
  Ref cls = field("__thisclass__"), self = field("__self__");
  if (self.get() == Py_None) throw CannotLift("a super object without an instance");
  return lifter.remember(
      super,
      checked(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type), cls.get(), self.get(), nullptr)),
      source);
}

Ref lift_partial(Lifter& lifter, Borrowed partial, Source* source) {
  lifter.guard_type(source, partial);
  auto field = [&](const char* text) {
    Ref name = checked(PyUnicode_InternFromString(text));
    Ref value = checked(PyObject_GetAttr(partial.get(), name.get()));
    Ref lifted = lifter.lift(value, lifter.tree().child(source, Access::kField, name));
    lifter.escape(lifted);
    return lifted;
  };
  Ref function = field("func"), arguments = field("args"), keywords = field("keywords");
  // partial() does not flatten a partial that has a __dict__, even an empty one.
  PyObject* own = *_PyObject_GetDictPtr(partial.get());
  if (own != nullptr && !PyDict_CheckExact(own)) throw CannotLift("a partial whose __dict__ is not a plain dict");
  Source* dict_source = lifter.tree().child(source, Access::kDict, {}, 1);
  if (own != nullptr) {
    lifter.guard(dict_source, GuardKind::kType, reinterpret_cast<PyObject*>(&PyDict_Type));
  } else {
    lifter.guard(dict_source, GuardKind::kAbsent);
  }
  // Sets the parts directly: the constructor would flatten an inner partial.
  Ref copy = checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(partial.type()),
                                         reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  Ref attributes = own != nullptr ? checked(PyDict_New()) : Ref::share(Py_None);
  Ref state = checked(PyTuple_Pack(4, function.get(), arguments.get(), keywords.get(), attributes.get()));
  checked(PyObject_CallMethod(copy.get(), "__setstate__", "(O)", state.get())).reset();
  return lifter.remember(partial, std::move(copy), source);
}

}  // namespace alternator::lift
