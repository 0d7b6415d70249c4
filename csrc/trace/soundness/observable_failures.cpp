#include "trace/core/tracer.h"

#include "trace/soundness/observable_failures.h"

#include "cpython/instructions.h"
#include "graph/record/node_effects.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/core/user_lines.h"

#include <set>
#include <string_view>
#include <unordered_set>

namespace alternator::trace {

namespace {

constexpr int kMostHandlers = 50;

// --- who sees an exception --------------------------------------------------------------------------------------

// Whether an `except` with this name may catch what torch raises for bad data.
bool may_catch(Borrowed name) {
  Borrowed found = PyDict_GetItemWithError(PyEval_GetBuiltins(), name.get());
  if (!found || !PyExceptionClass_Check(found.get())) return true;  // not a builtin exception: unknown
  for (PyObject* raised : {PyExc_RuntimeError, PyExc_IndexError, PyExc_ValueError}) {
    if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(raised), found.as<PyTypeObject>())) return true;
  }
  return false;
}

// Opcodes that only clean up the frame before the exception is reraised.
bool is_tidying(int opcode) {
  switch (opcode) {
    case NOP:
    case COPY:
    case SWAP:
    case POP_TOP:
    case POP_EXCEPT:
    case LOAD_CONST:
    case STORE_FAST:
    case DELETE_FAST:
#ifdef CALL_INTRINSIC_1
    case CALL_INTRINSIC_1:
#endif
      return true;
    default:
      return false;
  }
}

bool is_class_of_contextlib(PyTypeObject* type, const char* name) {
  Borrowed contextlib = PyDict_GetItemString(PyImport_GetModuleDict(), "contextlib");
  Ref found = contextlib ? Ref::steal(PyObject_GetAttrString(contextlib.get(), name)) : Ref();
  if (!found) PyErr_Clear();
  return found.get() == reinterpret_cast<PyObject*>(type);
}

// torch's context managers only restore what they have set, which happens in any case.
bool is_torchs_manager(Borrowed manager) {
  const SavedError outer;
  PyTypeObject* type = manager.type();
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return graph::is_native_of_torch(type);
  Borrowed exit = _PyType_Lookup(type, names::__exit__);
  if (!exit) return false;
  if (!PyFunction_Check(exit.get())) return graph::is_native_of_torch(type);  // a pybind11 class
  if (is_torchs(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(exit.get())))) return true;
  if (is_class_of_contextlib(type, "nullcontext")) return true;
  if (!is_class_of_contextlib(type, "_GeneratorContextManager")) return false;
  Ref generator = Ref::steal(PyObject_GetAttrString(manager.get(), "gen"));
  if (!generator) PyErr_Clear();
  return generator && PyGen_CheckExact(generator.get()) &&
         is_torchs(cpython::code_of_generator(generator.as<PyGenObject>()));
}

// The `with` blocks that the trace has entered, by their code object and exception handler.
struct Managers {
  using Block = std::pair<PyCodeObject*, int>;
  std::set<Block> torchs, others;

  void note(PyCodeObject* code, int target, Borrowed manager) {
    (is_torchs_manager(manager) ? torchs : others).emplace(code, target);
  }
  bool are_torchs(PyCodeObject* code, int target) const {
    return torchs.count({code, target}) != 0 && others.count({code, target}) == 0;
  }
};
thread_local Managers managers;

bool leaves_with(PyCodeObject* code, int target) {
  const cpython::Instruction first = cpython::decode(code, target);
  return first.opcode == PUSH_EXC_INFO && cpython::decode(code, first.next).opcode == WITH_EXCEPT_START;
}

// Whether the handler observes what torch raises. If not, `*raised_at` is where it reraises.
bool handles(PyCodeObject* code, const cpython::Handler& handler, int* raised_at) {
  cpython::Instruction now = cpython::decode(code, handler.target);
  if (now.opcode == PUSH_EXC_INFO) now = cpython::decode(code, now.next);
  if (now.opcode == WITH_EXCEPT_START) {
    if (!managers.are_torchs(code, handler.target)) return true;
    *raised_at = now.index;
    return false;
  }
  static constexpr int kLongest = 100;
  bool may = false, named = false;
  for (int steps = 0; steps < kLongest; steps++) {
    if (now.opcode == RERAISE) {
      *raised_at = now.index;
      return false;
    }
    if (Borrowed name = cpython::loaded_name(code, now)) {
      may = may_catch(name);  // in `a.b.Error`, the last name counts
      named = true;
      if (may && !cpython::loads_attribute(cpython::decode(code, now.next).opcode)) return true;
    } else if (now.opcode == CHECK_EXC_MATCH) {
      if (!named || may) return true;
      const cpython::Instruction jump = cpython::decode(code, now.next);
      const cpython::TruthJump truth = cpython::truth_jump(jump.opcode, jump.argument);
      if (!truth.known || truth.wanted) return true;
      now = cpython::decode(code, jump.next + truth.units);
      named = false;
      continue;
    } else if (now.opcode != BUILD_TUPLE && !is_tidying(now.opcode)) {
      return true;
    }
    now = cpython::decode(code, now.next);
  }
  return true;
}

// Whether an exception that the handler observes may end there. It leaves a `finally` again, unless that pops it.
bool may_end_in(PyCodeObject* code, const cpython::Handler& handler, int* raised_at) {
  const cpython::Instruction first = cpython::decode(code, handler.target);
  cpython::Handler cleanup;
  if (first.opcode != PUSH_EXC_INFO || leaves_with(code, handler.target) ||
      !cpython::find_handler(code, first.next, &cleanup) || cleanup.target <= first.next)
    return true;
  bool raises = false;
  for (int index = first.next; index < cleanup.target;) {
    const cpython::Instruction now = cpython::decode(code, index);
    if (now.opcode == POP_EXCEPT || now.opcode == RETURN_VALUE || now.opcode == YIELD_VALUE) return true;
    if (now.opcode == RERAISE) {
      raises = true;
      *raised_at = now.index;
    }
    index = now.next;
  }
  return !raises;
}

// --- what may fail ----------------------------------------------------------------------------------------------

// torch functions and methods, and Python operators, that succeed for any data.
const std::unordered_set<std::string_view>& safe_names() {
  static const std::unordered_set<std::string_view> names = {
#define ALT_SAFE(name) name,
#define ALT_SAFE_FOR_ANY_SIZE(name) name,
#include "trace/soundness/safe_calls.def"
#undef ALT_SAFE_FOR_ANY_SIZE
#undef ALT_SAFE
  };
  return names;
}

// ... for a tensor of any size, and numbers.
const std::unordered_set<std::string_view>& fitting_names() {
  static const std::unordered_set<std::string_view> names = {
#define ALT_SAFE(name)
#define ALT_SAFE_FOR_ANY_SIZE(name) name,
#include "trace/soundness/safe_calls.def"
#undef ALT_SAFE_FOR_ANY_SIZE
#undef ALT_SAFE
  };
  return names;
}

// Some symbols were not specialized on.
bool has_free_symbols(const graph::Program& program) {
  for (size_t i = 0; program.backed != nullptr && i < program.backed->count(); i++) {
    const shapes::Expression symbol = program.backed->environment.symbol(i);
    if (program.backed->environment.simplify(symbol) == symbol) return true;
  }
  return false;
}

enum class Handling : uint8_t { kObserves, kMayEnd };

// Whether a handler of the function observes an exception at this offset, or may end it.
bool is_handled(PyCodeObject* code, int offset, Handling wanted) {
  int index = offset / static_cast<int>(sizeof(cpython::CodeUnit));
  cpython::Handler handler;
  if (!cpython::find_handler(code, index, &handler) || is_torchs(code)) return false;
  for (int i = 0; i < kMostHandlers; i++) {
    if (handles(code, handler, &index) && (wanted == Handling::kObserves || may_end_in(code, handler, &index)))
      return true;
    if (!cpython::find_handler(code, index, &handler)) return false;
  }
  return true;
}

bool is_handled(const graph::Program& program, const graph::Node& node, Handling wanted) {
  for (uint32_t site = node.site; site != graph::kNowhere; site = program.sites[site].caller) {
    const auto& frame = program.sites[site];
    if (is_handled(program.sites.code(frame).as<PyCodeObject>(), frame.offset, wanted)) return true;
  }
  return false;
}

// Irreversible mutations: writes to tensors that existed before the call.
class IrreversibleMutations {
 public:
  bool among(const graph::Program& program, const graph::Node& node) {
    if ((node.effects & graph::kActs) != 0) return true;
    if ((node.effects & graph::kMutates) == 0) return false;
    if (node.separate) return true;  // writes to the memory of an array
    for (; known_ < program.declared.size(); known_++) {
      const graph::TensorRecord& record = program.tensors[program.declared[known_].tensor];
      if (record.is_symbol()) continue;
      memory_.insert(memory_of(record));
    }
    bool found = false;
    program.each_tensor_argument(node, [&](uint32_t id) {
      const graph::TensorRecord& record = program.tensors[id];
      found = found || (!record.is_symbol() && (memory_of(record) == nullptr || memory_.count(memory_of(record)) != 0));
    });
    return found;
  }

 private:
  static const void* memory_of(const graph::TensorRecord& record) {
    return record.fake.defined() && record.fake.has_storage() ? record.fake.storage().unsafeGetStorageImpl() : nullptr;
  }
  std::unordered_set<const void*> memory_;
  size_t known_ = 0;
};

struct Separation {
  bool wanted = false;
  std::optional<uint32_t> until{};  // a node
  size_t seen = 0;                  // nodes
  bool fails = false, writes = false;
  IrreversibleMutations lasting{};
};
thread_local Separation separation;

}  // namespace

bool is_observed(PyCodeObject* code, int offset) { return is_handled(code, offset, Handling::kObserves); }

bool may_fail(const graph::Program& program, const graph::Node& node) {
  // What is known of the others assumes that their arguments fit, as they do in this call.
  bool has_number = false, varies = false;
  size_t operands = 0;
  program.each_tensor_argument(node, [&](uint32_t tensor) {
    const graph::TensorRecord& record = program.tensors[tensor];
    has_number = has_number || record.expression != nullptr;
    varies = varies || record.varies;
    operands++;
  });
  if ((has_number || varies) && has_free_symbols(program))
    return has_number || operands > 1 || fitting_names().count(graph::callable_name(node.function())) == 0;
  if (node.has(graph::kIndexes)) {  // may fail if the index is a tensor
    size_t tensors = 0;
    program.each_tensor_argument(node, [&](uint32_t) { tensors++; });
    return tensors > 1;
  }
  std::string name = graph::callable_name(node.function());
  if (name.size() > 1 && name.ends_with('_') && !name.ends_with("__")) name.pop_back();
  return safe_names().count(name) == 0;
}

bool is_unneeded(const graph::Program& program) {
  return program.outputs.empty() && std::ranges::all_of(program.nodes, [&](const graph::Node& node) {
           return !node.live || (node.effects == graph::kPure && !node.separate && !may_fail(program, node));
         });
}

bool has_observed_nodes(const graph::Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    return node.live && is_handled(program, node, Handling::kObserves);
  });
}

bool has_caught_failures(const graph::Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [&](const graph::Node& node) {
    return node.live && may_fail(program, node) && is_handled(program, node, Handling::kMayEnd);
  });
}

bool has_lasting_writes(const graph::Program& program) {
  IrreversibleMutations lasting;
  return std::any_of(program.nodes.begin(), program.nodes.end(),
                     [&](const graph::Node& node) { return node.live && lasting.among(program, node); });
}

bool is_left_at_once(PyCodeObject* code, int offset) {
  cpython::Handler handler;
  return !cpython::find_handler(code, offset / static_cast<int>(sizeof(cpython::CodeUnit)), &handler) ||
         (!is_torchs(code) && !is_observed(code, offset));
}

thread_local bool separates __attribute__((tls_model("initial-exec"))) = false;

void begin_separation(bool separate, const Chain& chain, std::optional<uint32_t> until) {
  separation = {.wanted = separate, .until = until};
  separates = separate || until;
  managers = {};
  for (const FrameState& state : chain) {
    auto* code = state.code.as<PyCodeObject>();
    int index = state.continuation == Continuation::kNone ? state.next : state.current;
    cpython::Handler handler;
    for (int i = 0; i < kMostHandlers && cpython::find_handler(code, index, &handler); i++) {
      index = handler.target;
      const auto exit = static_cast<size_t>(handler.depth) - 1;  // index of __exit__ on the value stack
      if (!leaves_with(code, index) || exit >= state.stack.size() || !state.stack[exit]) continue;
      PyObject* method = state.stack[exit].get();
      PyObject* manager = PyMethod_Check(method)      ? PyMethod_GET_SELF(method)
                          : PyCFunction_Check(method) ? PyCFunction_GET_SELF(method)
                                                      : nullptr;
      if (manager != nullptr) managers.note(code, index, manager);
    }
  }
}

void note_manager(PyCodeObject* code, int index, Borrowed manager) {
  const cpython::Instruction now = cpython::decode(code, index);
  cpython::Handler handler;
  if (now.opcode == BEFORE_WITH && cpython::find_handler(code, now.next, &handler) && leaves_with(code, handler.target))
    managers.note(code, handler.target, manager);
}

bool is_to_separate(const graph::Program& program) {
  if (separation.until && program.nodes.size() > *separation.until) return true;
  if (!separation.wanted) return false;
  for (; separation.seen < program.nodes.size(); separation.seen++) {
    const graph::Node& node = program.nodes[separation.seen];
    separation.fails = separation.fails || (may_fail(program, node) && is_handled(program, node, Handling::kMayEnd));
    separation.writes = separation.writes || separation.lasting.among(program, node);
  }
  return separation.fails && separation.writes;
}

}  // namespace alternator::trace
