// The effect of a conditional jump, in one form for all versions.
#pragma once

namespace alternator::cpython {

// A jump that depends on a truth value: its distance, the value that takes it, and whether a taken jump keeps the
// operand.
struct TruthJump {
  bool known;
  bool wanted;
  bool keeps_value;
  int units;
};

}  // namespace alternator::cpython
