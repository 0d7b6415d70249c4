// Iterators, and other types that are reconstructed by __reduce_ex__.
#include "cpython/deque_iterator.h"
#include "cpython/objects.h"
#include "cpython/pickling.h"
#include "interpreter/suspended.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/plain.h"
#include "lift/sources/python_twins.h"
#include "py/import.h"
#include "py/lasting.h"
#include "replay/builder.h"

namespace alternator::replay::recipes {

// Mutations of a pre-existing container are written back last, after everything is made: an iterator that stores its
// size, or a position that is only accepted within it, would be wrong by then.
static void require_unchanged(Builder& builder, Borrowed iterator, Borrowed container) {
  for (const lift::Shadow& shadow : builder.world().shadows()) {
    if (Borrowed(shadow.copy) != container) continue;
    Ref now = checked(PySequence_Tuple(shadow.copy.get())), then = checked(PySequence_Tuple(shadow.snapshot.get()));
    bool same = PyTuple_GET_SIZE(now.get()) == PyTuple_GET_SIZE(then.get()) && shadow.deleted_keys.empty();
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(now.get()); i++) {
      // Assigning to an item of a list changes neither.
      same =
          shadow.kind == lift::ShadowKind::kList || PyTuple_GET_ITEM(now.get(), i) == PyTuple_GET_ITEM(then.get(), i);
    }
    if (!same) cannot_rebuild(iterator, "its iterable was mutated in the call");
  }
}

// decimal.Context(prec, rounding, Emin, Emax, capitals, clamp): its arguments for flags and traps do not cover all
// signals.
static Recipe decimal_context(Borrowed object) {
  Ref parts = lift::parts_of_context(object);
  Recipe recipe{{Op::kCall, {Ref::share(object.type())}}};
  for (Py_ssize_t i = 0; i < lift::kFlagsPart; i++)
    recipe.make.operands.push_back(Ref::share(PyTuple_GET_ITEM(parts.get(), i)));
  Ref signals = checked(PyTuple_GetSlice(parts.get(), lift::kFlagsPart, lift::kTrapsPart + 1));
  recipe.fill.push_back({Op::kSetState, {Ref::share(lift::signal_setter()), std::move(signals)}});
  return recipe;
}

static bool is_iter(PyObject* callable) {
  static constinit Lasting<const void*> lasting;
  const void* iter = lasting.get([] {
    return cpython::native_definition(checked(PyObject_GetAttrString(import_module("builtins").get(), "iter")).get());
  });
  return iter != nullptr && cpython::native_definition(callable) == iter;
}

// The __reduce__ of an exhausted iterator gives iter() or reversed() of something empty: of another type, perhaps, or
// not exhausted yet.
static bool is_exhausted(Borrowed parts) {
  PyObject* arguments = PyTuple_GET_ITEM(parts.get(), 1);
  if (PyTuple_GET_SIZE(parts.get()) != 2 || PyTuple_GET_SIZE(arguments) != 1) return false;
  PyObject *callable = PyTuple_GET_ITEM(parts.get(), 0), *source = PyTuple_GET_ITEM(arguments, 0);
  if (!is_iter(callable) && callable != reinterpret_cast<PyObject*>(&PyReversed_Type))
    return false;  // from CPython 3.12 on
  return (PyList_CheckExact(source) && PyList_GET_SIZE(source) == 0) ||
         (PyTuple_CheckExact(source) && PyTuple_GET_SIZE(source) == 0) ||
         (PyUnicode_CheckExact(source) && PyUnicode_GET_LENGTH(source) == 0);
}

// An iterator of the same type, advanced beyond its end.
static Recipe exhausted(Borrowed object, Borrowed parts) {
  Recipe recipe{{Op::kCall, {Ref::share(PyTuple_GET_ITEM(parts.get(), 0))}}};
  std::vector<Ref>& operands = recipe.make.operands;
  int64_t steps = 1;
  if (object.type() == &PyListRevIter_Type) {
    operands[0] = Ref::share(&PyReversed_Type);
    operands.push_back(checked(PyList_New(0)));
  } else if (object.type() == &PyCallIter_Type) {  // iter(int, 0)
    operands.push_back(Ref::share(&PyLong_Type));
    operands.push_back(checked(PyLong_FromLong(0)));
  } else if (object.type() == &PyBytesIter_Type) {
    operands.push_back(checked(PyBytes_FromStringAndSize(nullptr, 0)));
  } else if (object.type() == &PyUnicodeIter_Type) {  // an empty str would give the ASCII iterator
    operands.push_back(checked(PyUnicode_FromOrdinal(0x100)));
    steps = 2;
  } else {
    operands.push_back(Ref::share(PyTuple_GET_ITEM(PyTuple_GET_ITEM(parts.get(), 1), 0)));
  }
  recipe.fill.push_back({Op::kAdvance, {}, steps, false, true});
  return recipe;
}

Recipe reduced(Builder& builder, Borrowed object) {
  require_exact(object);
  if (lift::is_decimal_context(object.get())) return decimal_context(object);
  if (object.type() == lift::known_types().deque_iterator &&
      !cpython::is_current_deque_iterator(object, lift::known_types().deque))
    cannot_rebuild(object, "its deque was changed");
  Ref reduce = checked(PyObject_GetAttrString(object.get(), "__reduce_ex__")), protocol = checked(PyLong_FromLong(4));
  PyObject* argument = protocol.get();
  Ref parts = cpython::call_quietly(reduce.get(), &argument, 1);
  if (!parts) {
    PyErr_Clear();
    cannot_rebuild(object, "it does not say how it is made");
  }
  if (!PyTuple_Check(parts.get()) || PyTuple_GET_SIZE(parts.get()) < 2 ||
      !PyTuple_Check(PyTuple_GET_ITEM(parts.get(), 1))) {
    cannot_rebuild(object, "it does not say how it is made");
  }
  for (Py_ssize_t i = 3; i < PyTuple_GET_SIZE(parts.get()); i++) {
    if (PyTuple_GET_ITEM(parts.get(), i) != Py_None) cannot_rebuild(object, "it is filled item by item");
  }
  if (is_exhausted(parts)) return exhausted(object, parts);
  Borrowed callable = PyTuple_GET_ITEM(parts.get(), 0);
  Recipe recipe{{Op::kCall, {Ref::share(callable)}}};
  // Its operands must be complete if making it reads them: a callable of ours, or the state of a deque.
  recipe.make.hashes = !(PyType_Check(callable.get()) || PyCFunction_Check(callable.get())) ||
                       object.type() == lift::known_types().deque_iterator;
  PyObject* arguments = PyTuple_GET_ITEM(parts.get(), 1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); i++) {
    Borrowed argument = PyTuple_GET_ITEM(arguments, i);
    if (Borrowed native = lift::stands_in_for(argument)) argument = native;
    // Making it calls iter() on its source: for an iterator of a user's class, that would run code a second time.
    if (PyIter_Check(argument.get()) && layout_of(argument.type()) != argument.type()) {
      cannot_rebuild(object, "it iterates over an iterator of class " + full_name(argument.type()));
    }
    require_unchanged(builder, object, argument);
    recipe.make.operands.push_back(Ref::share(argument));
  }
  if (PyTuple_GET_SIZE(parts.get()) > 2 && PyTuple_GET_ITEM(parts.get(), 2) != Py_None) {
    Ref restore = checked(PyObject_GetAttrString(Borrowed(object.type()).get(), "__setstate__"));
    if (PyInstanceMethod_Check(restore.get()))  // pybind11's
      restore = Ref::share(PyInstanceMethod_GET_FUNCTION(restore.get()));
    // A position is only accepted once the container is filled.
    recipe.fill.push_back(
        {Op::kSetState, {std::move(restore), Ref::share(PyTuple_GET_ITEM(parts.get(), 2))}, 0, false, true});
  }
  return recipe;
}

Recipe generator(Builder&, Borrowed object) {
  Suspended found;
  if (const char* why = describe_generator(object, &found)) cannot_rebuild(object, why);
  Recipe recipe{{Op::kGenerator, {found.code, found.name, found.qualified_name}}};
  if (!found.function) return recipe;
  Step fill{Op::kFillGenerator, {found.function}, int64_t{found.next} << 8 | (found.state & 0xff), false, true};
  for (Ref& local : found.locals) fill.operands.push_back(std::move(local));
  for (Ref& value : found.stack) fill.operands.push_back(std::move(value));
  recipe.fill.push_back(std::move(fill));
  return recipe;
}

// An entry that was removed and inserted again leaves the size as it was: a reconstructed iterator would have another
// position.
static void require_same_rest(Borrowed iterator, Borrowed view, Py_ssize_t seen) {
  Ref parts = Ref::steal(PyObject_CallMethod(iterator.get(), "__reduce__", nullptr));  // lists the remaining items
  if (!parts) {
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) throw PyError();
    PyErr_Clear();
    cannot_rebuild(iterator, "its dict was changed");
  }
  PyObject* rest = PyTuple_GET_ITEM(PyTuple_GET_ITEM(parts.get(), 1), 0);
  Ref all = checked(PySequence_List(view.get()));
  bool same = PyList_GET_SIZE(rest) == PyList_GET_SIZE(all.get()) - seen;
  for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(rest); i++) {
    PyObject *one = PyList_GET_ITEM(rest, i), *other = PyList_GET_ITEM(all.get(), seen + i);
    same =
        iterator.type() == &PyDictIterItem_Type ? PyTuple_GET_ITEM(one, 0) == PyTuple_GET_ITEM(other, 0) : one == other;
  }
  if (!same) cannot_rebuild(iterator, "its dict was changed");
}

Recipe dict_iterator(Builder& builder, Borrowed object) {
  Ref dict;
  for (Ref& held : referents(object)) {
    if (PyDict_Check(held.get())) dict = std::move(held);
  }
  Ref hint = checked(PyObject_CallMethod(object.get(), "__length_hint__", nullptr));
  const Py_ssize_t left = PyLong_AsSsize_t(hint.get());
  Py_ssize_t seen = 1;  // an exhausted one: one step beyond the end of an empty dict
  const bool is_exhausted = !dict;
  if (dict) {
    seen = PyDict_GET_SIZE(dict.get()) - left;
  } else {
    dict = checked(PyDict_New());
  }
  if (!PyDict_CheckExact(dict.get())) cannot_rebuild(object, "it iterates over a subclass of dict");
  require_unchanged(builder, object, dict);
  PyTypeObject* view = object.type() == &PyDictIterKey_Type     ? &PyDictKeys_Type
                       : object.type() == &PyDictIterValue_Type ? &PyDictValues_Type
                                                                : &PyDictItems_Type;
  Recipe recipe{{Op::kDictIterator, {checked(_PyDictView_New(dict.get(), view))}}};
  if (!is_exhausted) require_same_rest(object, recipe.make.operands[0], seen);
  recipe.make.hashes = true;  // it stores the size of the dict
  if (seen > 0) recipe.fill.push_back({Op::kAdvance, {}, seen, false, true});
  return recipe;
}

}  // namespace alternator::replay::recipes
