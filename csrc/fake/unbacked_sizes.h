// The torch.SymInts of a session as expressions of csrc/shapes, and back.
//
// Torch's symbolic integers are Python objects over sympy. Here each of them is translated once, and each expression is
// turned into one of them once: what is computed about sizes in between costs no Python.
#pragma once

#include "py/ref.h"
#include "shapes/environment.h"

#include <c10/core/SymInt.h>
#include <c10/util/flat_hash_map.h>

#include <deque>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

namespace alternator::fake {

// The GIL is held during every call.
class UnbackedSizes {
 public:
  // Null: it contains something that has no counterpart here.
  shapes::Expression of(const c10::SymInt& number);
  // Nothing: it is a quotient or the like that torch has not computed yet.
  std::optional<c10::SymInt> number(shapes::Expression expression);

  // Of an integer expression, where the symbol of number n has the value values[n]. Nothing: undefined, or no int64.
  static std::optional<int64_t> evaluate(shapes::Expression expression, std::span<const int64_t> values);

  // Whether the number is the size of some tensor: torch has then recorded that it is not negative.
  bool is_size(shapes::Expression expression) const { return sizes_.contains(expression); }
  void note_size(shapes::Expression expression) { sizes_.insert(expression); }

  shapes::ShapeEnvironment environment;

 private:
  shapes::Expression translate(Borrowed sympy);
  shapes::Expression translate_now(Borrowed sympy);
  shapes::Expression fold(Borrowed sympy, shapes::Kind kind);
  std::optional<c10::SymInt> build(shapes::Expression expression);

  // By the node; by the Python object that it stands for; by its expression in sympy.
  ska::flat_hash_map<const c10::SymNodeImpl*, shapes::Expression> by_node_;
  ska::flat_hash_map<const PyObject*, shapes::Expression> by_object_;
  Ref by_sympy_;  // a dict of positions in expressions_
  std::vector<shapes::Expression> expressions_;
  ska::flat_hash_map<shapes::Expression, c10::SymInt> numbers_;
  std::unordered_set<shapes::Expression> sizes_;
  std::vector<c10::SymNode> nodes_;  // keeps the keys alive
  std::vector<Ref> objects_;
};

}  // namespace alternator::fake
