#include "backend/symbolic_arguments.h"

#include "graph/record/torch_types.h"

#include <ATen/ScalarOps.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace alternator::backend {

using shapes::Expression;

static bool is_float(const graph::ExportedInput& input) {
  return input.number != nullptr && input.number->sort() == shapes::Sort::kFloat;
}

SymbolicInputs::SymbolicInputs(const graph::Program& program, lift::SourceTree& tree,
                               const std::vector<lift::Source*>& needed)
    : inputs(graph::exported_inputs(program)) {
  fake::BackedSymbols& symbols = *program.backed;
  for (const graph::ExportedInput& input : inputs) {
    if (input.number != nullptr) {
      positions.push_back(needed.size() + symbols.result_of(input.number));
      sources.push_back(nullptr);
      continue;
    }
    lift::Source* source = tree.at(PyLong_AsUnsignedLong(program.declared[input.declared].source.get()));
    positions.push_back(static_cast<size_t>(std::ranges::find(needed, source) - needed.begin()));
    sources.push_back(source);
  }
  for (const uint32_t declared : program.inputs) {
    const Expression number = program.declared[declared].number;
    if (number != nullptr && number->sort() == shapes::Sort::kInteger)
      computed.push_back(symbols.environment.simplify(number));
  }
  for (const fake::BackedSymbols::Origin& origin : symbols.origins())
    sources_of_symbols.push_back(tree.at(origin.source));
}

bool SymbolicInputs::any() const {
  return !computed.empty() || std::ranges::any_of(inputs, [](const graph::ExportedInput& input) {
    return input.number != nullptr || !input.sizes.empty();
  });
}

std::vector<uint32_t> SymbolicInputs::symbols() const {
  std::set<uint32_t> found;
  std::set<Expression> seen;
  const auto visit = [&](auto& self, Expression expression) -> void {
    if (expression == nullptr || !seen.insert(expression).second) return;
    if (expression->kind == shapes::Kind::kSymbol || expression->kind == shapes::Kind::kFloatSymbol)
      found.insert(static_cast<uint32_t>(expression->value));
    for (const shapes::Term& term : expression->terms()) self(self, term.node);
  };
  for (const graph::ExportedInput& input : inputs) visit(visit, input.number);
  for (const Expression number : computed) visit(visit, number);
  return {found.begin(), found.end()};
}

std::vector<Ref> SymbolicInputs::arguments(const std::vector<Ref>& values) const {
  std::vector<Ref> made;
  made.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    const Ref& value = values[positions[i]];
    if (!is_float(inputs[i])) {
      made.push_back(value);
      continue;
    }
    const at::Tensor tensor = at::detail::scalar_tensor_static(PyFloat_AS_DOUBLE(value.get()), at::kDouble, at::kCPU);
    made.push_back(checked(THPVariable_Wrap(tensor)));
  }
  return made;
}

bool shares_memory(const SymbolicInputs& inputs, const std::vector<Ref>& values) {
  struct Uses {
    size_t count = 0;
    bool symbolic = false;
  };
  std::unordered_map<const c10::StorageImpl*, Uses> by_storage;
  for (size_t i = 0; i < inputs.inputs.size(); i++) {
    const Ref& value = values[inputs.positions[i]];
    if (!graph::is_tensor(value)) continue;
    const at::Tensor& tensor = fake::unpack(value.get());
    if (!tensor.has_storage()) continue;
    Uses& uses = by_storage[tensor.storage().unsafeGetStorageImpl()];
    uses.count++;
    uses.symbolic = uses.symbolic || !inputs.inputs[i].sizes.empty();
  }
  return std::ranges::any_of(by_storage, [](const auto& entry) {
    return entry.first != nullptr && entry.second.count > 1 && entry.second.symbolic;
  });
}

}  // namespace alternator::backend
