// Entries that several compile()s of the same code, backend and options have made.
//
// Each compile() keeps its own list of entries, in its own order and with its own limit. The shared cache lets others
// find them: what one block of a model has compiled, the next eleven use. Entries stay there when their users are gone:
// a function that is recompiled for every call is traced once.
#pragma once

#include "dispatch/entry.h"
#include "lift/lifting/dynamism.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace alternator::dispatch {

// Identity of whoever made an entry, as long as both function and self live. Compiling a function again gives the same
// cache owner.
class CacheOwner {
 public:
  // `function` null: equal to no other owner.
  CacheOwner(Borrowed function, Borrowed self) {
    if (!function) return;
    function_ = weak_reference(function);
    if (self) self_ = weak_reference(self);
    if (!function_ || (self && !self_)) function_.reset();
  }
  bool is(const CacheOwner& other) const {
    return alive(function_) != nullptr && alive(function_) == alive(other.function_) && !self_ == !other.self_ &&
           (!self_ || (alive(self_) != nullptr && alive(self_) == alive(other.self_)));
  }

 private:
  static Ref weak_reference(Borrowed object) {
    Ref reference = Ref::steal(PyWeakref_NewRef(object.get(), nullptr));
    if (!reference) PyErr_Clear();  // a class without weak references
    return reference;
  }
  static PyObject* alive(const Ref& reference) {
    if (!reference) return nullptr;
    PyObject* object = PyWeakref_GET_OBJECT(reference.get());
    return object != Py_None ? object : nullptr;
  }

  Ref function_, self_;
};

// Of one resume point: see call.h.
struct SharedCache {
  struct Slot {
    std::shared_ptr<Entry> entry;
    std::shared_ptr<CacheOwner> cache_owner;

    bool is_unused() const { return entry.use_count() == 1; }  // no compile() uses it any more
  };
  Chain shape;
  std::vector<char> present;
  std::vector<Slot> slots;  // oldest first
  bool gave_up = false;     // the limit was hit, and that was reported
  lift::Dynamism dynamism;  // the sizes and numbers that differed between calls: symbols of the next traces
  std::unordered_map<std::string, size_t> fixed;  // how many entries in a row have specialized on such a symbol

  // Of those that no compile() uses any more, the newest `most` stay.
  void add(const std::shared_ptr<Entry>& entry, const std::shared_ptr<CacheOwner>& cache_owner, size_t most) {
    size_t unused = static_cast<size_t>(std::count_if(slots.begin(), slots.end(), std::mem_fn(&Slot::is_unused)));
    std::vector<Slot> kept, dying;  // destructors may run user code: by then these are unreachable
    for (Slot& slot : slots) {
      const bool goes = unused > most && slot.is_unused();
      unused -= goes ? 1 : 0;
      (goes ? dying : kept).push_back(std::move(slot));
    }
    slots = std::move(kept);
    slots.push_back({entry, cache_owner});
  }
  void remove(const std::shared_ptr<Entry>& entry) {
    std::erase_if(slots, [&](const Slot& slot) { return slot.entry == entry; });
  }
  // Newest first. Entries that captured nothing and have no user left are excluded, so that the trace is retried:
  // markers and settings may differ now.
  template <class Wanted>
  std::vector<std::shared_ptr<Entry>> find(Wanted&& wanted) const {
    std::vector<std::shared_ptr<Entry>> found;
    for (size_t i = slots.size(); i-- > 0;) {
      if (slots[i].is_unused() && slots[i].entry->eager_because) continue;
      if (wanted(slots[i])) found.push_back(slots[i].entry);
    }
    return found;
  }
  std::vector<std::shared_ptr<Entry>> unused_of(const CacheOwner& cache_owner) const {
    return find([&](const Slot& slot) { return slot.is_unused() && slot.cache_owner->is(cache_owner); });
  }
  std::vector<std::shared_ptr<Entry>> others(const std::vector<std::shared_ptr<Entry>>& own) const {
    return find([&](const Slot& slot) { return std::find(own.begin(), own.end(), slot.entry) == own.end(); });
  }
};

// All resume points of one code object.
struct Store {
  std::shared_ptr<SharedCache> start = std::make_shared<SharedCache>();
  std::vector<std::shared_ptr<SharedCache>> resumed;

  void clear() {
    std::vector<std::vector<SharedCache::Slot>> dying;
    auto empty = [&](SharedCache& cache) {
      cache.gave_up = false;
      cache.dynamism = {};
      cache.fixed = {};
      dying.push_back(std::exchange(cache.slots, {}));
    };
    empty(*start);
    for (const std::shared_ptr<SharedCache>& cache : std::exchange(resumed, {})) empty(*cache);
  }
};

}  // namespace alternator::dispatch
