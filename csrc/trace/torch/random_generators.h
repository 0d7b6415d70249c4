// TODO
#pragma once
#include <unordered_set>

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class RandomGenerators {
 public:
  explicit RandomGenerators(Tracer& tracer) : t(tracer) {}
  // random_generators.cpp: a torch.Generator is an argument of a call that becomes a node.
  void use(Borrowed generator);
  Ref attribute(Borrowed generator, Borrowed name);
  // Null: it is no call of a torch.Generator method.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);

 private:
  Ref make(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void note_seed(Borrowed generator, Borrowed seed);  // null: it is unknown
  Ref initial_seed(Borrowed generator);
  Ref state_of(Borrowed generator);
  PyObject* last_seeded_ = nullptr;  // of the pre-existing generators; borrowed: only compared
  Ref last_seed_;
  std::unordered_set<PyObject*> unknown_seeds_;  // generators that the trace made; borrowed
  Tracer& t;
};

}  // namespace alternator::trace
