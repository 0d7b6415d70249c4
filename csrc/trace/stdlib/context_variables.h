// contextvars.ContextVar: values that the program sets, in a context of the trace's own.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

struct ContextChange {
  Ref token;
  std::optional<Ref> before;  // the previous value; none: the pre-existing one
};
class ContextVariables {
 public:
  explicit ContextVariables(Tracer& tracer) : t(tracer) {}
  Ref value(Borrowed variable, Borrowed otherwise);
  Ref set(Borrowed variable, Borrowed value);
  void reset(Borrowed variable, Borrowed token);
  void leave();
  Ref context;  // the trace's own, once the program has set something; the thread has entered it

 private:
  void store(Borrowed variable, std::optional<Ref> value);
  std::unordered_map<PyObject*, Ref> values_;  // by variable: what the program has set
  std::vector<ContextChange> changes_;
  Tracer& t;
};

}  // namespace alternator::trace
