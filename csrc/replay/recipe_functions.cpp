// Functions and whatever binds them.
#include "replay/builder.h"

#include "cpython/objects.h"

namespace alternator::replay::recipes {

// A function without a source that the trace did not make is a pre-existing one found through its class. If it holds a
// tensor of the trace after all, registering it as made in the trace was forgotten.
static void check_preexisting(Builder& builder, PyFunctionObject* f) {
  if (f->func_closure == nullptr) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(f->func_closure); i++) {
    Borrowed contents = PyCell_GET(PyTuple_GET_ITEM(f->func_closure, i));
    if (contents && builder.is_traced(contents)) {
      cannot_rebuild(f, "it was made in the trace by unknown means");
    }
  }
}

static void add_field(Recipe& recipe, FunctionField field, const char* name, Borrowed value) {
  Ref text = checked(PyUnicode_InternFromString(name));
  recipe.fill.push_back({Op::kFillFunction, {std::move(text), Ref::share(value)}, static_cast<int64_t>(field)});
}

// The __doc__ of a new function of this code.
static Borrowed default_doc(Borrowed code) {
  PyObject* constants = code.as<PyCodeObject>()->co_consts;
  if (PyTuple_GET_SIZE(constants) == 0 || !PyUnicode_Check(PyTuple_GET_ITEM(constants, 0))) return Py_None;
  return PyTuple_GET_ITEM(constants, 0);
}

Recipe function(Builder& builder, Borrowed object) {
  auto* f = object.as<PyFunctionObject>();
  if (!builder.world().made_here(object)) {
    check_preexisting(builder, f);
    Recipe recipe;
    recipe.keep = true;
    return recipe;
  }
  if (builder.world().made_here(f->func_globals)) cannot_rebuild(object, "its globals were made in the call");
  builder.take_as_preexisting(f->func_globals);
  Recipe recipe{{Op::kFunction, {Ref::share(f->func_code), Ref::share(f->func_globals), Ref::share(f->func_qualname)}}};
  if (f->func_closure != nullptr) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(f->func_closure); i++) {
      recipe.make.operands.push_back(Ref::share(PyTuple_GET_ITEM(f->func_closure, i)));
    }
  }
  Borrowed code = f->func_code;
  if (f->func_name != code.as<PyCodeObject>()->co_name)
    add_field(recipe, FunctionField::kName, "__name__", f->func_name);
  if (f->func_defaults != nullptr) add_field(recipe, FunctionField::kDefaults, "__defaults__", f->func_defaults);
  if (f->func_kwdefaults != nullptr) {
    add_field(recipe, FunctionField::kKeywordDefaults, "__kwdefaults__", f->func_kwdefaults);
  }
  if (f->func_annotations != nullptr) {
    add_field(recipe, FunctionField::kAnnotations, "__annotations__", f->func_annotations);
  }
  if (Borrowed(f->func_doc) != default_doc(code)) add_field(recipe, FunctionField::kDoc, "__doc__", f->func_doc);
  if (f->func_module != PyDict_GetItemString(f->func_globals, "__name__")) {
    add_field(recipe, FunctionField::kModule, "__module__", f->func_module);
  }
  add_attributes(builder, recipe, object);
  return recipe;
}

Recipe cell(Builder&, Borrowed object) {
  Recipe recipe{{Op::kCell}};
  Borrowed contents = PyCell_GET(object.get());
  if (contents) recipe.fill.push_back({Op::kFillCell, {Ref::share(contents)}});
  return recipe;
}

Recipe method(Builder&, Borrowed object) {
  return {
      {Op::kMethod, {Ref::share(PyMethod_GET_FUNCTION(object.get())), Ref::share(PyMethod_GET_SELF(object.get()))}}};
}

Recipe builtin(Builder& builder, Borrowed object) {
  PyObject* self = PyCFunction_GET_SELF(object.get());
  if (lift::is_self_of_function(self) || (PyType_Check(self) && !builder.world().made_here(self))) {
    Recipe recipe;
    recipe.keep = true;
    return recipe;
  }
  auto* function = object.as<PyCFunctionObject>();
  return {{Op::kBuiltin, {Ref::share(self), Ref::share(function->m_module)}, builder.native(function->m_ml)}};
}

Recipe method_wrapper(Builder&, Borrowed object) {
  // Its members are plain C getters of the wrapper itself.
  Ref self = checked(PyObject_GetAttrString(object.get(), "__self__"));
  Ref name = checked(PyObject_GetAttrString(object.get(), "__name__"));
  Ref type = checked(PyObject_GetAttrString(object.get(), "__objclass__"));
  PyObject* wrapper = PyDict_GetItemWithError(cpython::own_dict(type.as<PyTypeObject>()), name.get());
  if (wrapper == nullptr || Py_TYPE(wrapper) != &PyWrapperDescr_Type) {
    if (PyErr_Occurred()) throw PyError();
    cannot_rebuild(object, "its class has changed");
  }
  return {{Op::kMethodWrapper, {Ref::share(wrapper), std::move(self)}}};
}

Recipe partial(Builder& /*builder*/, Borrowed object) {
  // Made with a dummy callable; __setstate__ then sets its real parts, the same objects.
  Recipe recipe = new_instance(object, {Ref::share(&PyBaseObject_Type)});
  Ref restore = checked(PyObject_GetAttrString(Borrowed(layout_of(object.type())).get(), "__setstate__"));
  PyObject** dict = _PyObject_GetDictPtr(object.get());
  Ref attributes = Ref::share(dict != nullptr && *dict != nullptr ? *dict : Py_None);
  recipe.fill.push_back({Op::kSetState,
                         {std::move(restore), read_member(object, "func"), read_member(object, "args"),
                          read_member(object, "keywords"), std::move(attributes)},
                         1});
  add_slots(recipe, object);
  return recipe;
}

Recipe super(Builder&, Borrowed object) {
  require_exact(object);
  Recipe recipe{{Op::kSuper, {read_member(object, "__thisclass__")}}};
  Ref self = read_member(object, "__self__");
  if (self) recipe.make.operands.push_back(std::move(self));
  return recipe;
}

Recipe property(Builder& builder, Borrowed object) {
  Recipe recipe = new_instance(object);
  auto part = [&](const char* name) {
    Ref value = read_member(object, name);
    return value ? std::move(value) : Ref::share(Py_None);
  };
  Ref getter = part("fget"), doc = part("__doc__");
  // A doc string that came from the getter is taken from it again.
  if (PyFunction_Check(getter.get()) && getter.as<PyFunctionObject>()->func_doc == doc.get()) doc = Ref::share(Py_None);
  recipe.fill.push_back(
      {Op::kInit,
       {Ref::share(layout_of(object.type())), std::move(getter), part("fset"), part("fdel"), std::move(doc)},
       0,
       false,
       true});
  finish_instance(builder, recipe, object);
  return recipe;
}

Recipe static_method(Builder& builder, Borrowed object) {
  require_exact(object);
  Recipe recipe{{Op::kStaticMethod, {read_member(object, "__func__")}}};
  add_attributes(builder, recipe, object);
  return recipe;
}

Recipe class_method(Builder& builder, Borrowed object) {
  require_exact(object);
  Recipe recipe{{Op::kClassMethod, {read_member(object, "__func__")}}};
  add_attributes(builder, recipe, object);
  return recipe;
}

}  // namespace alternator::replay::recipes
