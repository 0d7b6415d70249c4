#include "graph/sizes/size_rules.h"

#include "graph/record/torch_types.h"
#include "graph/sizes/rule_call.h"
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
  add("fft.", "torch.fft", false);
  add("nn.", "torch.nn", false);
  add("O.", "_operator", false);
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

// Null: there is none.
Rule rule_of(const Node& node) {
  static constinit Lasting<Rules> table;
  if (node.wrapped || node.overridden) return nullptr;
  const Rules& rules = table.get(make_rules);
  const auto found = rules.find(identity_of(node));
  return found != rules.end() ? found->second : nullptr;
}

}  // namespace

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

}  // namespace alternator::graph
