// Expressions over symbols (sizes, strides, ints and floats of a call): immutable nodes, one for each distinct
// expression. Two expressions that were built alike are the same pointer.
//
// Values are Python's: integers have no bound, `//` and `%` round down. A value may be undefined (a divisor that is 0).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace alternator::shapes {

enum class Sort : uint8_t { kInteger, kBoolean, kFloat };

enum class Kind : uint8_t {
#define ALT_KIND(kind, ...) kind,
#include "shapes/kinds.def"
#undef ALT_KIND
};
const char* name(Kind kind);
std::optional<Kind> kind_named(std::string_view name);
Sort sort_of(Kind kind);

// A number that a call brings, or that an expression has. Booleans are 0 or 1.
union Register {
  int64_t integer;
  double real;
};

struct Node;
// Null: there is no such expression (a constant or a hint overflows, or it is too large). The caller then settles on
// the value that it sees.
using Expression = const Node*;

struct Term {
  Expression node;
  int64_t factor;  // of a sum; of a product: the exponent; otherwise 1
};

struct Node {
  Kind kind;
  bool has_hint;
  // Whether it has a value for all values of the symbols that the facts allow. A term that is not total may not be
  // simplified away: where it is undefined, so is the whole. Facts only ever add: this changes to true, never back.
  mutable bool total;
  uint16_t depth;
  uint32_t id;  // in order of creation: operands come before what is made of them
  uint32_t hash;
  uint32_t count;
  int64_t value;
  Register hint;  // the value while tracing

  std::span<const Term> terms() const { return {reinterpret_cast<const Term*>(this + 1), count}; }
  Expression operand(size_t index) const { return terms()[index].node; }
  Sort sort() const { return sort_of(kind); }
  bool is_integer(int64_t wanted) const { return kind == Kind::kInteger && value == wanted; }
  bool is_boolean(bool wanted) const { return kind == Kind::kBoolean && value == static_cast<int64_t>(wanted); }
  double real() const { return std::bit_cast<double>(value); }
};

// Owns nodes and finds them again.
class ExpressionTable {
 public:
  ExpressionTable();
  ExpressionTable(const ExpressionTable&) = delete;
  ExpressionTable& operator=(const ExpressionTable&) = delete;

  // The node of these parts. `total`: the operation itself is defined for all operands. Null: its hint is undefined or
  // overflows, or it is too deep or too long.
  Expression make(Kind kind, int64_t value, std::span<const Term> terms, bool total = true);
  // A new symbol (kSymbol, kFloatSymbol).
  Expression make_symbol(Kind kind, int64_t number, std::optional<Register> hint);
  // The node of these parts, if there is one.
  Expression find(Kind kind, int64_t value, std::span<const Term> terms) const;

  size_t size() const { return count_; }

 private:
  Expression insert(const Node& head, std::span<const Term> terms);
  size_t probe(Kind kind, int64_t value, std::span<const Term> terms, uint32_t hash) const;
  void grow();

  std::vector<Expression> slots_;  // open addressing; a power of two, at most half full
  uint32_t count_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* free_ = nullptr;
  size_t left_ = 0;
};

}  // namespace alternator::shapes
