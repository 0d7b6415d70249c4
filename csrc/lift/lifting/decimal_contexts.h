// Private copies of decimal.Context objects, found again by their parts.
#pragma once

#include "lift/sources/source.h"

#include <functional>
#include <vector>

namespace alternator::lift {

class Lifter;

struct DecimalContext {
  Ref original, copy;
  Ref before;  // what the copy was made of: see parts_of_context()
  Source* source;
  bool seen = false;  // by the program
};

class DecimalContexts {
 public:
  explicit DecimalContexts(Lifter& lifter) : lifter_(lifter) {}

  // Called before the program gets an object that may compute with decimals.
  std::function<void()> on_use;

  // Until the program reads the context itself, the copy has none of its flags: computations only add some.
  Ref lift(Borrowed context, Source* source, bool seen);
  void see_flags(Borrowed copy);
  const std::vector<DecimalContext>& all() const { return contexts_; }

 private:
  Lifter& lifter_;
  std::vector<DecimalContext> contexts_;
};

}  // namespace alternator::lift
