#include "lift/lifting/symbolic_inputs.h"

#include "lift/lifting/lifter.h"
#include "lift/lifting/unspecialized.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace alternator::lift {

using fake::BackedSymbols;
using shapes::Expression;

// Sizes 0 and 1 are special to torch's operators: they are constants, and a symbol is never one of them.
static constexpr int64_t kLeastSize = 2;
static constexpr size_t kMostSymbols = 128, kMostDimensions = 64;

std::vector<uint8_t> dense_order_of(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (sizes.size() > kMostDimensions) return {};
  std::vector<uint8_t> order(sizes.size());
  std::iota(order.begin(), order.end(), uint8_t{0});
  std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return strides[a] > strides[b]; });
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (strides[order[i]] != expected) return {};
    expected *= std::max<int64_t>(sizes[order[i]], 1);
  }
  return order;
}

void keep_free_sizes(const Source& source, TensorSpec* spec) {
  for (const Guard& guard : source.guards) {
    if (guard.kind != GuardKind::kTensor || guard.tensor->free_sizes == 0) continue;
    spec->free_sizes = guard.tensor->free_sizes;
    spec->dense_order = guard.tensor->dense_order;
  }
}

Expression SymbolicInputs::add(const BackedSymbols::Origin& origin, int64_t hint, const shapes::Interval& given) {
  if (symbols == nullptr) {
    symbols = std::make_shared<BackedSymbols>();
    symbols->locate = [this] { return lifter_.tree().current_site(); };
    if (on_first_symbol) on_first_symbol();
  }
  const size_t number = symbols->count();
  return symbols->add(origin, hints != nullptr && number < hints->size() ? (*hints)[number] : hint, given);
}

uint64_t SymbolicInputs::wanted_dimensions(const Source& source) const {
  if (dynamism == nullptr || lifter_.only_lasting || (is_allowed && !is_allowed())) return 0;
  if (dynamism->sizes.empty() && !dynamism->all) return 0;
  const std::string text = source.text();
  const auto find = [&](const std::unordered_map<std::string, uint64_t>& sizes) {
    const auto found = sizes.find(text);
    return found != sizes.end() ? found->second : 0;
  };
  return (dynamism->all ? ~uint64_t{0} : find(dynamism->sizes)) & ~find(dynamism->static_sizes);
}

std::vector<Expression> SymbolicInputs::sizes_of(Borrowed tensor, Source* source, TensorSpec* spec) {
  const uint64_t wanted = wanted_dimensions(*source);
  // Of a view that requires gradients, the base is in the guards too; a parameter has its size for good.
  const bool may_vary = tensor.type() == reinterpret_cast<PyTypeObject*>(THPVariableClass) && spec->has_geometry &&
                        !(spec->is_view && spec->requires_grad) && !spec->has_tangent &&
                        spec->sizes.size() <= kMostDimensions;
  if (wanted == 0 || !may_vary) return {};
  std::vector<Expression> sizes(spec->sizes.size());
  for (size_t d = 0; d < sizes.size(); d++) {
    const int64_t hint = spec->sizes[d];
    if ((wanted >> d & 1) == 0 || hint < kLeastSize || (symbols != nullptr && symbols->count() >= kMostSymbols)) continue;
    spec->free_sizes |= uint64_t{1} << d;
    const BackedSymbols::Origin origin{source->id, BackedSymbols::Reads::kSize, static_cast<uint16_t>(d)};
    const Expression symbol = add(origin, hint, {kLeastSize, shapes::kHighest});
    const auto [same, is_first] = by_size_.try_emplace(hint, symbol);
    if (!is_first) (void)symbols->decide(symbols->environment.equal(symbol, same->second));
    sizes[d] = symbol;
  }
  if (spec->free_sizes == 0) return {};
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d] == nullptr) sizes[d] = symbols->environment.integer(spec->sizes[d]);
  }
  spec->dense_order = dense_order_of(spec->sizes, spec->strides);
  return sizes;
}

void SymbolicInputs::apply_hints(const at::Tensor& fake, const std::vector<Expression>& sizes,
                                 const TensorSpec& spec) const {
  if (hints == nullptr || sizes.empty()) return;
  std::vector<int64_t> other, strides = spec.strides;
  for (const Expression size : sizes) other.push_back(size->hint.integer);
  int64_t expected = 1;
  for (size_t i = spec.dense_order.size(); i-- > 0;) {
    strides[spec.dense_order[i]] = expected;
    expected *= std::max<int64_t>(other[spec.dense_order[i]], 1);
  }
  fake::Session::set_geometry(fake, other, strides);
}

bool SymbolicInputs::is_wanted(Borrowed number, const Source& source) const {
  if (dynamism == nullptr || lifter_.only_lasting || (is_allowed && !is_allowed())) return false;
  if (dynamism->numbers.empty() && !dynamism->all) return false;
  if (!lifter_.unspecialized->is_open || !source.is_variable()) return false;
  if (PyFloat_CheckExact(number.get())) {
    // What compares as equal must be the same: not zeros, not NaN.
    const double value = PyFloat_AS_DOUBLE(number.get());
    if (!std::isfinite(value) || value == 0) return false;
  } else if (!PyLong_CheckExact(number.get())) {
    return false;
  }
  const std::string text = source.text();
  return (dynamism->all || dynamism->numbers.contains(text)) && !dynamism->static_numbers.contains(text);
}

Ref SymbolicInputs::number(Borrowed value, Source* source) {
  if (!is_wanted(value, *source)) return {};
  Ref& made = numbers_[source];
  if (made) return made;
  Expression symbol;
  if (PyFloat_CheckExact(value.get())) {
    return {};  // not yet
  } else {
    int overflow = 0;
    const long long hint = PyLong_AsLongLongAndOverflow(value.get(), &overflow);
    if (overflow != 0) return {};
    symbol = add({source->id, BackedSymbols::Reads::kInteger}, hint, {});
  }
  lifter_.guard_type(source, value);
  made = symbols->number(symbol);
  lifter_.know(made, value, source);
  return made;
}

}  // namespace alternator::lift
