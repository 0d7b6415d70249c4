// What one compile() knows, and how a call goes through it.
#pragma once

#include "dispatch/frame_interception.h"
#include "dispatch/shared_cache.h"

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace alternator::dispatch {

struct Compilation;

// The entries of one place: the start of the function, or a chain of frames that stopped.
struct ResumePoint {
  const Compilation* owner = nullptr;           // never looked at
  std::vector<std::shared_ptr<Entry>> entries;  // the one that was used last stands first
  size_t traced = 0;  // how many of them are made here, or left by its cache_owner: see SharedCache
  std::shared_ptr<SharedCache> cache;
  std::unordered_map<std::string, size_t> changes;  // variables that were the reason for a trace, and of how many
  Chain shape;                                      // of the frames; empty: the start
  std::vector<char> present;                        // which values there are
};

struct Compilation {
  Ref function, self;  // function null: of a callee, whose function may be another one in each call; self null: none
  Ref listener;        // is told what happens: see events.h; null: nobody
  Backend backend;
  bool fullgraph = false;
  size_t most_entries = 0;  // that are made at a place; after that, calls that none fits run as they are
  std::shared_ptr<Store> store;
  std::shared_ptr<CacheOwner> cache_owner =
      std::make_shared<CacheOwner>(Borrowed(), Borrowed());  // this one, to the caches
  std::shared_ptr<ResumePoint> start;
  std::vector<std::shared_ptr<ResumePoint>> resumed;
  size_t graphs = 0;                              // that were made
  std::unordered_set<std::string> unspecialized;  // variables that no entry is made for any more: see lift::Lifter
  bool knows_numpy = false;                       // numbers of numpy's are constants: see trace_entry
  bool was_called = false;                        // see Stance::kEagerFirst
  bool denies = false;                            // whoever asks whether the program is being compiled is told no
  std::shared_ptr<Family> family = std::make_shared<Family>();

  explicit Compilation(std::shared_ptr<Store> shared) : store(std::move(shared)) { reset(); }
  // What dies runs code of the program's, and lets other threads run: by then nothing is found here any more.
  void reset() {
    auto fresh = std::make_shared<ResumePoint>();
    fresh->owner = this;
    fresh->cache = store->start;
    graphs = 0;
    unspecialized.clear();
    knows_numpy = false;
    const auto dying =
        std::make_tuple(std::exchange(start, fresh), std::exchange(resumed, {}), std::exchange(family->callees, {}));
  }
};

struct Counters {
  uint64_t calls = 0, hits = 0, traces = 0, graphs = 0, eager = 0;
};
extern Counters totals;
extern std::map<std::string, uint64_t> breaks;  // by reason

// A call with `self` among the arguments already. Null: an exception is set.
// `may_trace` false: where no entry fits, the call runs as it is from there.
PyObject* call(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names,
               bool may_trace = true);
// Between the two, functions that are called on this thread are compiled, each by itself, as what an instruction that
// is executed for real calls. The compilation must live until the end.
void begin_interception(Compilation& compilation);
void end_interception(Compilation& compilation);
// Whether there is an entry for such a call.
bool is_known(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names);

}  // namespace alternator::dispatch
