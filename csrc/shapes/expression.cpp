#include "shapes/expression.h"

#include "shapes/evaluation.h"

#include <algorithm>
#include <cstring>

namespace alternator::shapes {

namespace {

// Limits that keep every walk over an expression cheap and off the end of the stack.
constexpr uint16_t kMaxDepth = 200;
constexpr size_t kMaxTerms = 1000;
constexpr size_t kBlock = size_t{16} * 1024;
constexpr size_t kFirstSlots = 64;

struct KindRow {
  const char* name;
  Sort sort;
};
constexpr KindRow kRows[] = {
#define ALT_KIND(kind, name, sort, ...) {name, Sort::sort},
#include "shapes/kinds.def"
#undef ALT_KIND
};

uint32_t hash_of(Kind kind, int64_t value, std::span<const Term> terms) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15U;
  uint64_t hash = (static_cast<uint64_t>(value) + static_cast<uint64_t>(kind) + 1) * kOdd;
  for (const Term& term : terms) {
    hash = (std::rotl(hash, 23) ^ (term.node->id + 1)) * kOdd;
    hash = (std::rotl(hash, 29) ^ static_cast<uint64_t>(term.factor)) * kOdd;
  }
  return static_cast<uint32_t>(hash >> 32);
}

bool same(const Node& node, Kind kind, int64_t value, std::span<const Term> terms) {
  return node.kind == kind && node.value == value && node.count == terms.size() &&
         std::equal(terms.begin(), terms.end(), node.terms().begin(),
                    [](const Term& a, const Term& b) { return a.node == b.node && a.factor == b.factor; });
}

}  // namespace

const char* name(Kind kind) { return kRows[static_cast<size_t>(kind)].name; }

std::optional<Kind> kind_named(std::string_view name) {
  for (size_t index = 0; index < std::size(kRows); index++) {
    if (name == kRows[index].name) return static_cast<Kind>(index);
  }
  return std::nullopt;
}

Sort sort_of(Kind kind) { return kRows[static_cast<size_t>(kind)].sort; }

ExpressionTable::ExpressionTable() : slots_(kFirstSlots, nullptr) {}

size_t ExpressionTable::probe(Kind kind, int64_t value, std::span<const Term> terms, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t index = hash & mask;
  while (slots_[index] != nullptr) {
    const Node& node = *slots_[index];
    if (node.hash == hash && same(node, kind, value, terms)) break;
    index = (index + 1) & mask;
  }
  return index;
}

void ExpressionTable::grow() {
  std::vector<Expression> old(slots_.size() * 2, nullptr);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (Expression node : old) {
    if (node == nullptr) continue;
    size_t index = node->hash & mask;
    while (slots_[index] != nullptr) index = (index + 1) & mask;
    slots_[index] = node;
  }
}

Expression ExpressionTable::insert(const Node& head, std::span<const Term> terms) {
  const size_t wanted = sizeof(Node) + terms.size_bytes();
  if (left_ < wanted) {
    left_ = std::max(kBlock, wanted);
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(left_));
    free_ = blocks_.back().get();
  }
  Node* node = new (free_) Node(head);
  if (!terms.empty()) std::memcpy(static_cast<void*>(node + 1), terms.data(), terms.size_bytes());
  node->id = count_++;
  node->count = static_cast<uint32_t>(terms.size());
  free_ += wanted;
  left_ -= wanted;
  return node;
}

Expression ExpressionTable::find(Kind kind, int64_t value, std::span<const Term> terms) const {
  return slots_[probe(kind, value, terms, hash_of(kind, value, terms))];
}

Expression ExpressionTable::make(Kind kind, int64_t value, std::span<const Term> terms, bool total) {
  const uint32_t hash = hash_of(kind, value, terms);
  size_t index = probe(kind, value, terms, hash);
  Node head{kind, true, total, 0, 0, hash, 0, value, {}};
  for (const Term& term : terms) {
    head.depth = std::max(head.depth, static_cast<uint16_t>(term.node->depth + 1));
    head.has_hint &= term.node->has_hint;
    head.total &= term.node->total;
  }
  if (Expression found = slots_[index]) {
    found->total |= head.total;
    return found;
  }
  if (head.depth > kMaxDepth || terms.size() > kMaxTerms) return nullptr;
  if (head.has_hint) {
    const Value hint = apply(kind, value, terms, [](Expression node) { return Value{node->hint, true}; });
    if (!hint.defined) return nullptr;
    head.hint = hint.number;
  }
  if (count_ >= slots_.size() / 2) {
    grow();
    index = probe(kind, value, terms, hash);
  }
  return slots_[index] = insert(head, terms);
}

Expression ExpressionTable::make_symbol(Kind kind, int64_t number, std::optional<Register> hint) {
  const uint32_t hash = hash_of(kind, number, {});
  if (count_ >= slots_.size() / 2) grow();
  const size_t index = probe(kind, number, {}, hash);
  return slots_[index] =
             insert(Node{kind, hint.has_value(), true, 0, 0, hash, 0, number, hint.value_or(Register{})}, {});
}

}  // namespace alternator::shapes
