#include "fake/stand_ins.h"

#include "fake/op_arguments.h"
#include "fake/stand_in_sizes.h"
#include "fake/storage.h"
#include "fake/unbacked_sizes.h"

#include "py/error.h"

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <numeric>

namespace alternator::fake {
namespace {

using shapes::Expression;
using Expressions = c10::SmallVector<Expression, 5>;
using Sizes = c10::SmallVector<int64_t, 5>;

enum Probe : size_t { kFirst, kSecond, kSmall, kOneSymbol };

// Only the first run may warn.
class Unheard : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

struct Argument {
  at::Tensor tensor;
  Expressions sizes, strides;
  Expression offset;
};

// What the operator gives for one set of sizes.
struct Outcome {
  std::vector<int64_t> values;  // by the number of a symbol
  std::vector<at::Tensor> stand_ins;
  torch::jit::Stack outputs;
  std::vector<at::Tensor> tensors;  // among the outputs
  bool succeeded = false;
};

std::vector<at::Tensor> tensors_in(torch::jit::Stack& values) {
  std::vector<at::Tensor> all;
  replace_tensors(values.data(), values.size(), [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
    all.push_back(tensor);
    return std::nullopt;
  });
  return all;
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

class StandIns {
 public:
  explicit StandIns(const Call& call)
      : call_(call),
        numbers_(call.session.unbacked_sizes()),
        saved_(call.arguments(), call.stack.data() + call.stack.size()) {}

  // `may_fail`: eager raises for some sizes.
  bool compute(bool& may_fail) {
    if (!collect() || !run_all()) return false;
    const Outcome& first = outcomes_[kFirst];
    std::vector<at::Tensor> made;
    for (size_t i = 0; i < first.tensors.size(); i++) {
      std::optional<at::Tensor> result = result_of(i);
      if (!result) return false;
      made.push_back(std::move(*result));
    }
    torch::jit::Stack outputs = first.outputs;
    size_t next = 0;
    replace_tensors(outputs.data(), outputs.size(),
                    [&](const at::Tensor&, size_t) -> std::optional<at::Tensor> { return made[next++]; });
    call_.stack.resize(call_.stack.size() - call_.op.argument_count);
    call_.stack.insert(call_.stack.end(), outputs.begin(), outputs.end());
    may_fail = may_fail_;
    return true;
  }

 private:
  // ---- the arguments

  bool collect() {
    bool known = true;
    replace_tensors(saved_.data(), saved_.size(), [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
      if (as_fake(tensor) != nullptr) known = known && add_tensor(tensor);
      return std::nullopt;
    });
    if (!known) return false;
    const auto& schema = call_.handle.schema().arguments();
    for (size_t i = 0; i < saved_.size(); i++) {
      const c10::IValue& value = saved_[i];
      if (value.isSymBool()) return false;
      if (value.isSymInt()) {
        const bool is_operand = schema[i].type()->kind() == c10::TypeKind::NumberType;
        if (!add_number(value.toSymInt(), is_operand)) return false;
      } else if (value.isList() && !value.isTensorList() && !value.isOptionalTensorList()) {
        for (const c10::IValue& item : value.toListRef())
          if (item.isSymFloat() || item.isSymBool() || (item.isSymInt() && !add_number(item.toSymInt(), false)))
            return false;
      }
    }
    return symbols_.size() <= kMostSymbols;
  }

  bool add_tensor(const at::Tensor& tensor) {
    Argument argument{tensor, {}, {}, nullptr};
    for (const c10::SymInt& size : tensor.sym_sizes()) {
      argument.sizes.push_back(numbers_.of(size));
      if (!add(argument.sizes.back())) return false;
      numbers_.note_size(argument.sizes.back());
    }
    for (const c10::SymInt& stride : tensor.sym_strides()) {
      argument.strides.push_back(numbers_.of(stride));
      if (!add(argument.strides.back())) return false;
    }
    argument.offset = numbers_.of(tensor.sym_storage_offset());
    if (!add(argument.offset)) return false;
    arguments_.push_back(std::move(argument));
    return true;
  }

  // A size that no tensor has yet may be negative: torch then records that it is not. An operand may be anything.
  bool add_number(const c10::SymInt& number, bool is_operand) {
    const Expression expression = numbers_.of(number);
    if (!add(expression)) return false;
    if (expression->kind == shapes::Kind::kInteger || numbers_.is_size(expression)) return true;
    has_operands_ = true;
    return is_operand;
  }

  bool add(Expression expression) {
    if (expression == nullptr) return false;
    if (expression->kind == shapes::Kind::kInteger) return true;
    if (std::find(known_.begin(), known_.end(), expression) == known_.end()) known_.push_back(expression);
    add_symbols(expression);
    return true;
  }
  void add_symbols(Expression expression) {
    if (expression->kind == shapes::Kind::kSymbol) {
      if (std::find(symbols_.begin(), symbols_.end(), expression) == symbols_.end()) symbols_.push_back(expression);
    }
    for (const shapes::Term& term : expression->terms()) add_symbols(term.node);
  }

  // ---- the runs

  bool run_all() {
    const size_t count = numbers_.environment.symbol_count();
    outcomes_.resize(kOneSymbol + 2 * symbols_.size());
    for (Outcome& outcome : outcomes_) outcome.values.resize(count);
    for (size_t s = 0; s < symbols_.size(); s++) {
      const auto number = static_cast<size_t>(symbols_[s]->value);
      outcomes_[kFirst].values[number] = large_prime(2 * number);
      outcomes_[kSecond].values[number] = large_prime(2 * number + 1);
      if (outcomes_[kSecond].values[number] == 0) return false;
      for (size_t probe = kSmall; probe < outcomes_.size(); probe++) {
        const bool is_special = probe >= kOneSymbol && (probe - kOneSymbol) / 2 == s;
        outcomes_[probe].values[number] = is_special ? (probe - kOneSymbol) % 2 : kSmallPrimes[s];
      }
    }
    std::optional<c10::WarningUtils::WarningHandlerGuard> quiet;
    Unheard unheard;
    for (size_t probe = 0; probe < outcomes_.size(); probe++) {
      if (probe == kSecond) quiet.emplace(&unheard);
      run(outcomes_[probe]);
      if (!outcomes_[probe].succeeded && probe <= kSmall) return false;
      may_fail_ = may_fail_ || (!outcomes_[probe].succeeded && is_possible(outcomes_[probe]));
    }
    return true;
  }

  // Whether there may be tensors of such sizes.
  bool is_possible(const Outcome& outcome) const {
    return std::all_of(arguments_.begin(), arguments_.end(), [&](const Argument& argument) {
      return std::all_of(argument.sizes.begin(), argument.sizes.end(),
                         [&](Expression size) { return value_in(outcome, size).value_or(-1) >= 0; });
    });
  }

  void run(Outcome& outcome) {
    if (!is_possible(outcome)) return;
    const Unnoticed scope(call_.session);
    try {
      outcome.outputs.assign(saved_.begin(), saved_.end());
      if (!substitute(outcome)) return;
      const Call call{call_.session, call_.op, call_.handle, call_.keys, outcome.outputs, call_.device};
      fake::compute(call);
      outcome.succeeded = are_unchanged(outcome) && note_outputs(outcome);
    } catch (const std::exception&) {
      PyErr_Clear();  // a kernel in Python may have set it
    }
  }

  bool substitute(Outcome& outcome) {
    size_t next = 0;
    std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> storages;
    replace_tensors(outcome.outputs.data(), outcome.outputs.size(),
                    [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                      if (as_fake(tensor) == nullptr) return std::nullopt;
                      return outcome.stand_ins.emplace_back(stand_in(outcome, arguments_[next++], storages));
                    });
    for (c10::IValue& value : outcome.outputs) {
      if (value.isSymInt()) {
        value = value_in(outcome, numbers_.of(value.toSymInt())).value();
      } else if (value.isSymFloat()) {
        value = 1.5;
      } else if (value.isList() && !value.isTensorList() && !value.isOptionalTensorList()) {
        const c10::ArrayRef<c10::IValue> items = value.toListRef();
        if (std::none_of(items.begin(), items.end(), [](const c10::IValue& item) { return item.isSymInt(); })) continue;
        c10::SmallVector<c10::SymInt, 5> sizes;
        for (const c10::IValue& item : items) {
          if (!item.isSymInt() && !item.isInt()) return false;
          sizes.emplace_back(item.isInt() ? item.toInt() : value_in(outcome, numbers_.of(item.toSymInt())).value());
        }
        value = c10::IValue(c10::SymIntArrayRef(sizes));
      }
    }
    return true;
  }

  at::Tensor stand_in(const Outcome& outcome, const Argument& argument,
                      std::vector<std::pair<const c10::StorageImpl*, c10::Storage>>& storages) const {
    const c10::TensorImpl* impl = argument.tensor.unsafeGetTensorImpl();
    const Sizes sizes = values_in(outcome, argument.sizes), strides = values_in(outcome, argument.strides);
    const int64_t offset = value_in(outcome, argument.offset).value();
    int64_t last = offset;
    for (size_t d = 0; d < sizes.size(); d++) last += std::max<int64_t>(sizes[d] - 1, 0) * strides[d];
    const size_t needed = static_cast<size_t>(last + 1) * impl->itemsize();
    const c10::StorageImpl* original = storage_of(argument.tensor);
    auto storage =
        std::find_if(storages.begin(), storages.end(), [&](const auto& row) { return row.first == original; });
    if (storage == storages.end()) storage = storages.insert(storages.end(), {original, make_storage(needed)});
    if (storage->second.nbytes() < needed) storage->second.unsafeGetStorageImpl()->set_nbytes(needed);
    at::Tensor made = call_.session.make(c10::Storage(storage->second), impl->key_set(), impl->dtype(),
                                         as_fake(argument.tensor)->fake_device());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    if (impl->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }

  // A mutating operator must leave the shape of its argument unchanged.
  bool are_unchanged(const Outcome& outcome) const {
    if (!call_.op.mutates) return true;
    for (size_t i = 0; i < arguments_.size(); i++) {
      const at::Tensor& now = outcome.stand_ins[i];
      const Sizes sizes = values_in(outcome, arguments_[i].sizes), strides = values_in(outcome, arguments_[i].strides);
      if (now.sizes() != c10::IntArrayRef(sizes) || now.strides() != c10::IntArrayRef(strides)) return false;
    }
    return true;
  }

  // Where every run must give the same: what is no size.
  bool note_outputs(Outcome& outcome) const {
    const Outcome& first = outcomes_[kFirst];
    if (outcome.outputs.size() != call_.op.return_count) return false;
    for (size_t i = 0; i < outcome.outputs.size(); i++) {
      const c10::IValue& output = outcome.outputs[i];
      if (!output.isTensor() && !output.isTensorList() && !output.isNone()) return false;
      if (&outcome != &first && output.isTensor() &&
          (!first.outputs[i].isTensor() || output.toTensor().defined() != first.outputs[i].toTensor().defined()))
        return false;
    }
    outcome.tensors = tensors_in(outcome.outputs);
    return std::all_of(outcome.tensors.begin(), outcome.tensors.end(),
                       [](const at::Tensor& tensor) { return as_fake(tensor) != nullptr; });
  }

  std::optional<int64_t> value_in(const Outcome& outcome, Expression expression) const {
    return UnbackedSizes::evaluate(expression, outcome.values);
  }
  Sizes values_in(const Outcome& outcome, const Expressions& expressions) const {
    Sizes values;
    for (const Expression expression : expressions) values.push_back(value_in(outcome, expression).value());
    return values;
  }

  // ---- the results

  // Not torch.arange(n), of an n that may be negative.
  bool may_be_size(Expression size) const {
    return !has_operands_ || size->kind == shapes::Kind::kInteger || numbers_.is_size(size);
  }

  // The argument that a result is, or is a view of.
  static size_t found_at(const std::vector<at::Tensor>& tensors, const at::Tensor& wanted, bool as_view) {
    const auto is_it = [&](const at::Tensor& tensor) {
      return as_view ? storage_of(tensor) == storage_of(wanted) : tensor.is_same(wanted);
    };
    return std::find_if(tensors.begin(), tensors.end(), is_it) - tensors.begin();
  }

  std::optional<at::Tensor> result_of(size_t i) {
    const Outcome& first = outcomes_[kFirst];
    const at::Tensor& found = first.tensors[i];
    const size_t same = found_at(first.stand_ins, found, false), base = found_at(first.stand_ins, found, true);
    for (const Outcome& other : outcomes_) {
      if (!other.succeeded) continue;
      if (other.tensors.size() != first.tensors.size()) return std::nullopt;
      const at::Tensor& tensor = other.tensors[i];
      if (tensor.dim() != found.dim() || tensor.scalar_type() != found.scalar_type() ||
          tensor.device() != found.device() || found_at(other.stand_ins, tensor, false) != same ||
          found_at(other.stand_ins, tensor, true) != base)
        return std::nullopt;
    }
    if (same < arguments_.size()) return arguments_[same].tensor;
    Expressions sizes;
    for (int64_t d = 0; d < found.dim(); d++) {
      sizes.push_back(size_of([&](const Outcome& outcome) { return outcome.tensors[i].size(d); }));
      if (sizes.back() == nullptr || !may_be_size(sizes.back())) return std::nullopt;
    }
    const bool is_view = base < arguments_.size();
    bool is_dense = false;
    std::optional<Expressions> strides = strides_of(i, sizes, is_view, is_dense);
    const Expression offset =
        size_of([&](const Outcome& outcome) { return outcome.tensors[i].unsafeGetTensorImpl()->storage_offset(); });
    if (!strides || offset == nullptr || (!is_view && !is_dense)) return std::nullopt;
    return made(found, sizes, *strides, offset, is_view ? &arguments_[base].tensor : nullptr, is_dense);
  }

  std::optional<at::Tensor> made(const at::Tensor& found, const Expressions& sizes, const Expressions& strides,
                                 Expression offset, const at::Tensor* base, bool is_dense) {
    const auto is_constant = [](Expression number) { return number->kind == shapes::Kind::kInteger; };
    const bool is_fixed = std::all_of(sizes.begin(), sizes.end(), is_constant) &&
                          std::all_of(strides.begin(), strides.end(), is_constant) && is_constant(offset);
    if (is_fixed && base == nullptr) return found;
    c10::SmallVector<c10::SymInt, 5> all_sizes, all_strides;
    Expression bytes = numbers_.environment.integer(static_cast<int64_t>(found.itemsize()));
    for (const Expression size : sizes) {
      bytes = numbers_.environment.multiply(bytes, size);
      if (!append(all_sizes, size)) return std::nullopt;
      numbers_.note_size(size);
    }
    for (const Expression stride : strides)
      if (!append(all_strides, stride)) return std::nullopt;
    const std::optional<c10::SymInt> start = numbers_.number(offset);
    if (!start || bytes == nullptr) return std::nullopt;
    c10::Storage storage;
    if (base != nullptr) {
      storage = base->storage();
    } else {
      const std::optional<c10::SymInt> nbytes = numbers_.number(bytes);
      if (!nbytes) return std::nullopt;
      storage = make_storage(*nbytes);
    }
    const c10::TensorImpl* impl = found.unsafeGetTensorImpl();
    at::Tensor made =
        call_.session.make(std::move(storage), impl->key_set(), impl->dtype(), as_fake(found)->fake_device());
    auto* fake = static_cast<FakeTensorImpl*>(made.unsafeGetTensorImpl());
    fake->set_sizes_and_strides(all_sizes, all_strides, *start);
    if (is_dense && fake->has_symbolic_sizes_strides()) fake->assume_dense(found.is_contiguous());
    if (impl->is_wrapped_number()) fake->set_wrapped_number(true);
    return made;
  }

  bool append(c10::SmallVector<c10::SymInt, 5>& numbers, Expression expression) {
    std::optional<c10::SymInt> number = numbers_.number(expression);
    if (number) numbers.push_back(std::move(*number));
    return number.has_value();
  }

  // The expression with the values that the runs gave.
  template <class Get>
  Expression size_of(Get&& get) {
    const Expression found = candidate(get);
    if (found == nullptr) return nullptr;
    for (const Outcome& outcome : outcomes_)
      if (outcome.succeeded && value_in(outcome, found) != get(outcome)) return nullptr;
    return found;
  }

  template <class Get>
  Expression candidate(Get&& get) {
    const int64_t a = get(outcomes_[kFirst]), b = get(outcomes_[kSecond]), c = get(outcomes_[kSmall]);
    if (a == b && b == c) return numbers_.environment.integer(a);
    for (const Expression known : known_)
      if (value_in(outcomes_[kFirst], known) == a && value_in(outcomes_[kSecond], known) == b) return known;
    if (const Expression product = product_of(a); product != nullptr && value_in(outcomes_[kSecond], product) == b)
      return product;
    return sum_of(get);
  }

  // A constant times symbols.
  Expression product_of(int64_t value) {
    Expression product = numbers_.environment.integer(1);
    for (const Expression symbol : symbols_) {
      const int64_t prime = outcomes_[kFirst].values[static_cast<size_t>(symbol->value)];
      for (; value != 0 && value % prime == 0; value /= prime) product = numbers_.environment.multiply(product, symbol);
    }
    return numbers_.environment.scale(product, value);
  }

  // A constant, and symbols times constants: from what it is where one symbol is 0.
  template <class Get>
  Expression sum_of(Get&& get) {
    const Outcome& small = outcomes_[kSmall];
    int64_t constant = get(small);
    Expression sum = numbers_.environment.integer(0);
    for (size_t s = 0; s < symbols_.size(); s++) {
      const Outcome& without = outcomes_[kOneSymbol + 2 * s];
      if (!without.succeeded) return nullptr;
      const int64_t difference = get(small) - get(without), value = small.values[symbols_[s]->value];
      if (difference % value != 0) return nullptr;
      sum = numbers_.environment.add(sum, numbers_.environment.scale(symbols_[s], difference / value));
      constant -= difference;
    }
    return numbers_.environment.add(sum, numbers_.environment.integer(constant));
  }

  // `is_dense`: they are those of a tensor without gaps, in the order of its dimensions or another one.
  std::optional<Expressions> strides_of(size_t i, const Expressions& sizes, bool is_view, bool& is_dense) {
    const at::Tensor& found = outcomes_[kFirst].tensors[i];
    std::vector<size_t> order(sizes.size());
    std::iota(order.rbegin(), order.rend(), 0);  // innermost first
    for (const bool sorted : {false, true}) {
      if (sorted)
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return found.stride(a) < found.stride(b); });
      is_dense = are_dense(i, order);
      if (is_dense && !is_view) return dense_strides(sizes, order);
      if (is_dense) break;
    }
    Expressions strides;
    for (size_t d = 0; d < sizes.size(); d++) {
      const auto stride = [&](const Outcome& outcome) { return outcome.tensors[i].stride(d); };
      strides.push_back(stride_of(stride));
      if (strides.back() == nullptr) return is_dense ? std::optional(dense_strides(sizes, order)) : std::nullopt;
    }
    return strides;
  }

  bool are_dense(size_t i, const std::vector<size_t>& order) const {
    for (size_t probe = kFirst; probe <= kSmall; probe++) {
      const at::Tensor& tensor = outcomes_[probe].tensors[i];
      int64_t expected = 1;
      for (const size_t d : order) {
        if (tensor.stride(d) != expected) return false;
        expected *= std::max<int64_t>(tensor.size(d), 1);
      }
    }
    return true;
  }

  Expressions dense_strides(const Expressions& sizes, const std::vector<size_t>& order) {
    shapes::ShapeEnvironment& environment = numbers_.environment;
    Expressions strides(sizes.size());
    Expression stride = environment.integer(1);
    for (const size_t d : order) {
      strides[d] = stride;
      stride = environment.multiply(stride, environment.maximum(sizes[d], environment.integer(1)));
    }
    return strides;
  }

  // Of a view: one of its base, or what a constant makes of it. What it is where a size is 0 does not matter.
  template <class Get>
  Expression stride_of(Get&& get) {
    const int64_t a = get(outcomes_[kFirst]), b = get(outcomes_[kSecond]), c = get(outcomes_[kSmall]);
    if (a == b && b == c) return numbers_.environment.integer(a);
    for (const Argument& argument : arguments_)
      for (const Expression stride : argument.strides)
        if (value_in(outcomes_[kFirst], stride) == a && value_in(outcomes_[kSecond], stride) == b &&
            value_in(outcomes_[kSmall], stride) == c)
          return stride;
    return nullptr;
  }

  const Call& call_;
  UnbackedSizes& numbers_;
  torch::jit::Stack saved_;
  std::vector<Argument> arguments_;
  std::vector<Expression> known_, symbols_;
  std::vector<Outcome> outcomes_;
  bool may_fail_ = false;
  bool has_operands_ = false;  // a number whose sign is not known is among the arguments
};

}  // namespace

bool compute_with_stand_ins(const Call& call, Failing failing) {
  const KernelKind kind = call.op.kind.load(std::memory_order_relaxed);
  if (!call.op.is_core || kind == KernelKind::PythonMeta || kind == KernelKind::None) return false;
  const pybind11::gil_scoped_acquire gil;
  bool may_fail = false;
  if (!StandIns(call).compute(may_fail)) return false;
  if (may_fail && failing == Failing::kMay) call.session.counts_.checks++;
  return true;
}

}  // namespace alternator::fake
