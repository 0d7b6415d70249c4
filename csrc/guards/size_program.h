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

  // What compilers have assumed, too. Before the first check.
  void add_guards(const std::vector<shapes::Expression>& conditions);

  // Whether the guards hold for the objects that the nodes found; computes the results. Allocates nothing.
  bool check(PyObject* const* found) noexcept;
  // Of the last check that held.
  void collect(std::vector<Ref>* values) const;
  size_t result_count() const { return results_.size(); }

  // Of the last check that failed: the guard, with the values that it found; and its site.
  struct Failed {
    std::string source, wanted, got;
    uint32_t site = 0;
  };
  Failed explain() const;
  // ... and the sizes that it is about: (source, dimension).
  std::vector<std::pair<std::string, uint16_t>> failed_sizes() const;
  // (text, site) of each guard.
  std::vector<std::pair<std::string, uint32_t>> texts() const;

 private:
  bool fill(PyObject* const* found) noexcept;
  const shapes::Guard* failed_guard() const;
  std::vector<size_t> symbols_in(shapes::Expression expression) const;
  std::string name_of(size_t symbol) const;
  std::string text(shapes::Expression expression) const;
  void compile();

  std::shared_ptr<fake::BackedSymbols> symbols_;
  const lift::SourceTree& tree_;
  std::vector<shapes::Guard> guards_;
  std::optional<shapes::GuardBytecode> code_;
  std::vector<uint32_t> nodes_;  // by symbol
  std::vector<shapes::Register> registers_, results_;
  size_t unfilled_ = SIZE_MAX;  // the symbol at which the last fill() failed
};

}  // namespace alternator::guards
