// What the program did to pre-existing objects so far: writes, and calls that were made for their side effect.
#pragma once

#include "lift/lifting/shadow.h"

#include <vector>

namespace alternator::lift {

class Lifter;

// Mutations up to some moment, for comparison.
struct WriteMark {
  size_t effects;
  std::vector<VariableWrite> variables;
  std::vector<std::vector<Ref>> shadows;  // for each, the added contents
  std::vector<Ref> decimals;              // for each context, its parts
};

class WriteLog {
 public:
  explicit WriteLog(const Lifter& lifter) : lifter_(lifter) {}

  // --- calls that are made for their side effect, in order ---
  void add_effect(EffectCall call) { effects_.push_back(std::move(call)); }
  // Removes the recorded call of `callable` with this first argument, if there is one.
  void drop_effect(Borrowed callable, Borrowed first);
  const std::vector<EffectCall>& effects() const { return effects_; }

  // --- writes ---
  std::vector<VariableWrite> writes() const;
  // Whether the program has mutated any pre-existing object so far.
  bool has_writes() const;
  WriteMark mark() const;
  bool has_writes_since(const WriteMark& mark) const;

 private:
  const Lifter& lifter_;
  std::vector<EffectCall> effects_;
};

// Whether the program has written to the private copy of a pre-existing container or instance dict.
bool is_written(const Shadow& shadow);

}  // namespace alternator::lift
