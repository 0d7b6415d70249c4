#include "lift/lifting/iterators.h"

#include "cpython/iterator_copies.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/write_log.h"

#include <algorithm>

namespace alternator::lift {

bool Iterators::is_preexisting(Borrowed iterator) const {
  if (!cpython::may_be_data_iterator(iterator.type())) return false;
  const Known* known = lifter_.known(iterator);
  return known != nullptr && known->opaque;
}

// The iterator reads the containers themselves; the program may have written to its private copies of them.
void Iterators::check_unchanged(Borrowed iterator) const {
  const std::deque<Shadow>& shadows = lifter_.containers->shadows();
  cpython::each_part_of_iterator(iterator.get(), [&](PyObject* part) {
    const auto is_changed = [&](const Shadow& shadow) { return shadow.original.get() == part && is_written(shadow); };
    if (std::ranges::any_of(shadows, is_changed))
      throw CannotLift("an iterator over a container that was changed before");
  });
}

Iterators::Value Iterators::next(Borrowed iterator) {
  check_unchanged(iterator);
  Source* source = lifter_.known(iterator)->source;
  auto found = iterators_.find(iterator.get());
  const bool is_new = found == iterators_.end();
  const Iterator before = is_new ? Iterator{source} : found->second;
  const Py_ssize_t count = before.asked;
  cpython::Ahead ahead{true, {}};
  if (!before.ended) ahead = cpython::look_ahead(iterator.get(), count);
  if (!ahead.known) throw CannotLift("an iterator whose values cannot be known in advance");
  if (is_new) {
    found = iterators_.emplace(iterator.get(), before).first;
    advanced_.push_back(iterator.get());
  }
  found->second.asked++;
  if (ahead.value) return {std::move(ahead.value), lifter_.tree().child(source, Access::kNext, {}, count)};
  if (!before.ended) lifter_.guard(source, GuardKind::kEnds, {}, count);
  found->second.ended = true;
  return {{}, nullptr};
}

void Iterators::finish() {
  for (PyObject* iterator : advanced_) {
    const Iterator& entry = iterators_.at(iterator);
    if (!entry.ended) lifter_.guard(entry.source, GuardKind::kYields, {}, entry.asked);
  }
}

void Iterators::add_writes(std::vector<VariableWrite>& writes) const {
  for (PyObject* iterator : advanced_) {
    const Iterator& entry = iterators_.at(iterator);
    writes.push_back({VariableKind::kIterator, entry.source, {}, checked(PyLong_FromSsize_t(entry.asked))});
  }
}

}  // namespace alternator::lift
