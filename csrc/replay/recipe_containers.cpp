// Containers, plain values, and views of them.
#include "cpython/objects.h"
#include "lift/sources/plain.h"
#include "replay/known_hashes.h"
#include "replay/set_order.h"

#include <cmath>

namespace alternator::replay::recipes {

Recipe plain_object(Builder& builder, Borrowed object) {
  Recipe recipe = new_instance(object);
  finish_instance(builder, recipe, object);
  return recipe;
}

Recipe tuple(Builder& builder, Borrowed object) {
  const bool exact = PyTuple_CheckExact(object.get());
  Recipe recipe{{exact ? Op::kTuple : Op::kTupleLike}};
  if (!exact) recipe.make.operands.push_back(Ref::share(object.type()));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object.get()); i++) {
    recipe.make.operands.push_back(Ref::share(PyTuple_GET_ITEM(object.get(), i)));
  }
  if (!exact) finish_instance(builder, recipe, object);
  return recipe;
}

Recipe struct_sequence(Builder& /*builder*/, Borrowed object) {
  require_exact(object);
  Borrowed fields = PyDict_GetItemString(cpython::own_dict(object.type()), "n_fields");
  const bool is_size = cpython::is_native(object.type(), "torch.Size");  // has no state but its elements
  if (!is_size && (!fields || PyLong_AsSsize_t(fields.get()) != PyTuple_GET_SIZE(object.get()))) {
    PyErr_Clear();
    cannot_rebuild(object, "it has fields that are not elements");
  }
  Recipe recipe{{Op::kStructSequence, {Ref::share(object.type())}}};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object.get()); i++) {
    recipe.make.operands.push_back(Ref::share(PyTuple_GET_ITEM(object.get(), i)));
  }
  return recipe;
}

static void add_filling(Recipe& recipe, Step step) {
  if (!step.operands.empty()) recipe.fill.push_back(std::move(step));
}

Recipe list(Builder& builder, Borrowed object) {
  const bool exact = PyList_CheckExact(object.get());
  Recipe recipe = exact ? Recipe{{Op::kList}} : new_instance(object);
  Step items{Op::kExtend};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object.get()); i++) {
    items.operands.push_back(Ref::share(PyList_GET_ITEM(object.get(), i)));
  }
  add_filling(recipe, std::move(items));
  if (!exact) finish_instance(builder, recipe, object);
  return recipe;
}

static void use_hashes(Step& step, const KnownHashes& hashes, Op op) {
  step.hashes = hashes.are_asked();
  if (!hashes.are_known()) return;
  step.op = op;
  step.operands.insert(step.operands.begin(), hashes.packed());
}

static Step dict_items(Builder& builder, Borrowed object) {
  Step items{Op::kUpdate};
  PyObject *key, *value;
  Py_ssize_t position = 0;
  if (cpython::has_str_keys_only(object.get())) {
    while (PyDict_Next(object.get(), &position, &key, &value) != 0) {
      items.operands.push_back(Ref::share(key));
      items.operands.push_back(Ref::share(value));
    }
    return items;
  }
  KnownHashes hashes;
  Py_hash_t hash;
  while (cpython::next_hashed_entry(object.get(), &position, &key, &value, &hash)) {
    hashes.add(builder, key, hash);
    items.operands.push_back(Ref::share(key));
    items.operands.push_back(Ref::share(value));
  }
  use_hashes(items, hashes, Op::kUpdateHashed);
  return items;
}

Recipe dict(Builder& builder, Borrowed object) {
  const bool exact = PyDict_CheckExact(object.get());
  Recipe recipe = exact ? Recipe{{Op::kDict}} : new_instance(object);
  add_filling(recipe, dict_items(builder, object));
  if (!exact) finish_instance(builder, recipe, object);
  return recipe;
}

Recipe default_dict(Builder& builder, Borrowed object) {
  Recipe recipe = new_instance(object);
  add_members(recipe, object, layout_of(object.type()));
  add_filling(recipe, dict_items(builder, object));
  finish_instance(builder, recipe, object);
  return recipe;
}

Recipe ordered_dict(Builder& builder, Borrowed object) {
  Recipe recipe = new_instance(object);
  Step items{Op::kUpdateOrdered};
  KnownHashes hashes;
  std::vector<Py_hash_t> stored;
  std::vector<std::pair<Ref, Ref>> pairs = ordered_items(object, &stored);
  for (size_t i = 0; i < pairs.size(); i++) {
    hashes.add(builder, pairs[i].first, stored[i]);
    items.operands.push_back(std::move(pairs[i].first));
    items.operands.push_back(std::move(pairs[i].second));
  }
  use_hashes(items, hashes, Op::kUpdateHashed);
  add_filling(recipe, std::move(items));
  finish_instance(builder, recipe, object);
  return recipe;
}

// The elements in an order that makes the new set iterate as the program saw it.
static Step set_filling(Builder& builder, Borrowed object, Op op) {
  std::optional<SetPlan> plan = plan_filling(object);
  if (!plan) cannot_rebuild(object, "its order of iteration cannot be reproduced");
  Step step{op};
  step.number = static_cast<int64_t>(plan->table);
  const std::unordered_map<PyObject*, Py_hash_t> stored = element_hashes(object);
  KnownHashes hashes;
  for (Ref& element : plan->elements) {
    hashes.add(builder, element, stored.at(element.get()));
    step.operands.push_back(std::move(element));
  }
  use_hashes(step, hashes, Op::kAddHashed);
  return step;
}

Recipe set(Builder& builder, Borrowed object) {
  const bool exact = PySet_CheckExact(object.get());
  Recipe recipe = exact ? Recipe{{Op::kSet}} : new_instance(object);
  add_filling(recipe, set_filling(builder, object, Op::kAdd));
  if (!exact) finish_instance(builder, recipe, object);
  return recipe;
}

// If hashing the elements runs Python code, it is made empty, and filled like a set once the state is as the call
// leaves it.
Recipe frozenset(Builder& builder, Borrowed object) {
  const bool exact = PyFrozenSet_CheckExact(object.get());
  Step filling = set_filling(builder, object, exact ? Op::kFrozenset : Op::kAdd);
  if (exact && !filling.hashes && filling.op == Op::kFrozenset) return {std::move(filling)};
  Recipe recipe = exact ? Recipe{{Op::kFrozenset}} : new_instance(object);
  if (filling.op == Op::kFrozenset) filling.op = Op::kAdd;
  add_filling(recipe, std::move(filling));
  if (!exact) finish_instance(builder, recipe, object);
  return recipe;
}

Recipe deque(Builder& builder, Borrowed object) {
  PyTypeObject* layout = layout_of(object.type());
  Recipe recipe = new_instance(object);
  Ref limit = deque_limit(object);
  if (limit.get() != Py_None) {
    recipe.fill.push_back({Op::kInit, {Ref::share(layout), checked(PyTuple_New(0)), std::move(limit)}});
  }
  Step items{Op::kExtendDeque};
  for (Ref& item : deque_items(object)) items.operands.push_back(std::move(item));
  add_filling(recipe, std::move(items));
  finish_instance(builder, recipe, object);
  return recipe;
}

Recipe slice(Builder&, Borrowed object) {
  auto* s = object.as<PySliceObject>();
  return {{Op::kSlice, {Ref::share(s->start), Ref::share(s->stop), Ref::share(s->step)}}};
}

Recipe number(Builder& builder, Borrowed object) {
  PyObject* o = object.get();
  Ref value;
  if (PyFloat_CheckExact(o) && lift::is_nan(o)) {
    const bool negative = std::signbit(PyFloat_AS_DOUBLE(o));
    return {{Op::kCall,
             {Ref::share(reinterpret_cast<PyObject*>(&PyFloat_Type)),
              checked(PyUnicode_FromString(negative ? "-nan" : "nan"))}}};
  }
  if (PyLong_Check(o)) {
    value = checked(PyLong_Type.tp_as_number->nb_int(o));
  } else if (PyFloat_Check(o)) {
    value = checked(PyFloat_FromDouble(PyFloat_AS_DOUBLE(o)));
  } else if (PyComplex_Check(o)) {
    value = checked(PyComplex_FromCComplex(PyComplex_AsCComplex(o)));
  } else if (PyUnicode_Check(o)) {
    value = checked(PyUnicode_FromObject(o));
  } else {
    value = checked(PyBytes_FromStringAndSize(PyBytes_AS_STRING(o), PyBytes_GET_SIZE(o)));
  }
  Recipe recipe = new_instance(object, {std::move(value)});
  finish_instance(builder, recipe, object);
  return recipe;
}

Recipe mapping_proxy(Builder& builder, Borrowed object) {
  std::vector<Ref> held = referents(object);
  ALT_CHECK(held.size() == 1, "a mappingproxy holds one mapping");
  Borrowed mapping = held[0];
  // The dict of a class must not be copied: the proxy is the class's, and only the class can provide it.
  if (PyDict_CheckExact(mapping.get()) && !builder.is_known(mapping) &&
      PyDict_GetItemString(mapping.get(), "__module__") != nullptr &&
      PyDict_GetItemString(mapping.get(), "__doc__") != nullptr) {
    cannot_rebuild(object, "it may belong to a class");
  }
  return {{Op::kMappingProxy, std::move(held)}};
}

Recipe dict_view(Builder&, Borrowed object) {
  Ref dict = Ref::share(reinterpret_cast<PyObject*>(object.as<_PyDictViewObject>()->dv_dict));
  return {{Op::kDictView, {Ref::share(object.type()), std::move(dict)}}};
}

}  // namespace alternator::replay::recipes
