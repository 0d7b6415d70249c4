// Operators on tensors with unbacked sizes, computed by their ordinary kernels on stand-in sizes.
//
// The kernel of an operator is run on several sets of concrete sizes that stand for the symbols: two of large primes,
// one of small numbers, and those in which one symbol is 0 or 1. A size of the result is the expression that has the
// values which the first three give, and it must have those that the others give too, where eager has a result at all.
// So a kernel that treats some sizes specially (a broadcast of size 1, a slice that ends at a bound) does not agree
// with itself, and torch's symbolic shapes decide: unbacked_ops.h.
#pragma once

#include "fake/kernels.h"

namespace alternator::fake {

// Whether the operator may raise in eager where its kernel does for some of the sizes.
enum class Failing : uint8_t { kMay, kCannot };

// Replaces the arguments by the outputs. False: the arguments are untouched, and nothing is known of the result. An
// operator that fails for some sizes counts as a check: a run must execute it, even if nothing uses its result.
bool compute_with_stand_ins(const Call& call, Failing failing = Failing::kMay);

}  // namespace alternator::fake
