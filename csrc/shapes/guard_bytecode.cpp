#include "shapes/guard_bytecode.h"

#include "shapes/evaluation.h"
#include "shapes/interval.h"

#include <limits>
#include <unordered_map>

namespace alternator::shapes {

namespace {
constexpr size_t kMaxIndex = std::numeric_limits<uint16_t>::max();
}

// -------------------------------------------------------------------------------------------------------------
// compiling

class BytecodeCompiler {
 public:
  bool compile(std::span<const Expression> conditions, std::span<const Expression> results) {
    std::vector<Expression> others;
    std::vector<std::pair<int64_t, Interval>> ranges;  // by symbol, in the order in which they first occur
    for (Expression condition : conditions) {
      if (!as_range(condition, ranges)) others.push_back(condition);
    }
    for (const auto& [symbol, range] : ranges) {
      // Two conditions that contradict each other: an empty range, which nothing lies in.
      emit(GuardBytecode::kRequireRange, 0, static_cast<size_t>(symbol), constant(range.low));
      constant(range.high);
    }
    for (Expression condition : others) count_uses(condition);
    for (Expression result : results) count_uses(result);
    for (Expression condition : others) {
      emit(GuardBytecode::kRequire, 0, slot_of(condition), 0);
      release(condition);
    }
    for (size_t index = 0; index < results.size(); index++) {
      emit(GuardBytecode::kResult, index, slot_of(results[index]), 0);
      release(results[index]);
    }
    return !failed_;
  }

  GuardBytecode program;

 private:
  struct Use {
    uint32_t left = 0;
    int32_t slot = -1;
  };

  // `s <= 5`, `2 <= s`, `s == 3`: the first comparisons, and the cheapest ones.
  static bool as_range(Expression condition, std::vector<std::pair<int64_t, Interval>>& ranges) {
    if (condition->kind != Kind::kLe && condition->kind != Kind::kEq) return false;
    Expression symbol = condition->operand(0);
    Expression bound = condition->operand(1);
    const bool below = symbol->kind == Kind::kInteger;
    if (below) std::swap(symbol, bound);
    if (symbol->kind != Kind::kSymbol || bound->kind != Kind::kInteger) return false;
    Interval range{kLowest, kHighest};
    if (below || condition->kind == Kind::kEq) range.low = bound->value;
    if (!below || condition->kind == Kind::kEq) range.high = bound->value;
    for (auto& [number, known] : ranges) {
      if (number != symbol->value) continue;
      known = {std::max(known.low, range.low), std::min(known.high, range.high)};
      return true;
    }
    ranges.emplace_back(symbol->value, range);
    return true;
  }

  void count_uses(Expression node) {
    if (uses_[node].left++ > 0) return;
    for (const Term& term : node->terms()) count_uses(term.node);
  }

  uint16_t index(size_t value) {
    failed_ |= value > kMaxIndex;
    return static_cast<uint16_t>(value);
  }
  void emit(uint8_t operation, size_t to, size_t a, size_t b) {
    program.code_.push_back({operation, index(to), index(a), index(b)});
  }
  size_t constant(int64_t value) {
    program.constants_.push_back(value);
    return program.constants_.size() - 1;
  }

  size_t new_slot() {
    if (!free_.empty()) {
      const size_t slot = free_.back();
      free_.pop_back();
      return slot;
    }
    failed_ |= used_ >= GuardBytecode::kMaxSlots;
    return used_++;
  }

  // One use of the node's value is over.
  void release(Expression node) {
    Use& use = uses_[node];
    if (--use.left == 0) free_.push_back(static_cast<size_t>(use.slot));
  }

  size_t slot_of(Expression node) {
    if (uses_[node].slot >= 0) return static_cast<size_t>(uses_[node].slot);
    const size_t slot = emit_node(node);
    uses_[node].slot = static_cast<int32_t>(slot);
    return slot;
  }

  size_t emit_node(Expression node) {
    const auto operation = static_cast<uint8_t>(node->kind);
    const std::span<const Term> terms = node->terms();
    if (terms.empty()) {
      const bool symbol = node->kind == Kind::kSymbol || node->kind == Kind::kFloatSymbol;
      const size_t slot = new_slot();
      emit(operation, slot, symbol ? static_cast<size_t>(node->value) : constant(node->value), 0);
      return slot;
    }
    std::vector<size_t> operands;
    for (const Term& term : terms) operands.push_back(slot_of(term.node));
    // The result has a slot of its own: an operand may have its last use here and is still read.
    const size_t slot = new_slot();
    if (node->kind == Kind::kSum || node->kind == Kind::kProduct) {
      const size_t first = program.operands_.size();
      if (node->kind == Kind::kSum) program.operands_.push_back({node->value, 0});
      for (size_t index = 0; index < terms.size(); index++) {
        program.operands_.push_back({terms[index].factor, this->index(operands[index])});
      }
      emit(operation, slot, first, program.operands_.size() - first);
    } else {
      emit(operation, slot, operands[0], operands[terms.size() > 1 ? 1 : 0]);
      for (size_t index = 2; index < terms.size(); index++) emit(operation, slot, slot, operands[index]);
    }
    for (const Term& term : terms) release(term.node);
    return slot;
  }

  std::unordered_map<Expression, Use> uses_;
  std::vector<size_t> free_;
  size_t used_ = 0;
  bool failed_ = false;
};

std::optional<GuardBytecode> GuardBytecode::compile(std::span<const Expression> conditions,
                                                    std::span<const Expression> results) {
  BytecodeCompiler compiler;
  if (!compiler.compile(conditions, results)) return std::nullopt;
  return std::move(compiler.program);
}

// ---------------------------------------------------------------------------------------------------------------
// running

// A Value that is not set to anything before it is written.
struct GuardBytecode::Slot {
  Register number;
  bool defined;

  Value value() const { return {number, defined}; }
};

void GuardBytecode::run_terms(const Instruction& instruction, Slot* slots) const noexcept {
  const Operand* operand = &operands_[instruction.a];
  const Operand* end = operand + instruction.b;
  Slot& to = slots[instruction.to];
  bool defined = true;
  if (static_cast<Kind>(instruction.operation) == Kind::kSum) {
    WideSum sum((operand++)->factor);
    for (; operand != end; operand++) {
      defined &= slots[operand->slot].defined;
      sum.add(slots[operand->slot].number.integer, operand->factor);
    }
    const Value value = sum.value();
    to = {value.number, defined && value.defined};
    return;
  }
  int64_t product = 1;
  for (; operand != end; operand++) {
    int64_t power = 0;
    defined &= slots[operand->slot].defined &&
               checked_power(slots[operand->slot].number.integer, operand->factor, &power) &&
               checked_multiply(product, power, &product);
  }
  to = {{.integer = product}, defined};
}

bool GuardBytecode::check(const Register* registers, Register* results) const noexcept {
  Slot slots[kMaxSlots];  // NOLINT: not initialized, because most programs use a few
  for (const Instruction& instruction : code_) {
    Slot& to = slots[instruction.to];
    const Slot& a = slots[instruction.a];
    switch (instruction.operation) {
      case kRequireRange: {
        const int64_t value = registers[instruction.a].integer;
        if (value < constants_[instruction.b] || value > constants_[instruction.b + 1]) return false;
        continue;
      }
      case kRequire:
        if (!a.defined || a.number.integer == 0) return false;
        continue;
      case kResult:
        if (!a.defined) return false;
        if (results != nullptr) results[instruction.to] = a.number;
        continue;
      default:
        break;
    }
    const Kind kind = static_cast<Kind>(instruction.operation);
    Value value;
    switch (kind) {
      case Kind::kInteger:
      case Kind::kBoolean:
      case Kind::kFloat:
        value = integer_value(constants_[instruction.a]);
        break;
      case Kind::kSymbol:
      case Kind::kFloatSymbol:
        value = {registers[instruction.a], true};
        break;
      case Kind::kSum:
      case Kind::kProduct:
        run_terms(instruction, slots);
        continue;
      case Kind::kAnd:
      case Kind::kOr:
        value = apply_logic(kind, a.value(), slots[instruction.b].value());
        break;
      default: {
        if (takes_one(kind)) {
          if (a.defined) value = apply_unary(kind, a.number);
          break;
        }
        const Slot& b = slots[instruction.b];
        if (!a.defined || !b.defined) break;
        value = takes_floats(kind) ? apply_binary(kind, a.number.real, b.number.real)
                                   : apply_binary(kind, a.number.integer, b.number.integer);
      }
    }
    to = {value.number, value.defined};
  }
  return true;
}

std::optional<Register> evaluate(Expression expression, const Register* registers) {
  const Expression results[] = {expression};
  const std::optional<GuardBytecode> program = GuardBytecode::compile({}, results);
  Register result{};
  if (!program || !program->check(registers, &result)) return std::nullopt;
  return result;
}

}  // namespace alternator::shapes
