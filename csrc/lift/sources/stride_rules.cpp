#include "lift/sources/stride_rules.h"

#include <algorithm>
#include <numeric>

namespace alternator::lift {

// An empty tensor has the strides that it would have with sizes of 1.
static int64_t after(int64_t size, int64_t stride) { return std::max<int64_t>(size, 1) * stride; }

StrideRules stride_rules_of(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  std::vector<size_t> outermost_first(sizes.size());
  std::iota(outermost_first.begin(), outermost_first.end(), size_t{0});
  std::ranges::stable_sort(outermost_first, [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  StrideRules rules(sizes.size(), kFixedStride);
  for (size_t i = 0; i < outermost_first.size(); i++) {
    const size_t d = outermost_first[i];
    if (strides[d] < 2) continue;
    const auto inner = std::find_if(outermost_first.begin() + static_cast<std::ptrdiff_t>(i) + 1, outermost_first.end(),
                                    [&](size_t j) { return after(sizes[j], strides[j]) == strides[d]; });
    if (inner != outermost_first.end()) rules[d] = static_cast<int8_t>(*inner);
  }
  return rules;
}

bool follow_rules(const StrideRules& rules, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                  const std::vector<int64_t>& fixed) noexcept {
  for (size_t d = 0; d < rules.size(); d++) {
    if (rules[d] == kAnyStride) continue;
    const auto from = static_cast<size_t>(rules[d]);
    if (strides[d] != (rules[d] == kFixedStride ? fixed[d] : after(sizes[from], strides[from]))) return false;
  }
  return true;
}

}  // namespace alternator::lift
