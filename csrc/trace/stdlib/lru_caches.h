// functools.lru_cache functions: what their cache has, or what the wrapped function computes and the cache will have.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

class LruCaches {
 public:
  explicit LruCaches(Tracer& tracer) : t(tracer) {}

  // Of a pre-existing lru_cache function.
  Ref call(const Call& call);
  // What functools.update_wrapper or the program has set on an lru_cache function. Null: it is another object, or the
  // attribute is about its cache.
  Ref attribute(Borrowed owner, Borrowed name);

 private:
  Ref call_inlined(const Call& call, Borrowed wrapped);
  Ref call_pure(const Call& call, Borrowed wrapped);
  Ref call_repeated(const Call& call, Borrowed wrapped);
  Ref find_cached(const Call& call);
  bool is_preexisting_value(Borrowed value);
  bool may_be_key(Borrowed argument);

  Tracer& t;
  Ref cached_;  // dict: calls of lru_cache functions in this trace -> their results
};

}  // namespace alternator::trace
