// Builds an entry from a trace.
#pragma once

#include "dispatch/entry.h"
#include "trace/core/tracer.h"

namespace alternator::dispatch {

// A restart is needed, see trace_entry(). Speculated checks, but the graph cannot be discarded and repeated;
struct NeedsRepeatable {};
// ... one graph holds both a failure that the program could observe and irreversible mutations;
struct NeedsSeparateSegments {};
// ... the backend, or a failure of the trace, needs the value of a numpy scalar input.
struct NeedsNumpyConstants {};
// ... the backend, or a call with other values, needs the values of symbols as constants: by the texts of their
// sources.
struct NeedsStatic {
  std::unordered_map<std::string, uint64_t> sizes, layouts;
  std::unordered_set<std::string> numbers;
  std::string reason;
  lift::Site site;  // the instruction that does; none: a compiler

  // The symbol of that origin.
  void add(const std::string& source, const fake::BackedSymbols::Origin& origin);
  bool empty() const { return sizes.empty() && layouts.empty() && numbers.empty(); }
};

// Of a trace that returned, or was cut. Throws replay::CannotRebuild.
std::unique_ptr<Entry> build_entry(trace::Tracer& tracer, guards::AmbientGuard ambient);
// Of a trace that captured nothing: what it read until then is guarded.
std::unique_ptr<Entry> build_eager_entry(trace::Tracer& tracer, guards::AmbientGuard ambient, report::Break why);
// Gives the graph a runner, and the entry its failure policy; what the runner relies on is guarded. False: what the
// trace had read has changed meanwhile.
bool compile_entry(Entry& entry, const guards::Roots& roots, const backend::Backend& backend, Borrowed code,
                   bool last_try);

// The result of a trace. Throws what a signal handler raised: nothing was mutated, and the program's frames have not
// seen the exception.
trace::TraceResult& uninterrupted(trace::TraceResult& traced);
// The innermost frame that waits for its callee through native code; -1: there is none. The frames around it cannot be
// resumed as they are either: further such frames are found when the trace is cut at this one.
int waits_through_native_code(const Chain& chain);
// Whether all frames of the call are there: the unwinding exception may have been swallowed on its path.
bool is_whole(const Chain& cut, const Chain& from);

}  // namespace alternator::dispatch
