// Hands the graph of a new entry to its backend.
#pragma once

#include "graph/record/program.h"
#include "lift/sources/source.h"

namespace alternator::backend {

// Calls backend(export, is_as_exported, inputs, sources, code, shape_env, asserts, aot_incompatible, separate,
// subclasses), all positional.
// - export(fake_mode, module_paths): the graph as a torch.fx.GraphModule, with example values in that mode; both
//   arguments may be None.
// - is_as_exported(module): whether that module would still do what was recorded.
// - inputs: the graph's real inputs in order.
// - sources: for each input its source text, and whether it is a parameter or buffer of a module.
// - code: the code object of the traced function.
// - shape_env: the ShapeEnv of the unbacked symbols; None: the graph has none. Example values must belong to a
//   FakeTensorMode with this ShapeEnv.
// - asserts: whether a run has to check runtime assertions on these symbols, which the recorded program does not.
// - aot_incompatible: whether the graph makes an autograd leaf that requires grad, registers a tensor hook, replaces or
//   resizes a storage (resize_, set_), permutes an input in place (t_), or writes to memory of an array or of several
//   inputs. AOTAutograd would lose that.
// - separate: whether it has nodes on generators or numpy arrays, which run in separate segments and which no compiler
//   may see.
// - subclasses: whether it makes a tensor of a subclass. AOTAutograd would lose that too.
// It returns (callable, boxed): what runs the graph, and whether that takes its inputs as one list; or None: run the
// recorded program, uncompiled; or NotImplemented: the graph has numpy scalar inputs, and the backend needs them as
// constants.
struct Answer {
  Ref callable;  // null: the recorded program runs
  bool boxed = false;
  bool wants_numbers = false;  // numpy scalar inputs must become constants: retrace
  bool shares = false;         // it writes to memory that these inputs share; others might be compilable
};
Answer hand_over(const std::shared_ptr<graph::Program>& program, Borrowed backend, Borrowed inputs,
                 const std::vector<const lift::Source*>& sources, Borrowed code);

// Which of a graph's inputs share memory, and at which offsets. A backend that functionalizes mutations relies on it.
class Sharing {
 public:
  Sharing() = default;
  // `has_arrays`: the graph computes with numpy arrays, none of which may then overlap the memory of a tensor.
  Sharing(const std::vector<Ref>& values, const std::vector<size_t>& inputs, bool has_arrays);
  bool holds(const std::vector<Ref>& values, const std::vector<size_t>& inputs) const;

 private:
  // For each input the first one with the same storage; for those that share theirs also the storage offset.
  std::vector<size_t> first_;
  std::vector<int64_t> offsets_;
  bool has_arrays_ = false;
};

}  // namespace alternator::backend
