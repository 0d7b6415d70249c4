// What users (and torch) mark functions with: "leave this one alone", "one opaque node", "its result never changes".
#pragma once

#include "py/error.h"

#include <string>
#include <utility>
#include <vector>

namespace alternator::trace {

enum class Mark : uint8_t {
  kNone,
  kCompilingQuery,  // asks whether the program is being compiled: yes
  kShield,          // torch's own way to keep TorchDynamo out of a function: it is looked through
  kDisabled,        // torch.compiler.disable, torch._dynamo.disable, alternator.disable
  kGraphBreak,      // torch._dynamo.graph_break, alternator.graph_break, torch._dynamo.step_unsupported
  kSkipFrame,       // torch._dynamo.skip_frame: the function that calls it runs as it is
  kConstant,        // torch.compiler.assume_constant_result
  kExpectation,     // what is behind torch._check()
  kDataCheck,       // what is behind torch._check_tensor_all()
  kMaterialises,    // a lazy module makes its parameters, removes its hooks and changes its class
  kNumber,          // the optimizers' way to a number: item(), or the tensor where the program is being compiled
  kCompiled,        // what torch.compile made: a part of the program, as TorchDynamo takes it
  kNotes,           // TorchDynamo notes, for itself alone, that a module was made
};
Mark mark_of(Borrowed function);
// The reason that was given with kDisabled, and the function's name.
std::string disabled_text(Borrowed function);
// torch.compiler.allow_in_graph: a call is one node, whatever happens in it.
Ref allowed_in_graph();
// torch._dynamo.disallow_in_graph: addresses of callables; null: none. They may change between traces.
Ref disallowed_in_graph();
// torch.compiler.substitute_in_graph: the Python function that stands in for a native one; null: none.
Ref substitute_of(Borrowed callable);
// The Python function that torch.jit.script() was given; null: it is something else, such as a traced function, which
// may do less than its own.
Ref scripted_function(Borrowed callable);
// error_on_graph_break(True), ours and torch's: the modules whose variable says so, and its name.
struct BreakSwitch {
  PyObject* name_space;  // borrowed
  Ref name;
};
std::vector<BreakSwitch> break_switches();
// What alternator.compile made: a call of it is a call of the function behind it.
bool is_compiled(Borrowed callable);

// While one lives, with `denies`: programs that this thread traces are told that nothing is compiled.
class Denying {
 public:
  explicit Denying(bool denies) : before_(std::exchange(active, denies)) {}
  ~Denying() { active = before_; }
  Denying(const Denying&) = delete;
  Denying& operator=(const Denying&) = delete;
  static inline thread_local bool active = false;

 private:
  bool before_;
};

}  // namespace alternator::trace
