// Guards over sizes and numbers that are symbols of an entry (fake/backed_symbols.h), and the values that its graph and
// its residual program compute from them.
#pragma once

#include "fake/backed_symbols.h"
#include "lift/sources/source.h"
#include "shapes/guard_bytecode.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace alternator::guards {

class SizeProgram {
 public:
  // `node_of`: the node of each source, by its id. `tree` must outlive it.
  SizeProgram(std::shared_ptr<fake::BackedSymbols> symbols, const std::vector<uint32_t>& node_of,
              const lift::SourceTree& tree);

  // What compilers have assumed, too, and what that comes from. Before the first check.
  void add_guards(const std::vector<shapes::Expression>& conditions, const std::vector<std::string>& origins);

  // Whether the guards hold for the objects that the nodes found; computes the results. Allocates nothing.
  bool check(PyObject* const* found) noexcept;
  // Of the last check that held.
  void collect(std::vector<Ref>* values) const;
  size_t result_count() const { return results_.size(); }

  // Of the last check that failed: the guard, with the values that it found; and its site.
  struct Failed {
    std::string source, wanted, got;
    uint32_t site = 0;
    std::string origin;  // of what a compiler has assumed
  };
  Failed explain() const;
  // ... and the sizes that it is about: (source, dimension).
  std::vector<std::pair<std::string, uint16_t>> failed_sizes() const;
  // For objects that pass all other guards: calls note(source, dimension) for each size that is out of its range.
  template <class Note>
  void each_out_of_range(PyObject* const* found, Note&& note) const {
    for (size_t i = 0; i < nodes_.size(); i++) {
      const fake::BackedSymbols::Origin& origin = symbols_->origins()[i];
      if (origin.reads != fake::BackedSymbols::Reads::kSize || found[nodes_[i]] == nullptr) continue;
      const int64_t size = size_of(found[nodes_[i]], origin.dimension);
      if (!symbols_->given()[i].contains(size)) note(tree_.sources()[origin.source], origin.dimension);
    }
  }
  struct Text {
    std::string condition;
    uint32_t site;
    std::string origin;
  };
  std::vector<Text> texts() const;

 private:
  static int64_t size_of(PyObject* tensor, uint16_t dimension) noexcept;
  bool fill(PyObject* const* found) noexcept;
  const shapes::Guard* failed_guard() const;
  std::vector<size_t> symbols_in(shapes::Expression expression) const;
  std::string name_of(size_t symbol) const;
  const std::string& origin_of(size_t guard) const;
  std::string text(shapes::Expression expression) const;
  void compile();

  std::shared_ptr<fake::BackedSymbols> symbols_;
  const lift::SourceTree& tree_;
  std::vector<shapes::Guard> guards_;
  std::vector<std::string> origins_;  // of the last ones
  std::optional<shapes::GuardBytecode> code_;
  std::vector<uint32_t> nodes_;  // by symbol
  std::vector<shapes::Register> registers_, results_;
  size_t unfilled_ = SIZE_MAX;  // the symbol at which the last fill() failed
};

}  // namespace alternator::guards
