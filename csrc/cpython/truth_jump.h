// What a conditional jump does, in one shape for all versions.
#pragma once

namespace alternator::cpython {

// A jump that depends on a truth value: by how much, on which value, and whether a taken jump keeps it.
struct TruthJump {
  bool known;
  bool wanted;
  bool keeps_value;
  int units;
};

}  // namespace alternator::cpython
