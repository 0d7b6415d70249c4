// torch.Generator objects in a trace: their methods are nodes in separate segments; the seeds that the trace knows.
#pragma once

#include "trace/core/call.h"

#include <string>
#include <unordered_set>

namespace alternator::trace {

class Tracer;

// A call of a generator's method.
struct GeneratorCall {
  std::string name;  // for messages
  Borrowed generator;
  PyObject* const* arguments;  // without the generator
  size_t count;
  bool all_devices = false;  // torch.manual_seed() and torch.seed()
};

class RandomGenerators {
 public:
  explicit RandomGenerators(Tracer& tracer) : t(tracer) {}

  // It is an argument of a call that becomes a node.
  void use(Borrowed generator);
  Ref attribute(Borrowed generator, Borrowed name);

  // torch.Generator(...)
  Ref make(const Call& call);
  // Its methods.
  Ref manual_seed(const GeneratorCall& call);
  Ref seed(const GeneratorCall& call);
  Ref initial_seed(const GeneratorCall& call);
  Ref get_state(const GeneratorCall& call);
  Ref set_state(const GeneratorCall& call);
  [[noreturn]] Ref refuse(const GeneratorCall& call);

 private:
  void note_node(const GeneratorCall& call, Borrowed method, Borrowed function, Ref result);
  void note_seed(Borrowed generator, Borrowed seed);  // null: it is unknown
  Ref state_of(Borrowed generator);

  Tracer& t;
  PyObject* last_seeded_ = nullptr;  // of the pre-existing generators; borrowed: only compared
  Ref last_seed_;
  std::unordered_set<PyObject*> unknown_seeds_;  // generators that the trace made; borrowed
};

}  // namespace alternator::trace
