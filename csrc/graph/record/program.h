// The recorded program: one node per torch API call, in order, over tensors that are identified by index.
#pragma once

#include "fake/backed_symbols.h"
#include "graph/record/ambient_state.h"
#include "graph/record/call_site.h"
#include "graph/record/grad_mode_nodes.h"
#include "graph/record/value.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace alternator::graph {

// Why a node is kept although its result is unused.
enum Effects : uint8_t {
  kPure = 0,
  kMutates = 1,     // mutates a tensor that exists outside of the call
  kRandom = 2,      // draws from a generator
  kActs = 4,        // anything else: hooks, setters, operators without results
  kTransforms = 8,  // enters or leaves a functorch transform, or a part of one
  kChecks = 16,     // may raise, depending on data
};

// What the name of a callable tells (node_effects.def).
enum Traits : uint16_t {
  kNoTraits = 0,
  kWritesFirst = 1,    // if it mutates, then its first argument only
  kInPlaceMethod = 2,  // named like x.add_()
  kInPlace = kWritesFirst | kInPlaceMethod,
  kUnversioned = 4,         // its writes need not increment a version counter
  kReplacesStorage = 8,     // its first argument gets other memory, or more
  kRestrides = 16,          // same memory, other sizes and strides: x.t_()
  kTakesLists = 32,         // torch._foreach_...
  kDifferentiates = 64,     // torch.autograd.grad
  kReadsAttribute = 128,    // the __get__ of a descriptor
  kSetsAttribute = 256,     // ... its __set__
  kDeletesAttribute = 512,  // ... its __delete__
  kIndexes = 1024,          // x[i]
};

// Calls without side effects whose results are unused. A caller that needs the exact behavior of the recorded code
// keeps them: they may raise, depending on data.
enum class Unused : uint8_t { kGo, kStay };

struct Node {
  Ref callable;
  Ref wrapped = {};        // the function that `callable` wraps, its first argument; null: `callable` is no wrapper
  Ref keyword_names;       // a tuple of str, or null
  Ref bindings = {};       // the new unbacked symbols in its result; null: none
  uint32_t arguments = 0;  // the first of positional + keyword values, in the arena
  uint16_t positional = 0;
  uint16_t keyword = 0;
  uint32_t elements = 0;  // the first of its elements
  uint32_t element_count = 0;
  uint32_t result = kNowhere;  // the tensor that it returns; kNowhere: a container, or nothing new
  uint32_t site = kNowhere;
  uint32_t scope = kNowhere;
  uint16_t state = 0;
  uint16_t checkpoint = 0;      // the checkpointed region of the program that it belongs to; 0: none
  uint16_t traits = kNoTraits;  // of function()
  uint8_t effects = kPure;
  bool live = true;
  bool overridden = false;  // an argument is of a subclass, which may override the torch.Tensor method
  bool separate = false;  // about a generator or an array: in a separate segment, not compiled (alternator/segments.py)

  uint32_t argument_count() const { return static_cast<uint32_t>(positional) + keyword; }
  const Ref& function() const { return wrapped ? wrapped : callable; }
  bool has(Traits trait) const { return (traits & trait) != 0; }
  // If it mutates a tensor, it is its first argument. Torch functions that user code wraps may write to any.
  bool writes_first_only() const { return !wrapped && has(kWritesFirst); }
};

// A part of a node's result: `result[key]`, or `element[key]` of another one.
struct Element {
  uint32_t node;
  uint32_t container;  // an element, or kWhole
  Ref key;
  uint32_t tensor = kNowhere;  // kNowhere: a container
  bool live = true;
};
inline constexpr uint32_t kWhole = UINT32_MAX;

enum class Origin : uint8_t {
  Input,     // index: position among declared inputs
  Result,    // index: the node whose result it is
  Element,   // index: the element
  Constant,  // index: position among constants
};

// A tensor, a number (an unbacked symbol, or an expression over backed ones), a torch.Generator, or a numpy array.
struct TensorRecord {
  at::Tensor fake;  // keeps the tensor's identity alive; undefined: no tensor
  Origin origin;
  uint32_t index;
  Ref symbol = {};                          // the symbol as the interpreter sees it; or the generator, or the array
  Ref torch_symbol = {};                    // ... as torch sees it; null: no unbacked symbol
  shapes::Expression expression = nullptr;  // a number over backed symbols; null: none
  bool varies = false;                      // its sizes may depend on a backed symbol

  bool is_symbol() const { return static_cast<bool>(symbol); }
};

struct Input {
  uint32_t tensor;
  Ref label;                             // the user's expression ("L['x']"), or None
  Ref source;                            // returned to the caller: where to find the real tensor
  std::optional<uint32_t> version = {};  // of the fake, when it was declared; none: it has no version counter
  shapes::Expression number = nullptr;  // the guards compute it in each call (BackedSymbols::results); it has no source
  fake::SymbolicGeometry geometry = {};  // of a tensor
};

// A tensor whose value was known while recording.
struct Constant {
  uint32_t tensor;
  at::Tensor value;
  uint32_t version;    // of the fake, when it was first seen
  bool fresh = false;  // mutated or returned: every replay needs a new copy
};

class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::vector<Node> nodes;
  std::vector<Element> elements;
  std::vector<TensorRecord> tensors;
  std::vector<Input> declared;  // all potential inputs
  std::vector<Constant> constants;
  std::vector<Ambient> states;  // states[0] is the state on entry
  GradSets grad_sets;
  uint16_t exit_state = 0;
  uint16_t checkpoints = 0;  // how many regions are checkpointed
  Arena arena;
  SiteTable sites;
  ModuleTable modules;
  Value result{};                               // what the program returns: a tree of values
  Ref shape_env;                                // of the unbacked symbols; null: there are none
  size_t asserts = 0;                           // deferred runtime asserts about them
  std::shared_ptr<fake::BackedSymbols> backed;  // null: all sizes and numbers are constants
  // A hook is registered on the autograd history of a tensor that it computes: AOTAutograd would produce another
  // history.
  bool keeps_history = false;
  // It computes with numpy arrays, which tensors may share memory with: a write is visible under other names too.
  bool has_arrays = false;
  bool makes_subclasses = false;  // it creates a tensor of a subclass: torch's compilers lose that

  // Whether a run may mutate its inputs.
  bool may_write_to_inputs() const;

  // After finish(): the inputs that live nodes and the result use, in the order of first use, as positions in
  // `declared`; the tensors of the result, each once, in order.
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;

  // Marks the live nodes and orders the inputs. Called once, after `result` is set.
  void finish(Unused unused);

  Value argument(const Node& node, uint32_t i) const { return arena[node.arguments + i]; }
  // Calls visit(tensor) for every tensor among the arguments, in order of evaluation, with repetitions.
  template <class Visit>
  void each_tensor_argument(const Node& node, Visit&& visit) const {
    for (uint32_t i = 0; i < node.argument_count(); ++i)
      each_leaf(arena, argument(node, i), [&](Value leaf) {
        if (leaf.is_tensor()) visit(leaf.index);
      });
  }
  // Of a node that mutates: calls visit(tensor) for every tensor whose memory it may write to.
  template <class Visit>
  void each_written(const Node& node, Visit&& visit) const {
    const uint32_t count = node.writes_first_only() ? std::min(1U, node.argument_count()) : node.argument_count();
    for (uint32_t i = 0; i < count; ++i)
      each_leaf(arena, argument(node, i), [&](Value leaf) {
        if (leaf.is_tensor()) visit(leaf.index);
      });
  }
  // The node that produces a tensor, or kNowhere.
  uint32_t producer(uint32_t tensor) const;
  size_t live_count() const;
  // The grad mode in which its graph is compiled and run. AOTAutograd decides by it, once for a whole graph, whether
  // there is anything to differentiate: so it is off only where it is off for every node.
  bool grad_around() const;
  bool has_separate_segments() const;  // a live node that runs in a separate segment

  // Garbage collection: every Python object that the program owns.
  int traverse(visitproc visit, void* argument);
  void clear();

 private:
  void mark_live(Unused unused);
  void order_inputs();
  void settle_constants();
};

// The program's return value, over `tensors` in the order of Program::outputs.
Ref unflatten(const Program& program, Borrowed tensors);

}  // namespace alternator::graph
