// The program's changes of the grad mode: each one is a node of the exported graph, whether it changes anything or not,
// as in TorchDynamo's graphs. (A replay uses the states of the nodes: see ambient_state.h.)
//
// A graph is balanced: blocks (`with torch.no_grad():`) that are open where it begins, after a graph break, are opened
// by it, and those that are open where it ends are closed. So it starts and ends in the mode outside of all blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace alternator::graph {

class GradSets {
 public:
  enum class Setter : uint8_t {
    kCall,          // torch.set_grad_enabled(mode) as a statement
    kEntered,       // a block
    kEnteredAgain,  // a block of torch.set_grad_enabled(mode), whose constructor has set the mode already
    kLeft,
  };
  struct Set {
    uint32_t before_node;
    bool mode;
    bool previous;
    Setter setter;
  };

  // The mode at the start of the program. Without this call (for a part of another program) nothing is recorded.
  void begin(bool mode);
  // A block that is open there already, the outermost first.
  void open(bool previous, bool mode);
  void note(Setter setter, bool previous, bool mode, uint32_t next_node);
  void finish(uint32_t next_node);

  std::optional<bool> outermost() const { return outermost_; }
  const std::vector<Set>& all() const { return sets_; }

 private:
  std::optional<bool> outermost_;  // the mode outside of all blocks
  std::vector<Set> sets_;
  std::vector<bool> open_;  // the mode before each open block
};

}  // namespace alternator::graph
