#include "graph/sizes/size_rules.h"

#include "graph/record/torch_types.h"
#include "graph/sizes/rule_call.h"
#include "graph/sizes/torch_sizes.h"
#include "py/lasting.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace alternator::graph {
namespace {

constexpr struct {
  Rule rule;
  const char* names;
} kRows[] = {
#define ALT_RULE(rule, names) {rule, names},
#include "graph/sizes/size_rules.def"
#undef ALT_RULE
};

struct Namespace {
  std::string_view prefix;
  Ref owner;
  bool is_default;
};

using Rules = std::unordered_map<PyObject*, Rule>;

std::vector<Namespace> namespaces() {
  std::vector<Namespace> all;
  const auto add = [&](std::string_view prefix, const char* module, bool is_default) {
    all.push_back({prefix, checked(PyImport_ImportModule(module)), is_default});
  };
  all.push_back({"T.", Ref::share(reinterpret_cast<PyObject*>(torch_types().tensor)), true});
  all.push_back({"", torch_name("torch._C", "TensorBase"), true});  // where torch.Tensor overrides a method in Python
  add("torch.", "torch", true);
  add("F.", "torch.nn.functional", true);
  add("", "torch._C._nn", true);
  add("", "torch.special", true);
  add("L.", "torch.linalg", false);
  add("A.", "torch.autograd", false);
  add("fft.", "torch.fft", false);
  add("nn.", "torch.nn", false);
  add("O.", "_operator", false);
  // Where the functions are that torch.func calls, in this version of torch.
  Ref functorch = Ref::steal(PyImport_ImportModule("torch._functorch.predispatch"));
  if (!functorch) PyErr_Clear();
  if (functorch) all.push_back({"V.", std::move(functorch), false});
  return all;
}

void add_rule(Rules& rules, const std::vector<Namespace>& owners, std::string_view name, Rule rule) {
  const bool is_plain = name.find('.') == std::string_view::npos;
  for (const Namespace& owner : owners) {
    const bool is_here = is_plain ? owner.is_default : !owner.prefix.empty() && name.starts_with(owner.prefix);
    if (!is_here) continue;
    const std::string attribute(is_plain ? name : name.substr(owner.prefix.size()));
    Ref found = Ref::steal(PyObject_GetAttrString(owner.owner.get(), attribute.c_str()));
    if (!found) PyErr_Clear();
    if (found) rules.emplace(found.release(), rule);
  }
}

Rules make_rules() {
  const std::vector<Namespace> owners = namespaces();
  Rules rules;
  for (const auto& row : kRows) {
    std::string_view names = row.names;
    while (!names.empty()) {
      const size_t end = std::min(names.find(' '), names.size());
      add_rule(rules, owners, names.substr(0, end), row.rule);
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  return rules;
}

}  // namespace

Rule rule_of(const Node& node) {
  static constinit Lasting<Rules> table;
  if (node.wrapped || node.overridden) return nullptr;
  const Rules& rules = table.get(make_rules);
  const auto found = rules.find(identity_of(node));
  return found != rules.end() ? found->second : nullptr;
}

// A bound method wrapper stands for the descriptor that it belongs to.
PyObject* identity_of(const Node& node) {
  PyObject* callable = node.function().get();
  if (Py_IS_TYPE(callable, &_PyMethodWrapper_Type)) {
    PyObject* self = PyObject_GetAttrString(callable, "__self__");
    if (self == nullptr) throw PyError();
    Py_DECREF(self);  // the wrapper owns it
    return self;
  }
  return callable;
}

std::optional<Sizes> solve_by_rule(SizeSolver& solver, const Node& node, uint32_t tensor) {
  const Rule rule = rule_of(node);
  if (rule == nullptr) return std::nullopt;
  try {
    RuleCall call(solver, node, tensor);
    Sizes sizes = rule(call);
    if (call.is_understood()) return sizes;
  } catch (const NoRule&) {
  }
  return std::nullopt;
}

bool guard_structure(SizeSolver& solver, const Node& node, int64_t count) {
  const Rule rule = rule_of(node);
  if (rule == nullptr) return false;
  try {
    RuleCall call(solver, node, count);
    (void)rule(call);
    return call.is_understood();
  } catch (const NoRule&) {
    return false;
  }
}

static bool is_one_of(Rule rule, std::initializer_list<Rule> rules) {
  return std::find(rules.begin(), rules.end(), rule) != rules.end();
}

std::optional<Sizes> sizes_after(SizeSolver& solver, const Node& node) {
  const Rule rule = rule_of(node);
  if (!is_one_of(rule, {transpose, transpose_last, unsqueeze, squeeze})) return std::nullopt;
  try {
    RuleCall call(solver, node, int64_t{1});
    Sizes sizes = rule(call);
    if (call.is_understood()) return sizes;
  } catch (const NoRule&) {
  }
  return std::nullopt;
}

bool has_keyword(const Node& node, const char* name) {
  for (Py_ssize_t i = 0; i < node.keyword; i++) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(node.keyword_names.get(), i), name) == 0) return true;
  }
  return false;
}

// Strides in order, also of sizes of 1: then the guards of an input check them by its sizes.
static bool is_row_major(const at::Tensor& fake) {
  int64_t expected = 1;
  for (int64_t d = fake.dim() - 1; d >= 0; d--) {
    if (fake.stride(d) != expected) return false;
    expected *= std::max<int64_t>(fake.size(d), 1);
  }
  return true;
}

// Where the layout of a result comes from.
enum class LayoutOf : uint8_t {
  kOfArguments,
  kOfFirst,  // attention: that of the query
  kOwn,      // row-major, as the result is made
};

static LayoutOf origin_of_layout(Rule rule) {
  if (is_one_of(rule, {make, make_like, make_full, arange, linspace, embedding, linear, matmul, addmm}))
    return LayoutOf::kOwn;
  return rule == attention ? LayoutOf::kOfFirst : LayoutOf::kOfArguments;
}

static bool are_constant(const Sizes& sizes) {
  return std::all_of(sizes.begin(), sizes.end(),
                     [](shapes::Expression size) { return size->kind == shapes::Kind::kInteger; });
}

// Walks back through calls until a result has a layout of its own. A tensor of constant sizes may still have strides
// that vary: a part of one whose sizes do.
bool has_constant_layout(SizeSolver& solver, uint32_t tensor) {
  constexpr int kMostCalls = 200;
  const Program& program = solver.program();
  const auto replaces_layout = [](const Node& node) {
    return node.has(kRestrides) || node.has(kReplacesStorage) || node.has(kSetsAttribute);
  };
  if (std::any_of(program.nodes.begin(), program.nodes.end(), replaces_layout)) return false;
  std::vector<uint32_t> open{tensor};
  for (int calls = 0; !open.empty(); calls++) {
    const uint32_t id = open.back();
    const TensorRecord& record = program.tensors[id];
    open.pop_back();
    if (!record.varies && !record.is_symbol()) continue;
    if (record.is_symbol() || !record.fake.defined() || !SizeSolver::has_plain_sizes(record.fake)) return false;
    if (calls > kMostCalls || !are_constant(solver.sizes_of(id))) return false;
    if (record.origin == Origin::Input) continue;  // its strides are in the guards, or follow from its sizes
    const uint32_t producer = program.producer(id);
    const Rule rule = producer != kNowhere ? rule_of(program.nodes[producer]) : nullptr;
    if (rule == nullptr) return false;
    const LayoutOf layout = origin_of_layout(rule);
    if (layout == LayoutOf::kOwn) continue;
    const Node& node = program.nodes[producer];
    if (layout == LayoutOf::kOfFirst) {
      const Value first = node.argument_count() > 0 ? program.argument(node, 0) : Value{};
      if (!first.is_tensor()) return false;
      open.push_back(first.index);
      continue;
    }
    bool is_known = true;
    program.each_tensor_argument(node, [&](uint32_t argument) {
      const TensorRecord& given = program.tensors[argument];
      // A number may be a stride.
      is_known = is_known && (given.fake.defined() || is_one_of(rule, {getitem, select, narrow}));
      if (given.fake.defined()) open.push_back(argument);
    });
    if (!is_known) return false;
  }
  return true;
}

// Walks back through calls whose result is contiguous if their arguments are.
bool is_always_contiguous(SizeSolver& solver, uint32_t tensor) {
  constexpr int kMostCalls = 200;
  const Program& program = solver.program();
  std::vector<uint32_t> open{tensor};
  for (int calls = 0; !open.empty(); calls++) {
    const uint32_t open_tensor = open.back();
    const TensorRecord& record = program.tensors[open_tensor];
    open.pop_back();
    if (solver.is_restrided(open_tensor) || record.is_symbol() || !record.fake.defined() ||
        !SizeSolver::has_plain_sizes(record.fake))
      return false;
    if (!record.varies || record.origin == Origin::Input) {
      if (!is_row_major(record.fake)) return false;
      continue;
    }
    const uint32_t producer = program.producer(open_tensor);
    if (producer == kNowhere || calls > kMostCalls) return false;
    const Node& node = program.nodes[producer];
    const Rule rule = rule_of(node);
    if (rule == topk || was_told_by_torch(solver, node, open_tensor)) continue;
    if (record.origin != Origin::Result) return false;
    if (is_one_of(rule, {make, make_like, make_full, arange, linspace, embedding, linear})) continue;
    if (has_keyword(node, "memory_format")) return false;
    if (!is_one_of(rule, {same_as_first, aliased, made_contiguous, broadcast_all, view, flatten, unflatten, unsqueeze}))
      return false;
    for (uint32_t i = 0; i < node.argument_count(); i++) {
      const Value value = program.argument(node, i);
      const bool is_tensor = value.is_tensor() && program.tensors[value.index].fake.defined();
      if (!is_tensor) continue;
      // What is broadcast may decide the order of the result.
      const at::Tensor& argument = program.tensors[value.index].fake;
      if (rule == broadcast_all && argument.dim() != 0 && argument.dim() != record.fake.dim()) return false;
      if (argument.dim() != 0) open.push_back(value.index);
    }
  }
  return true;
}

}  // namespace alternator::graph
