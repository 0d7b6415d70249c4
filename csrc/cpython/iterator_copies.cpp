#include "cpython/iterator_copies.h"

#include "cpython/pickling.h"
#include "py/error.h"
#include "py/gc.h"
#include "py/import.h"
#include "py/lasting.h"

#include <unordered_map>
#include <vector>

namespace alternator::cpython {
namespace {

enum class Kind : uint8_t {
  kIndexed,       // of a sequence, at a position
  kReversedList,  // the same, backwards
  kReversed,      // ... of a tuple or a string
  kListed,        // what is left can be listed: of dicts and sets
  kOfParts,       // its arguments are iterators, the last ones may be numbers: enumerate, zip, islice
  kCount,
  kRepeat,
  kChain,
};

struct Row {
  Kind kind;
  PyTypeObject* over = nullptr;  // kIndexed: the type whose tp_iter makes it
};
using Rows = std::unordered_map<PyTypeObject*, Row>;

PyTypeObject* type_of_iterator(PyObject* iterable) { return Py_TYPE(checked(PyObject_GetIter(iterable)).get()); }

Rows make_rows() {
  Rows rows{{&PyListIter_Type, {Kind::kIndexed, &PyList_Type}},
            {&PyTupleIter_Type, {Kind::kIndexed, &PyTuple_Type}},
            {&PyRangeIter_Type, {Kind::kIndexed, &PyRange_Type}},
            {&PyLongRangeIter_Type, {Kind::kIndexed, &PyRange_Type}},
            {&PyBytesIter_Type, {Kind::kIndexed, &PyBytes_Type}},
            {&PyListRevIter_Type, {Kind::kReversedList}},
            {&PyReversed_Type, {Kind::kReversed}},
            {&PyDictIterKey_Type, {Kind::kListed}},
            {&PyDictIterValue_Type, {Kind::kListed}},
            {&PyDictIterItem_Type, {Kind::kListed}},
            {&PySetIter_Type, {Kind::kListed}},
            {&PyEnum_Type, {Kind::kOfParts}},
            {&PyZip_Type, {Kind::kOfParts}}};
  for (const char* text : {"", "\u1234"})
    rows[type_of_iterator(checked(PyUnicode_FromString(text)).get())] = {Kind::kIndexed, &PyUnicode_Type};
  Ref itertools = import_module("itertools");
  const std::pair<const char*, Kind> kNames[] = {
      {"islice", Kind::kOfParts}, {"count", Kind::kCount}, {"repeat", Kind::kRepeat}, {"chain", Kind::kChain}};
  for (const auto& [name, kind] : kNames)  // the module's types live as long as the process
    rows[reinterpret_cast<PyTypeObject*>(checked(PyObject_GetAttrString(itertools.get(), name)).release())] = {kind};
  return rows;
}

const Row* row_of(PyTypeObject* type) {
  static constinit Lasting<Rows> rows;
  const Rows& all = rows.get(make_rows);
  const auto found = all.find(type);
  return found != all.end() ? &found->second : nullptr;
}

// What __reduce__ says: (callable, arguments[, state]). The callable may be whatever the program calls `iter`.
struct Account {
  Ref whole;
  PyObject* arguments = nullptr;
  PyObject* state = nullptr;  // null: it has none

  explicit Account(PyObject* iterator) {
    Ref method = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(iterator)), "__reduce__"));
    whole = checked(call_quietly(method.get(), &iterator, 1));
    PyObject* all = whole.get();
    if (!PyTuple_CheckExact(all) || PyTuple_GET_SIZE(all) < 2 || !PyTuple_CheckExact(PyTuple_GET_ITEM(all, 1))) return;
    arguments = PyTuple_GET_ITEM(all, 1);
    if (PyTuple_GET_SIZE(all) > 2 && PyTuple_GET_ITEM(all, 2) != Py_None) state = PyTuple_GET_ITEM(all, 2);
  }
  Py_ssize_t count() const { return arguments != nullptr ? PyTuple_GET_SIZE(arguments) : 0; }
  PyObject* argument(Py_ssize_t i) const { return PyTuple_GET_ITEM(arguments, i); }
};

bool is_number(PyObject* object) { return PyLong_CheckExact(object) || PyFloat_CheckExact(object); }
bool is_sequence(PyObject* object) {
  return PyTuple_CheckExact(object) || PyUnicode_CheckExact(object) || PyBytes_CheckExact(object);
}
// iter() of it calls nothing.
bool is_plain_iterable(PyObject* object) {
  return is_sequence(object) || PyList_CheckExact(object) || PyRange_Check(object) || PyDict_CheckExact(object) ||
         PyAnySet_CheckExact(object);
}

std::vector<PyObject*> parts_of(PyObject* iterator) {
  std::vector<PyObject*> parts;
  const traverseproc traverse = Py_TYPE(iterator)->tp_traverse;
  if (traverse == nullptr) return parts;
  const visitproc add = [](PyObject* part, void* all) {
    static_cast<std::vector<PyObject*>*>(all)->push_back(part);
    return 0;
  };
  traverse(iterator, add, &parts);
  return parts;
}

// Nobody else can advance the iterators that it consists of, not even itself as in zip(rows, rows).
bool owns_its_parts(PyObject* iterator) {
  const auto is_shared = [](PyObject* part) { return PyIter_Check(part) != 0 && Py_REFCNT(part) > 1; };
  for (PyObject* part : parts_of(iterator)) {
    if (is_shared(part)) return false;
    if (!PyTuple_CheckExact(part)) continue;  // zip keeps a tuple of them
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(part); i++) {
      PyObject* item = PyTuple_GET_ITEM(part, i);
      if (item != nullptr && is_shared(item)) return false;
    }
  }
  return true;
}

// A copy of an iterator, advanced by `skip` values. What a kind can do at once is taken from `skip`; the rest is
// stepped.
Ref copy(PyObject* iterator, int depth, Py_ssize_t* skip);

Ref copy_and_skip(PyObject* iterator, int depth, Py_ssize_t skip) {
  Ref made = copy(iterator, depth, &skip);
  for (; made && skip > 0; skip--) {
    if (Ref::steal(PyIter_Next(made.get()))) continue;
    if (PyErr_Occurred()) throw PyError();
    break;
  }
  return made;
}

// Null: some part is no data iterator.
Ref copy_parts(PyObject* arguments, int depth, Py_ssize_t skip) {
  Ref parts = checked(PyTuple_New(PyTuple_GET_SIZE(arguments)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); i++) {
    PyObject* argument = PyTuple_GET_ITEM(arguments, i);
    const bool is_plain = is_number(argument) || argument == Py_None;
    Ref part = is_plain ? Ref::share(argument) : copy_and_skip(argument, depth + 1, skip);
    if (!part) return {};
    PyTuple_SET_ITEM(parts.get(), i, part.release());
  }
  return parts;
}

Ref set_state(Ref made, Borrowed state) {
  if (state) checked(PyObject_CallMethod(made.get(), "__setstate__", "(O)", state.get())).reset();
  return made;
}

// The position of an iterator over a sequence: null counts as 0.
Ref moved(PyObject* position, Py_ssize_t steps) {
  Ref by = checked(PyLong_FromSsize_t(steps));
  return position != nullptr ? checked(PyNumber_Add(position, by.get())) : std::move(by);
}

Ref copy_indexed(const Row& row, const Account& account, Py_ssize_t* skip) {
  if (account.count() != 1) return {};
  PyObject* sequence = account.argument(0);
  // One that has ended gives an empty sequence of any kind.
  if (PyObject_TypeCheck(sequence, row.over) == 0)
    return is_plain_iterable(sequence) && PyObject_Size(sequence) == 0 ? checked(PyObject_GetIter(sequence)) : Ref();
  Ref made = checked(row.over->tp_iter(sequence));
  return set_state(std::move(made), moved(account.state, std::exchange(*skip, 0)));
}

Ref copy_reversed(const Row& row, const Account& account, Py_ssize_t* skip) {
  if (account.count() != 1) return {};
  PyObject* sequence = account.argument(0);
  if (account.state == nullptr)
    return is_plain_iterable(sequence) && PyObject_Size(sequence) == 0 ? checked(PyObject_GetIter(sequence)) : Ref();
  if (row.kind == Kind::kReversed ? !is_sequence(sequence) : !PyList_Check(sequence)) return {};
  Ref made =
      row.kind == Kind::kReversed
          ? checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyReversed_Type), sequence))
          : checked(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyList_Type), "__reversed__", "O", sequence));
  return set_state(std::move(made), moved(account.state, -std::exchange(*skip, 0)));
}

Ref copy_listed(const Account& account, Py_ssize_t* skip) {
  if (account.count() != 1 || !PyList_CheckExact(account.argument(0))) return {};
  return set_state(checked(PyObject_GetIter(account.argument(0))), moved(nullptr, std::exchange(*skip, 0)));
}

Ref copy_of_parts(PyTypeObject* type, const Account& account, int depth, Py_ssize_t* skip) {
  if (account.arguments == nullptr) return {};
  const bool is_enumerate = type == &PyEnum_Type;
  const bool moves_parts = is_enumerate || type == &PyZip_Type;
  const Py_ssize_t steps = moves_parts ? std::exchange(*skip, 0) : 0;
  Ref parts = copy_parts(account.arguments, depth, steps);
  if (!parts) return {};
  if (is_enumerate) {
    if (PyTuple_GET_SIZE(parts.get()) != 2) return {};
    PyObject* iterator = PyTuple_GET_ITEM(parts.get(), 0);
    Ref number = moved(PyTuple_GET_ITEM(parts.get(), 1), steps);
    return checked(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(type), iterator, number.get(), nullptr));
  }
  return set_state(checked(PyObject_CallObject(reinterpret_cast<PyObject*>(type), parts.get())), account.state);
}

// Its state: an iterator over the iterables that are left, and the one that is under way.
Ref copy_chain(PyTypeObject* type, const Account& account, int depth) {
  if (account.arguments == nullptr || account.count() != 0) return {};
  Ref made = checked(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(type)));
  if (account.state == nullptr) return made;
  if (!PyTuple_CheckExact(account.state) || PyTuple_GET_SIZE(account.state) == 0) return {};
  Ref parts = copy_parts(account.state, depth, 0), left;
  if (parts) left = copy_and_skip(PyTuple_GET_ITEM(account.state, 0), depth + 1, 0);
  if (!left) return {};
  Ref iterables = checked(PySequence_List(left.get()));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(iterables.get()); i++) {
    if (!is_plain_iterable(PyList_GET_ITEM(iterables.get(), i))) return {};
  }
  return set_state(std::move(made), parts);
}

Ref copy(PyObject* iterator, int depth, Py_ssize_t* skip) {
  constexpr int kDeepest = 8;
  PyTypeObject* type = Py_TYPE(iterator);
  const Row* row = row_of(type);
  if (row == nullptr || depth > kDeepest || !owns_its_parts(iterator)) return {};
  const Account account(iterator);
  switch (row->kind) {
    case Kind::kIndexed:
      return copy_indexed(*row, account, skip);
    case Kind::kReversedList:
    case Kind::kReversed:
      return copy_reversed(*row, account, skip);
    case Kind::kListed:
      return copy_listed(account, skip);
    case Kind::kOfParts:
      return copy_of_parts(type, account, depth, skip);
    case Kind::kChain:
      return copy_chain(type, account, depth);
    case Kind::kCount:
      for (Py_ssize_t i = 0; i < account.count(); i++)
        if (!is_number(account.argument(i))) return {};
      [[fallthrough]];
    case Kind::kRepeat:
      if (account.arguments == nullptr) return {};
      return checked(PyObject_CallObject(reinterpret_cast<PyObject*>(type), account.arguments));
  }
  return {};
}

}  // namespace

bool may_be_data_iterator(PyTypeObject* type) {
  const SavedError saved;
  try {
    return row_of(type) != nullptr;
  } catch (const PyError&) {
    return false;
  }
}

Ahead look_ahead(PyObject* iterator, Py_ssize_t count) {
  const WithoutCollector without_collector;  // nothing of the program's may run
  const SavedError saved;
  try {
    Ref copied = copy_and_skip(iterator, 0, count);
    if (!copied) return {};
    Ref value = Ref::steal(PyIter_Next(copied.get()));
    if (!value && PyErr_Occurred()) return {};  // its dict was changed, for example
    return {true, std::move(value)};
  } catch (const PyError&) {
    return {};
  }
}

void each_part_of_iterator(PyObject* iterator, const std::function<void(PyObject*)>& visit) {
  const Row* row = row_of(Py_TYPE(iterator));
  const bool is_chain = row != nullptr && row->kind == Kind::kChain;
  for (PyObject* part : parts_of(iterator)) {
    visit(part);
    if (may_be_data_iterator(Py_TYPE(part))) each_part_of_iterator(part, visit);
    // The tuple of zip, and the one that the first iterator of a chain reads: of its iterables.
    const std::vector<PyObject*> tuples = is_chain ? parts_of(part) : std::vector<PyObject*>{part};
    for (PyObject* tuple : tuples) {
      if (!PyTuple_CheckExact(tuple)) continue;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject* item = PyTuple_GET_ITEM(tuple, i);
        if (item == nullptr) continue;
        if (is_chain) visit(item);
        if (may_be_data_iterator(Py_TYPE(item))) each_part_of_iterator(item, visit);
      }
    }
  }
}

}  // namespace alternator::cpython
