// Backed symbols: sizes, ints and floats whose value differs from call to call, and is known in each call.
//
// In a trace such a number is an object of fake/unbacked_symbol.h with an expression (csrc/shapes) over the symbols of
// the call. Fakes keep the sizes of the traced call, the hints. What needs the value of a number specializes on it: the
// guard `expression == hint` is recorded, and the object becomes a plain int or float in place.
#pragma once

#include "fake/unbacked_symbol.h"
#include "shapes/environment.h"

#include <c10/util/flat_hash_map.h>

#include <functional>
#include <vector>

namespace alternator::fake {

// Of a tensor that is passed in, if something about it is symbolic: one expression for each dimension.
struct SymbolicGeometry {
  std::vector<shapes::Expression> sizes, strides;
  shapes::Expression offset = nullptr;  // null: as in its fake

  bool empty() const { return sizes.empty() && offset == nullptr; }
};

class BackedSymbols {
 public:
  // Where each call reads the value of a symbol.
  enum class Reads : uint8_t { kSize, kStride, kOffset, kInteger, kFloat };
  static bool is_of_tensor(Reads reads) { return reads != Reads::kInteger && reads != Reads::kFloat; }
  struct Origin {
    uint32_t source;  // its id in the tree of sources
    Reads reads;
    uint16_t dimension = 0;
  };

  BackedSymbols() = default;
  BackedSymbols(const BackedSymbols&) = delete;
  BackedSymbols& operator=(const BackedSymbols&) = delete;

  // A new symbol. `given`: what the guard program checks of it besides the guards.
  shapes::Expression add(const Origin& origin, int64_t hint, const shapes::Interval& given);
  shapes::Expression add_float(const Origin& origin, double hint);
  size_t count() const { return origins_.size(); }
  // Whether some are numbers of the caller, not sizes.
  bool has_numbers() const;
  const std::vector<Origin>& origins() const { return origins_; }  // by the number of the symbol
  const std::vector<shapes::Interval>& given() const { return given_; }

  // The number of a trace: a new object for each read, as in CPython; a plain one where the expression is a constant.
  // A null expression (too large) specializes: `inputs` are what it would have been made of.
  Ref number(shapes::Expression expression);
  // Null: no backed symbol, or one that was specialized on.
  shapes::Expression expression_of(Borrowed object) const;
  bool is_backed(Borrowed object) const { return is_symbol(object) && expression_of(object) != nullptr; }
  // A plain int or float with the value of this call.
  static Ref hint_of(shapes::Expression expression);
  // Whether the condition holds in this call, and in all that use the trace: it is guarded.
  bool decide(shapes::Expression condition);
  // Specializes on the value of an expression.
  void specialize(shapes::Expression expression);
  // ... of a number, which is a plain one from now on.
  void specialize(Borrowed object);

  // The position of an expression among the values that each call computes.
  uint32_t result_of(shapes::Expression expression);
  const std::vector<shapes::Expression>& results() const { return results_; }

  // The line of the user's code that causes a guard.
  std::function<uint32_t()> locate;

  shapes::ShapeEnvironment environment;

 private:
  void assume(shapes::Expression condition);
  void specialize_floats(shapes::Expression expression);

  std::vector<Origin> origins_;
  std::vector<shapes::Interval> given_;
  ska::flat_hash_map<const PyObject*, shapes::Expression> expressions_;
  std::vector<Ref> numbers_;  // keeps the addresses
  std::vector<shapes::Expression> results_;
};

}  // namespace alternator::fake
