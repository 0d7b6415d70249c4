// optree, the native twin of torch.utils._pytree: its functions run on trees that are fully lifted.
#pragma once

#include "trace/core/call.h"

#include <string>

namespace alternator::trace {

class Tracer;

class Optree {
 public:
  explicit Optree(Tracer& tracer) : t(tracer) {}

  // A call of one of its functions; `name` is for messages.
  Ref call(const Call& call, const std::string& name);

 private:
  void use_registry();
  void check_argument(const Call& call, size_t i, const std::string& name);
  void check(Borrowed tree, int depth = 0);

  Tracer& t;
  bool registry_used_ = false;
};

}  // namespace alternator::trace
