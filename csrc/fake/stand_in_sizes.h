// The sizes that stand for unbacked symbols while an operator's kernel runs, and the scope of such a run (stand_ins.h).
#pragma once

#include "fake/session.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
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

// In its scope, operators are no operators of the program: what a kernel writes to is its own. A size that depends on
// data is refused.
class Unnoticed {
 public:
  explicit Unnoticed(SessionState& session)
      : session_(session), captured_(std::exchange(session.captures_sizes, false)) {
    const auto& counts = session.counts_;
    before_ = {counts.operators.value(), counts.python_metas.value(), counts.writes.value(),
               counts.draws.value(),     counts.acts.value(),         counts.checks.value()};
  }
  ~Unnoticed() {
    session_.captures_sizes = captured_;
    auto& counts = session_.counts_;
    counts.operators.set(before_[0]);
    counts.python_metas.set(before_[1]);
    counts.writes.set(before_[2]);
    counts.draws.set(before_[3]);
    counts.acts.set(before_[4]);
    counts.checks.set(before_[5]);
  }
  Unnoticed(const Unnoticed&) = delete;
  Unnoticed& operator=(const Unnoticed&) = delete;

 private:
  SessionState& session_;
  bool captured_;
  std::array<uint64_t, 6> before_;
};

}  // namespace alternator::fake
