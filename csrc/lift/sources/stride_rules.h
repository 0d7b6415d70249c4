// How the strides of a tensor follow from its sizes, whatever those are.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace alternator::lift {

// For each dimension the one whose size times stride is its stride (of a dense tensor, the next one inwards), or:
inline constexpr int8_t kFixedStride = -1, kAnyStride = -2;
using StrideRules = std::vector<int8_t>;

// Of at most 127 dimensions. Strides 0 and 1, and those that follow from no other, are fixed.
StrideRules stride_rules_of(c10::IntArrayRef sizes, c10::IntArrayRef strides);
// `fixed`: the strides that are.
bool follow_rules(const StrideRules& rules, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                  const std::vector<int64_t>& fixed) noexcept;

}  // namespace alternator::lift
