// The facts of each guard kind: the columns of lift/sources/guards.def.
#pragma once

#include "lift/sources/source.h"

namespace alternator::guards {

// Where the expected value is.
enum class Keeps : uint8_t { kNothing, kObject, kKey, kNumber, kKeys, kTensor, kMethods, kSource };

// When a binding need not check it again.
enum class Proof : uint8_t {
  kType,
  kIdentity,
  kValue,
  kTensor,
  kContents,
  kOrder,
  kClassVersion,
  kCode,
  kStep,
  kNever,
};

struct GuardFacts {
  Keeps keeps;
  Proof proof;

  bool is_relation() const { return keeps == Keeps::kSource; }
  bool is_about_contents() const { return proof == Proof::kContents || proof == Proof::kOrder; }
};

inline const GuardFacts& facts_of(lift::GuardKind kind) {
  static constexpr GuardFacts kFacts[] = {
#define ALT_GUARD(kind, sentence, keeps, check, proof, text) {Keeps::keeps, Proof::proof},
#include "lift/sources/guards.def"
#undef ALT_GUARD
  };
  return kFacts[static_cast<size_t>(kind)];
}

}  // namespace alternator::guards
