// The state of one compile(), and how a call is dispatched through it.
#pragma once

#include "dispatch/callees.h"
#include "dispatch/frame_interception.h"
#include "dispatch/shared_cache.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace alternator::dispatch {

struct Compilation;
struct FirstCall;  // dispatch/dynamism_policy.h

// The entries of one resume point: the start of the function, or a chain of stopped frames.
struct ResumePoint {
  const Compilation* owner = nullptr;           // never dereferenced
  std::vector<std::shared_ptr<Entry>> entries;  // most recently used first
  size_t traced = 0;  // how many of them this compile() has traced, or took over from its cache owner: see SharedCache
  std::shared_ptr<SharedCache> cache;
  const Entry* recent = nullptr;                    // the last one that was used or made; never dereferenced
  std::unordered_map<std::string, size_t> changes;  // variables whose guards failed and caused a retrace, with counts
  Chain shape;                                      // of the frames; empty: the start of the function
  std::vector<char> present;                        // which values are not null
};

struct Compilation {
  Ref function, self;  // function null: an intercepted callee, of any function object; self null: unbound
  Ref listener;        // receives events: see events.h; null: none
  backend::Backend backend;
  bool fullgraph = false;
  std::optional<bool> dynamic;  // compile()'s: what differs between calls becomes a symbol; or nothing; or everything
  Ref shapes_spec;              // compile()'s, a shapes_spec.Specification; null: none
  // Limit of entries per resume point; beyond it, calls without a matching entry run eagerly. None: the settings'.
  std::optional<size_t> most_entries;
  std::shared_ptr<Store> store;
  std::shared_ptr<CacheOwner> cache_owner =
      std::make_shared<CacheOwner>(Borrowed(), Borrowed());  // identity of this compile() in shared caches
  std::shared_ptr<ResumePoint> start;
  std::vector<std::shared_ptr<ResumePoint>> resumed;
  size_t graphs = 0;                              // made so far
  std::unordered_set<std::string> unspecialized;  // sources that are not specialized on any more: see lift::Lifter
  bool numpy_constants = false;                   // numpy scalars are constants: see trace_entry
  bool was_called = false;                        // see Stance::kEagerFirst
  std::shared_ptr<const FirstCall> first_call;    // ... of the call that ran eagerly
  bool denies = false;                            // torch.compiler.is_compiling() is False in its frames
  std::shared_ptr<Family> family = std::make_shared<Family>();

  explicit Compilation(std::shared_ptr<Store> shared);
  ~Compilation();
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
  // Destructors may run user code and let other threads run: by then nothing must be reachable from here any more.
  void reset() {
    auto fresh = std::make_shared<ResumePoint>();
    fresh->owner = this;
    fresh->cache = store->start;
    graphs = 0;
    unspecialized.clear();
    numpy_constants = false;
    const auto dying =
        std::make_tuple(std::exchange(start, fresh), std::exchange(resumed, {}), std::exchange(family->callees, {}));
  }
};

// How many entries all compile()s of a code object have at its start.
size_t entries_of_code(Borrowed code);

struct Counters {
  uint64_t calls = 0, hits = 0, traces = 0, graphs = 0, eager = 0;
};
extern Counters totals;
extern std::map<std::string, uint64_t> breaks;  // counts by reason

// A call whose arguments already include `self`. Null: an exception is set. `may_trace` false: if no entry matches, the
// call runs eagerly from there.
PyObject* call(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names,
               bool may_trace = true);
// Whether there is an entry for such a call.
bool is_known(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names);

}  // namespace alternator::dispatch
