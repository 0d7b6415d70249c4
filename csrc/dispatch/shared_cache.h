// Entries that several compile()s of the same code, backend and options have made.
//
// Each compile() keeps its own list of entries, in its own order and with its own limit. On the cache they stand for
// others to find: what one block of a model has compiled, the next eleven use. They stay there when those who used them
// are gone: a function that is compiled anew for every call is traced once.
#pragma once

#include "dispatch/entry.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace alternator::dispatch {

// Who made an entry, as long as both are there. A function that is compiled again is the same cache_owner.
class CacheOwner {
 public:
  // `function` null: nobody in particular.
  CacheOwner(Borrowed function, Borrowed self) {
    if (!function) return;
    function_ = weakly(function);
    if (self) self_ = weakly(self);
    if (!function_ || (self && !self_)) function_.reset();
  }
  bool is(const CacheOwner& other) const {
    return there(function_) != nullptr && there(function_) == there(other.function_) && !self_ == !other.self_ &&
           (!self_ || (there(self_) != nullptr && there(self_) == there(other.self_)));
  }

 private:
  static Ref weakly(Borrowed object) {
    Ref reference = Ref::steal(PyWeakref_NewRef(object.get(), nullptr));
    if (!reference) PyErr_Clear();  // of a class that has no weak references
    return reference;
  }
  static PyObject* there(const Ref& reference) {
    if (!reference) return nullptr;
    PyObject* object = PyWeakref_GET_OBJECT(reference.get());
    return object != Py_None ? object : nullptr;
  }

  Ref function_, self_;
};

// Of one place: see call.h.
struct SharedCache {
  struct Slot {
    std::shared_ptr<Entry> entry;
    std::shared_ptr<CacheOwner> cache_owner;

    bool is_left() const { return entry.use_count() == 1; }  // nobody uses it any more
  };
  Chain shape;
  std::vector<char> present;
  std::vector<Slot> slots;  // the oldest first
  bool gave_up = false;     // there are too many, and that was said

  // Of those that nobody uses any more, the newest `most` stay.
  void add(const std::shared_ptr<Entry>& entry, const std::shared_ptr<CacheOwner>& cache_owner, size_t most) {
    size_t left = static_cast<size_t>(std::count_if(slots.begin(), slots.end(), std::mem_fn(&Slot::is_left)));
    std::vector<Slot> kept, dying;  // what dies may run code: by then it is found no more
    for (Slot& slot : slots) {
      const bool goes = left > most && slot.is_left();
      left -= goes ? 1 : 0;
      (goes ? dying : kept).push_back(std::move(slot));
    }
    slots = std::move(kept);
    slots.push_back({entry, cache_owner});
  }
  void remove(const std::shared_ptr<Entry>& entry) {
    std::erase_if(slots, [&](const Slot& slot) { return slot.entry == entry; });
  }
  // The newest first. What could not be captured is tried again once nobody remembers it: marks and settings may be
  // others.
  template <class Wanted>
  std::vector<std::shared_ptr<Entry>> find(Wanted&& wanted) const {
    std::vector<std::shared_ptr<Entry>> found;
    for (size_t i = slots.size(); i-- > 0;) {
      if (slots[i].is_left() && slots[i].entry->eager_because) continue;
      if (wanted(slots[i])) found.push_back(slots[i].entry);
    }
    return found;
  }
  std::vector<std::shared_ptr<Entry>> left_by(const CacheOwner& cache_owner) const {
    return find([&](const Slot& slot) { return slot.is_left() && slot.cache_owner->is(cache_owner); });
  }
  std::vector<std::shared_ptr<Entry>> others(const std::vector<std::shared_ptr<Entry>>& own) const {
    return find([&](const Slot& slot) { return std::find(own.begin(), own.end(), slot.entry) == own.end(); });
  }
};

// All places of one code object.
struct Store {
  std::shared_ptr<SharedCache> start = std::make_shared<SharedCache>();
  std::vector<std::shared_ptr<SharedCache>> resumed;

  void clear() {
    std::vector<std::vector<SharedCache::Slot>> dying;
    auto empty = [&](SharedCache& cache) {
      cache.gave_up = false;
      dying.push_back(std::exchange(cache.slots, {}));
    };
    empty(*start);
    for (const std::shared_ptr<SharedCache>& cache : std::exchange(resumed, {})) empty(*cache);
  }
};

}  // namespace alternator::dispatch
