// Common parts of all recipes, and the choice among them.
#include "replay/recipes.h"

#include "cpython/objects.h"
#include "lift/sources/source.h"
#include "replay/builder.h"

#include <structmember.h>

namespace alternator::replay {

void cannot_rebuild(Borrowed object, const std::string& why) {
  std::string sentence = "an object of type " + full_name(object.type()) + " cannot be reconstructed";
  if (!why.empty()) sentence += ": " + why;
  throw CannotRebuild(sentence);
}

void require_exact(Borrowed object) {
  if (!is_exact(object)) {
    cannot_rebuild(object, "subclasses of " + full_name(layout_of(object.type())) + " keep state that is not known");
  }
}

static bool is_struct_sequence(PyTypeObject* type) {
  return type != &PyTuple_Type && PyType_IsSubtype(type, &PyTuple_Type) != 0 &&
         PyDict_GetItemString(cpython::own_dict(type), "n_sequence_fields") != nullptr;
}

Recipe describe(Builder& builder, Borrowed object, const char** kind_name) {
  if (PyType_Check(object.get())) {
    *kind_name = "class";
    return recipes::made_class(builder, object);
  }
  PyTypeObject* layout = layout_of(object.type());
  if (PyType_IsSubtype(layout, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0) {
    *kind_name = "exception";
    return recipes::exception(builder, object);
  }
  const Kind* kind = kind_of(layout);
  if (kind == nullptr && (is_struct_sequence(layout) || cpython::is_native(layout, "torch.Size"))) {
    *kind_name = "struct_sequence";
    return recipes::struct_sequence(builder, object);
  }
  if (kind == nullptr) {
    cannot_rebuild(object, layout == object.type()
                               ? "it is native, and nothing is known of how it is made"
                               : "its native base " + full_name(layout) + " keeps state that is not known");
  }
  if (kind->never != nullptr)
    throw CannotRebuild(std::string(kind->never) + " that is alive at the end cannot be reconstructed");
  *kind_name = kind->name;
  return kind->describe(builder, object);
}

Recipe new_instance(Borrowed object, std::vector<Ref> arguments) {
  Recipe recipe;
  recipe.make.op = Op::kNew;
  recipe.make.operands.push_back(Ref::share(layout_of(object.type())));
  recipe.make.operands.push_back(Ref::share(object.type()));
  for (Ref& argument : arguments) recipe.make.operands.push_back(std::move(argument));
  return recipe;
}

void add_attributes(Builder& builder, Recipe& recipe, Borrowed object) {
  PyObject** slot = _PyObject_GetDictPtr(object.get());
  if (slot == nullptr || *slot == nullptr) return;
  Borrowed dict = *slot;
  if (builder.is_known(dict)) {
    // It is referenced elsewhere already, or it is pre-existing.
    recipe.fill.push_back({Op::kFillDict, {Ref::share(dict)}});
    return;
  }
  builder.own_dict(dict, object);
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(dict.get(), &position, &key, &value) != 0;) {
    recipe.fill.push_back({Op::kFillAttribute, {Ref::share(key), Ref::share(value)}});
  }
}

static void add_member(Recipe& recipe, Borrowed object, PyTypeObject* owner, Py_ssize_t position) {
  PyMemberDef* member = &owner->tp_members[position];
  if ((member->flags & READONLY) != 0) return;
  char* address = reinterpret_cast<char*>(object.get());
  if (member->type == T_OBJECT || member->type == T_OBJECT_EX) {
    if (*reinterpret_cast<PyObject**>(address + member->offset) == nullptr) return;
  }
  Ref value = checked(PyMember_GetOne(address, member));
  Ref name = checked(PyUnicode_InternFromString(member->name));
  recipe.fill.push_back({Op::kFillField, {Ref::share(owner), std::move(name), std::move(value)}, position});
}

void add_slots(Recipe& recipe, Borrowed object) {
  PyTypeObject* layout = layout_of(object.type());
  for (PyTypeObject* type = object.type(); type != layout; type = type->tp_base) {
    for (Py_ssize_t i = 0; i < Py_SIZE(type); i++) add_member(recipe, object, type, i);
  }
}

void add_members(Recipe& recipe, Borrowed object, PyTypeObject* layout) {
  for (PyTypeObject* type = layout; type != nullptr && type != &PyBaseObject_Type; type = type->tp_base) {
    if (type->tp_members == nullptr || (type->tp_base != nullptr && type->tp_base->tp_members == type->tp_members))
      continue;
    for (Py_ssize_t i = 0; type->tp_members[i].name != nullptr; i++) add_member(recipe, object, type, i);
  }
}

void finish_instance(Builder& builder, Recipe& recipe, Borrowed object) {
  add_attributes(builder, recipe, object);
  add_slots(recipe, object);
}

Ref read_member(Borrowed object, const char* name) {
  for (PyTypeObject* type = layout_of(object.type()); type != nullptr; type = type->tp_base) {
    if (type->tp_members == nullptr) continue;
    for (PyMemberDef* member = type->tp_members; member->name != nullptr; member++) {
      if (strcmp(member->name, name) != 0) continue;
      char* address = reinterpret_cast<char*>(object.get());
      return Ref::share(*reinterpret_cast<PyObject**>(address + member->offset));
    }
  }
  ALT_CHECK(false, full_name(object.type()) + " has no member " + name);
  return {};
}

std::vector<Ref> referents(Borrowed object) {
  std::vector<Ref> found;
  traverseproc traverse = object.type()->tp_traverse;
  if (traverse == nullptr) return found;
  traverse(
      object.get(),
      [](PyObject* referent, void* list) {
        static_cast<std::vector<Ref>*>(list)->push_back(Ref::share(referent));
        return 0;
      },
      &found);
  return found;
}

// By a __hash__ of a Python class.
static bool has_own_hash(PyTypeObject* type) {
  PyTypeObject* layout = layout_of(type);
  return layout != type && type->tp_hash != layout->tp_hash;
}

bool hash_needs_fields(Builder& builder, Borrowed key) {
  PyObject* k = key.get();
  if (lift::is_plain(k) || builder.world().source_of(key) != nullptr) return false;
  if (PyTuple_CheckExact(k)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); i++) {
      if (hash_needs_fields(builder, PyTuple_GET_ITEM(k, i))) return true;
    }
    return false;
  }
  if (PyWeakref_CheckRef(k)) return true;
  return has_own_hash(key.type());
}

bool hash_needs_writes(Builder& builder, Borrowed key) {
  PyObject* k = key.get();
  if (lift::is_plain(k)) return false;
  if (PyFrozenSet_Check(k)) {
    if (has_own_hash(key.type())) return true;
    PyObject* element;
    Py_hash_t hash;
    for (Py_ssize_t position = 0; _PySet_NextEntry(k, &position, &element, &hash) != 0;) {
      if (hash_needs_writes(builder, element)) return true;
    }
    return false;
  }
  if (PyTuple_CheckExact(k)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); i++) {
      if (hash_needs_writes(builder, PyTuple_GET_ITEM(k, i))) return true;
    }
    return false;
  }
  return hash_needs_fields(builder, key) || has_own_hash(key.type());
}

}  // namespace alternator::replay
