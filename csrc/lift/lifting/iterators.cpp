// Pre-existing iterators over tuples and ranges.
#include "lift/lifting/iterators.h"

#include "lift/lifting/lifter.h"

namespace alternator::lift {

// A private iterator at the same position.
Iterators::Iterator Iterators::begin(Borrowed iterator) {
  SourceTree& tree = lifter_.tree();
  Source* source = lifter_.known(iterator)->source;
  Source* reduced = tree.child(source, Access::kReduced);
  // (iter, (iterable,), position); an exhausted one has no position. From 3.12 on a range iterator gives the remaining
  // range, and its position is None.
  Ref state = checked(PyObject_CallMethod(iterator.get(), "__reduce__", nullptr));
  if (!PyTuple_CheckExact(state.get()) || PyTuple_GET_SIZE(state.get()) != 3) throw CannotLift("an exhausted iterator");
  lifter_.guard(reduced, GuardKind::kLength, {}, 3);
  Ref through = lifter_.lift(PyTuple_GET_ITEM(PyTuple_GET_ITEM(state.get(), 1), 0),
                             tree.child(tree.child(reduced, Access::kIndex, {}, 1), Access::kIndex, {}, 0));
  Ref position = lifter_.lift(PyTuple_GET_ITEM(state.get(), 2), tree.child(reduced, Access::kIndex, {}, 2));
  Ref copy = checked(PyObject_GetIter(through.get()));
  if (position.get() != Py_None) checked(PyObject_CallMethod(copy.get(), "__setstate__", "O", position.get())).reset();
  return {source, std::move(copy)};
}

Ref Iterators::next(Borrowed iterator) {
  auto found = iterators_.find(iterator.get());
  if (found == iterators_.end()) {
    found = iterators_.emplace(iterator.get(), begin(iterator)).first;
    advanced_.push_back(iterator.get());
  }
  found->second.asked++;
  Ref value = Ref::steal(PyIter_Next(found->second.copy.get()));
  if (!value && PyErr_Occurred()) throw PyError();
  return value;
}

void Iterators::add_writes(std::vector<VariableWrite>& writes) const {
  for (PyObject* iterator : advanced_) {
    const Iterator& entry = iterators_.at(iterator);
    writes.push_back({VariableKind::kIterator, entry.source, {}, checked(PyLong_FromSsize_t(entry.asked))});
  }
}

}  // namespace alternator::lift
