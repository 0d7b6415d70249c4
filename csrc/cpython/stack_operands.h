// What an instruction does with the values on the stack: the operands column of opcodes.def.
#pragma once

#include "cpython/operations.h"

namespace alternator::cpython {

struct StackOperands {
  int count;
  // A container among them is accessed directly, as one that this frame has just built. In a frame that is resumed in
  // the middle it is a pre-existing object.
  bool opened;
};

inline StackOperands stack_operands(int opcode, int oparg) {
  constexpr StackOperands everything{1 << 20, true};
  const auto reads = [](int count) { return StackOperands{count, false}; };
  const auto opens = [](int count) { return StackOperands{count, true}; };
  switch (opcode) {
#define ALT_OPCODE(NAME, EFFECT, OPERANDS, ...) \
  case NAME:                                    \
    return OPERANDS;
#include "cpython/opcodes.def"
#undef ALT_OPCODE
    default:
      return everything;
  }
}

}  // namespace alternator::cpython
