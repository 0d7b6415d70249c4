// The opcodes that run as separate code objects, per version.
#pragma once

#include "cpython/version.h"

#include <span>

namespace alternator::cpython {

enum class Micro : uint8_t {
  kHandleBreaker,
  kAsyncGenWrap,
  kPrepReraiseStar,
  kReturn,                         // the values on the stack (3.12)
  kIntrinsic1,                     // one per CALL_INTRINSIC_1 argument (3.12+)
  kIntrinsic2 = kIntrinsic1 + 16,  // one per CALL_INTRINSIC_2 argument (3.12+)
};
inline constexpr size_t kMicroCount = static_cast<size_t>(Micro::kIntrinsic2) + 8;

// The arguments of CALL_INTRINSIC_1 that our loop executes itself (3.12+).
enum class Intrinsic1 : uint8_t { kOther, kImportStar, kStopIterationError, kUnaryPositive, kListToTuple };
Intrinsic1 intrinsic1(int oparg);

struct MicroCode {
  Micro which;
  unsigned char code[16];
  int size;
  bool has_arguments = true;
};
// Implemented in v3xx.cpp.
std::span<const MicroCode> micro_codes();
PyCodeObject* micro_code(Micro which);

}  // namespace alternator::cpython
