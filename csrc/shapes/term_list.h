// A list of terms of which the first few need no allocation: most sums and products are short.
#pragma once

#include "shapes/expression.h"

#include <algorithm>

namespace alternator::shapes {

class TermList {
 public:
  TermList() = default;
  TermList(const TermList&) = delete;
  TermList& operator=(const TermList&) = delete;

  void push(Expression node, int64_t factor) {
    if (!more_.empty()) {
      more_.push_back({node, factor});
    } else if (count_ < kInline) {
      first_[count_] = {node, factor};
    } else {
      more_.assign(first_, first_ + count_);
      more_.push_back({node, factor});
    }
    count_++;
  }
  // Keeps the first `count`.
  void shrink(size_t count) {
    count_ = count;
    if (!more_.empty()) {
      more_.resize(count);
      std::copy_n(more_.begin(), std::min(count, kInline), first_);
    }
  }

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  Term* begin() { return more_.empty() ? first_ : more_.data(); }
  Term* end() { return begin() + count_; }
  Term& operator[](size_t index) { return begin()[index]; }
  std::span<const Term> span() { return {begin(), count_}; }

  void sort() {
    std::ranges::sort(*this, [](const Term& a, const Term& b) { return a.node->id < b.node->id; });
  }
  // Keeps one of each node.
  void sort_unique() {
    sort();
    shrink(count_ - std::ranges::unique(*this, {}, &Term::node).size());
  }

 private:
  static constexpr size_t kInline = 8;
  size_t count_ = 0;
  Term first_[kInline];
  std::vector<Term> more_;  // all of them, once they do not fit
};

// An integer as a constant plus terms. The view of a sum is that of its node; of anything else, the one term.
class LinearView {
 public:
  explicit LinearView(Expression node) : single_{node, 1} {
    if (node->kind == Kind::kInteger) {
      constant_ = node->value;
    } else if (node->kind == Kind::kSum) {
      constant_ = node->value;
      terms_ = node->terms();
    } else {
      terms_ = {&single_, 1};
    }
  }
  LinearView(const LinearView&) = delete;
  LinearView& operator=(const LinearView&) = delete;

  int64_t constant() const { return constant_; }
  std::span<const Term> terms() const { return terms_; }

 private:
  Term single_;
  int64_t constant_ = 0;
  std::span<const Term> terms_;
};

// The factors of a term of a sum, with their exponents.
class FactorView {
 public:
  explicit FactorView(Expression node) : single_{node, 1} {
    factors_ = node->kind == Kind::kProduct ? node->terms() : std::span<const Term>{&single_, 1};
  }
  FactorView(const FactorView&) = delete;
  FactorView& operator=(const FactorView&) = delete;

  std::span<const Term> factors() const { return factors_; }
  int64_t exponent_of(Expression factor) const {
    for (const Term& term : factors_) {
      if (term.node == factor) return term.factor;
    }
    return 0;
  }

 private:
  Term single_;
  std::span<const Term> factors_;
};

}  // namespace alternator::shapes
