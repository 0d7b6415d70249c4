// Sizes and numbers that are symbols of a trace (fake/backed_symbols.h): what a program may do with them, and where the
// trace specializes on them.
#pragma once

#include "graph/sizes/size_reader.h"
#include "graph/sizes/size_solver.h"

#include <memory>
#include <optional>
#include <source_location>

namespace alternator::trace {

class Tracer;

class BackedNumbers {
 public:
  explicit BackedNumbers(Tracer& tracer) : t(tracer) {}
  // Before the trace runs.
  void begin();
  // At its end: what only the whole trace tells. Guards may still be added.
  void finish();

  bool any() const { return symbols_ != nullptr; }
  bool is_backed(Borrowed object) const { return symbols_ != nullptr && symbols_->is_backed(object); }
  // Makes plain numbers of an object and of what it contains: native code is going to read them. `at`: the gate, of
  // which size_switches.def has the file.
  void make_plain(Borrowed value, int depth = 0, const std::source_location& at = std::source_location::current());

  // ... of the sizes of a tensor that the trace has.
  void specialize_sizes(Borrowed tensor);
  // Before an identity test: whether it is the argument of the call that gave it.
  void fix_copy(Borrowed tensor);

  // Without specializing. Whether an object is a number that may differ in another call; which sizes of a tensor may.
  bool varies(Borrowed value) const;
  uint64_t varying_sizes(Borrowed tensor) const;

  // An operation of the module `operator` (or a function of one or two numbers) where all symbols among the operands
  // are backed; null: they are plain numbers now, or one is unbacked.
  Ref operate(const char* function, Borrowed left, Borrowed right);
  // Null: as above.
  Ref compare(Borrowed left, Borrowed right, int operation);
  bool is_nonzero(Borrowed number);

  const std::shared_ptr<fake::BackedSymbols>& symbols() const { return symbols_; }
  // The sizes that were computed in this trace.
  const graph::SizeSolver& solver() const { return *solver_; }

 private:
  shapes::Expression expression_of(Borrowed number);
  Ref number(shapes::Expression expression, Borrowed left, Borrowed right);

  Tracer& t;
  std::shared_ptr<fake::BackedSymbols> symbols_;
  std::optional<graph::SizeSolver> solver_;
  std::optional<graph::SizeReader> reader_;
};

// Whether the value is an unbacked symbol. A backed one is a plain number from here on.
bool is_unbacked(Tracer& t, Borrowed value);

}  // namespace alternator::trace
