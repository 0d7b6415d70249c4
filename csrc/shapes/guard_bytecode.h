// Conditions and values as bytecode over the registers of a call: what a guard check runs.
#pragma once

#include "shapes/expression.h"

namespace alternator::shapes {

class GuardBytecode {
 public:
  // Expressions that occur several times are computed once. Nothing: too much has to be kept at a time.
  static std::optional<GuardBytecode> compile(std::span<const Expression> conditions,
                                              std::span<const Expression> results = {});

  // Whether all conditions hold; the register of a symbol has its number. A condition that overflows or divides by 0
  // does not hold. If `results` is not null, it receives the results; one that has no value counts as a condition that
  // does not hold. Allocates nothing.
  bool check(const Register* registers, Register* results = nullptr) const noexcept;

  size_t size() const { return code_.size(); }

 private:
  friend class BytecodeCompiler;
  // Kinds of expressions are instructions; these are the others.
  static constexpr uint8_t kRequire = 0x80;       // the condition in `a` holds
  static constexpr uint8_t kRequireRange = 0x81;  // register `a` lies between the constants `b` and `b` + 1
  static constexpr uint8_t kResult = 0x82;        // `a` is the result number `to`
  static constexpr size_t kMaxSlots = 256;

  struct Instruction {
    uint8_t operation;
    uint16_t to;
    uint16_t a;
    uint16_t b;
  };
  struct Slot;

  void run_terms(const Instruction& instruction, Slot* slots) const noexcept;

  std::vector<Instruction> code_;
  std::vector<int64_t> constants_;
  // Operands of sums and products: `a` is the first, `b` their number.
  struct Operand {
    int64_t factor;
    uint16_t slot;
  };
  std::vector<Operand> operands_;
};

// The value of one expression; nothing where it is undefined or overflows.
std::optional<Register> evaluate(Expression expression, const Register* registers);

}  // namespace alternator::shapes
