// How users (and torch) mark functions: "leave this one alone", "one opaque node", "its result never changes".
#pragma once

#include "py/error.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace alternator::trace {

class Tracer;

enum class Mark : uint8_t {
  kNone,
  kCompilingQuery,  // queries whether the program is being compiled: it is
  kShield,          // torch's wrapper that keeps TorchDynamo out of a function (_disable_dynamo): it is traced through
  kDisabled,        // torch.compiler.disable, torch._dynamo.disable, alternator.disable
  kGraphBreak,      // torch._dynamo.graph_break, alternator.graph_break, torch._dynamo.step_unsupported
  kSkipFrame,       // torch._dynamo.skip_frame: the function that calls it falls back to eager
  kConstant,        // torch.compiler.assume_constant_result
  kExpectation,     // the implementation of torch._check()
  kDataCheck,       // the implementation of torch._check_tensor_all()
  kMaterializes,    // a lazy module creates its parameters, removes its hooks and changes its class
  kNumber,          // the optimizers' _get_value(): item(), or the tensor itself while compiling
  kCompiled,        // the result of torch.compile: inlined, as in TorchDynamo
  kNotes,           // TorchDynamo's internal bookkeeping, such as that a module was created
};
constexpr size_t kMarks = static_cast<size_t>(Mark::kNotes) + 1;
Mark mark_of(Borrowed function);
// At the beginning of a trace: functions of modules that were loaded since the last one.
void find_marked_functions();
// A function of the package's own.
void mark_function(Borrowed function, Mark mark);
// The reason that was given with kDisabled, and the function's name.
std::string disabled_text(Borrowed function);
// torch.compiler.allow_in_graph: a call is one node, whatever happens in it.
Ref allowed_in_graph();
// torch._dynamo.disallow_in_graph: addresses of callables; null: none. They may change between traces.
Ref disallowed_in_graph();
// torch.compiler.substitute_in_graph: the Python function that replaces a native one; null: none.
Ref substitute_of(Borrowed callable);
// The Python function that torch.jit.script() was given; null: it is something else, such as a torch.jit.trace result,
// which may do less than its Python function.
Ref scripted_function(Borrowed callable);
// error_on_graph_break(True), ours and torch's: the namespaces of the modules that hold the switch, and its name.
struct BreakSwitch {
  PyObject* name_space;  // borrowed
  Ref name;
};
std::vector<BreakSwitch> break_switches();
void set_break_switch(Borrowed name_space);  // ours
// The result of alternator.compile: a call of it is a call of the wrapped function.
bool is_compiled(Borrowed callable);
void set_compiled_type(PyTypeObject* type);

// While one is alive, with `denies`: is_compiling() is false in programs that this thread traces.
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

class GraphMarks {
 public:
  explicit GraphMarks(Tracer& tracer) : t(tracer) {}
  bool is_disallowed(Borrowed callable);
  bool is_allowed_in_graph(Borrowed callable);

 private:
  std::optional<Ref> disallowed_;  // the tables, loaded on first use
  std::optional<Ref> allowed_;
  Tracer& t;
};

}  // namespace alternator::trace
