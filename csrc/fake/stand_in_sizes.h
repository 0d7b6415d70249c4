// The sizes that stand for unbacked symbols while an operator's kernel runs (stand_ins.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace alternator::fake {

inline constexpr size_t kMostSymbols = 12;  // of one call

// Large enough to be no product of a model's constants; three of them and a constant fit into an int64.
inline int64_t large_prime(size_t number) {
  static const std::vector<int64_t> primes = [] {
    constexpr int64_t kFrom = 100'003, kTo = 200'000;
    std::vector<bool> composite(kTo);
    std::vector<int64_t> found;
    for (int64_t n = 2; n < kTo; n++) {
      if (composite[n]) continue;
      if (n >= kFrom) found.push_back(n);
      for (int64_t multiple = 2 * n; multiple < kTo; multiple += n) composite[multiple] = true;
    }
    return found;
  }();
  return number < primes.size() ? primes[number] : 0;
}
inline constexpr std::array<int64_t, kMostSymbols> kSmallPrimes = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};

}  // namespace alternator::fake
