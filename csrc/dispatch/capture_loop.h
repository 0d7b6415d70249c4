// One call in progress: from resume point to resume point, through entries that match or are traced.
#pragma once

#include "dispatch/compiled_call.h"

namespace alternator::dispatch {

class Call {
 public:
  Call(Compilation& compilation, Borrowed function, bool may_trace = true)
      : compilation_(compilation), function_(Ref::share(function)), may_trace_(may_trace) {}

  // The entry for the current position, traced if there is none; null: the call continues uncompiled.
  std::shared_ptr<Entry> find(ResumePoint& point, std::vector<Ref>* values);
  Ref run();
  bool is_known();

  // After it continues uncompiled: whether frames that it begins are intercepted; and the continuation itself.
  bool intercepts = false;
  Ref continue_eagerly();
  // An exception is set that none of the program's frames has seen: raise it at their current position. False: there
  // are no frames.
  bool raise_in_frames();

  Chain chain;                    // empty: the function has not begun
  Chain next;                     // where the call resumes next; empty except during that transition
  std::vector<Ref> slots;         // fast locals of a function that has not begun
  std::vector<PyObject*> values;  // of `chain` or `slots`, for guards

 private:
  guards::Roots roots() const { return {function_.get(), values.data()}; }
  void collect_values();
  void advance() {
    chain.swap(next);
    next.clear();
  }
  void drop_replaced();
  void leave_frames() {
    const SavedError on_its_way;
    chain.clear();
  }
  Chain start() const;
  void note_changes(ResumePoint& point);
  void note_first_call(SharedCache& cache);
  size_t entries_in_all(const ResumePoint& point) const;
  bool is_at_limit(ResumePoint& point);
  bool recover_from(const Entry& entry, graph::Failure& failure);
  std::shared_ptr<Entry> find_or_none(ResumePoint& point, std::vector<Ref>* found_values);
  const char* option_that_refuses(const Entry& entry) const;
  bool falls_back(const Entry& entry);
  std::shared_ptr<Entry> trace(ResumePoint& point);
  std::shared_ptr<Entry> adopt(ResumePoint& point, std::vector<Ref>* found_values);

  bool is_graphless() const { return !compilation_.function && compilation_.graphs == 0; }

  Compilation& compilation_;
  Ref function_;
  bool may_trace_;
  int traces_ = 0;
  Ref raised_;  // raised by the instruction that the chain resumes at
};

// Nesting depth of calls in progress on this thread.
extern thread_local int call_depth __attribute__((tls_model("initial-exec")));

class NestedCall {
 public:
  NestedCall() { call_depth++; }
  ~NestedCall() { call_depth--; }
  NestedCall(const NestedCall&) = delete;
  NestedCall& operator=(const NestedCall&) = delete;
};

}  // namespace alternator::dispatch
