// The residual program: what a call does in Python once its tensors are computed.
//
//   std::vector<Ref> outputs;                 // fakes that the graph has to return, in order
//   std::vector<lift::Source*> needed;        // pre-existing objects that it needs, in order
//   Residual residual = Residual::build(lifter, result, &outputs, &needed);
//   ...
//   Ref value = residual.run(values_of_needed, real_tensors);   // many times
//
// A run makes all new objects first, then writes to pre-existing objects in the order in which they were first lifted;
// replaced values die after the last write. Nothing of a call is kept.
#pragma once

#include "replay/cannot_rebuild.h"
#include "replay/residual_program.h"
#include "replay/world.h"

#include <c10/util/SmallVector.h>

namespace alternator::replay {

// Frame objects that are referenced: those that resume after the call's stop, and (the stand-ins of) pre-existing ones
// that have ended in the call.
struct Frames {
  std::vector<Borrowed> go_on, ended;
};

class Residual {
 public:
  Residual() = default;

  // Throws CannotRebuild, or PyError. `graph_outputs` and `needed` may have entries already: new ones are appended. A
  // call that stops in mid-frame has many results, some of them null. `raises`: the result is an exception, with its
  // traceback, that the call raises.
  static Residual build(World& world, const std::vector<Borrowed>& results, std::vector<Ref>* graph_outputs,
                        std::vector<lift::Source*>* needed, bool raises = false, const Frames& frames = {});
  static Residual build(World& world, Borrowed result, std::vector<Ref>* graph_outputs,
                        std::vector<lift::Source*>* needed) {
    return build(world, std::vector<Borrowed>{result}, graph_outputs, needed);
  }
  static Residual build(lift::Lifter& lifter, const std::vector<Borrowed>& results, std::vector<Ref>* graph_outputs,
                        std::vector<lift::Source*>* needed, bool raises = false, const Frames& frames = {});

  // `graph_outputs`: a list or tuple of tensors. Reentrant. On an exception the mutations made so far stay, as in
  // eager. A program that raises returns its exception.
  Ref run(const std::vector<Ref>& needed_values, Borrowed graph_outputs) const;
  using Results = c10::SmallVector<Ref, 32>;
  Results run_all(const std::vector<Ref>& needed_values, PyObject* const* graph_outputs, size_t count) const;

  std::string text() const { return text_of(program_); }
  // Whether it has side effects, besides making its results.
  bool acts() const;
  std::vector<std::string> lines() const { return lines_of(program_); }
  std::vector<std::string> results() const { return results_of(program_); }
  const Program& program() const { return program_; }
  void place_numbers(size_t first, const std::vector<std::string>& texts) { program_.place_numbers(first, texts); }

  // Garbage collection.
  int traverse(visitproc visit, void* argument) const;
  void clear();

 private:
  Program program_;
};

// Raises a reconstructed exception with its own traceback.
[[noreturn]] void raise_again(Ref exception);

}  // namespace alternator::replay
