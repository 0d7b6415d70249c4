// The graph of a new entry goes to its backend.
#pragma once

#include "graph/record/program.h"
#include "lift/sources/source.h"

namespace alternator::backend {

// Calls backend(export, is_as_exported, inputs, sources, code, shape_env, asserts, leaves, apart,
// subclasses).
// - export(fake_mode, module_paths): the graph as a torch.fx.GraphModule, with example values in that mode; or None
//   twice.
// - is_as_exported(module): whether that module would still do what was recorded.
// - inputs: the graph's real inputs in order.
// - sources: for each of them its text, and whether it is a parameter or buffer of a module.
// - code: of the function that was traced.
// - shape_env: of the numbers that only a run knows; None: the graph has none. The example values must be of a mode
// with
//   this one.
// - asserts: whether a run has to check facts about these numbers, which the recorded program does not.
// - leaves: whether it makes a leaf that requires grad, a tensor that gets a hook, gives a tensor other memory
//   (resize_, set_), turns an argument (t_), or writes to memory of an array or of several inputs. AOTAutograd would
//   lose that.
// - apart: whether it has nodes about generators or arrays, which no compiler may get to see.
// - subclasses: whether it makes a tensor of a subclass. AOTAutograd would lose that too.
// It returns (callable, boxed): what runs the graph, and whether that takes its inputs as one list; or None: the
// recorded program itself is to run; or NotImplemented: the graph has numbers of numpy's among its inputs, and the
// backend wants constants.
struct Answer {
  Ref callable;  // null: none
  bool boxed = false;
  bool wants_numbers = false;  // as constants: numbers of numpy's are among the inputs
  bool shares = false;         // it writes to what these inputs have in common; others might be compiled
};
Answer hand_over(const std::shared_ptr<graph::Program>& program, Borrowed backend, Borrowed inputs,
                 const std::vector<const lift::Source*>& sources, Borrowed code);

// Which of a graph's inputs share memory, and where. A backend that rewrites writes into new values has relied on it.
class Sharing {
 public:
  Sharing() = default;
  // `has_arrays`: the graph computes with arrays of numpy's. None of them may lie in the memory of a tensor then.
  Sharing(const std::vector<Ref>& values, const std::vector<size_t>& inputs, bool has_arrays);
  bool holds(const std::vector<Ref>& values, const std::vector<size_t>& inputs) const;

 private:
  // For each input the first one with the same storage; for those that are not alone also the offset into it.
  std::vector<size_t> first_;
  std::vector<int64_t> offsets_;
  bool has_arrays_ = false;
};

}  // namespace alternator::backend
