// Walks a trace's result and side effects and builds the residual program.
#pragma once

#include "replay/recipes.h"
#include "replay/world.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace alternator::replay {

class Builder {
 public:
  Builder(World& world, std::vector<Ref>* graph_outputs, std::vector<lift::Source*>* needed);

  // Where a run finds `object` or its reconstruction. Null object: no value.
  Operand value(Borrowed object);
  Operand needed(lift::Source* source);
  Operand constant(Borrowed object);
  uint32_t native(PyMethodDef* method);

  void emit(Op op, const std::vector<Operand>& operands, int64_t number = 0);
  // Emits pending fills: after this every object made so far is complete, except for the containers whose keys are
  // hashed by Python code, which may read what the program has written: complete() fills those.
  void complete_most();
  void complete();
  // Around objects that must be complete before anything is written back.
  void set_early(bool early) { early_ = early; }
  // `object` is pre-existing although it has no source: a function's globals.
  void take_as_preexisting(Borrowed object);
  // The instance dict of an object that is being made: other references to it mean the new object's dict.
  bool is_known(Borrowed object);
  // A tensor, class or function of the trace.
  bool is_traced(Borrowed object);
  void own_dict(Borrowed dict, Borrowed owner);
  // Frames are reconstructed only where they merely keep objects alive: those of a traceback, their callers, and those
  // that resume.
  void admit_frame(Borrowed frame) { frames_.insert(frame.get()); }
  bool admits_frame(Borrowed frame) const { return frames_.count(frame.get()) != 0; }
  // The program, once the result and the side effects are added.
  Program finish(std::vector<Operand> results);

  World& world() { return world_; }

 private:
  struct Open {
    Operand object;
    Step step;
    bool early;
  };
  struct Ready {
    Op op;
    std::vector<Operand> operands;
    int64_t number;
    bool early = false;
  };
  void emit_hashing(bool early_only);

  bool is_constant(Borrowed object, int depth = 0);
  bool is_leaf(Borrowed object);
  Operand tensor(Borrowed object);
  Operand make(Borrowed object);
  void fill(const Open& open);
  void merge_filling(Recipe& recipe);

  World& world_;
  std::vector<Ref>* graph_outputs_;
  std::vector<lift::Source*>* needed_;
  Program program_;
  std::unordered_map<PyObject*, Operand> known_;
  std::unordered_map<PyObject*, uint32_t> constants_;
  std::unordered_map<const lift::Source*, uint32_t> needed_positions_;
  std::vector<Ref> held_;  // keeps the keys of known_ alive
  std::unordered_set<PyObject*> making_;
  std::deque<Open> open_;
  std::vector<Ready> hashing_, last_;
  std::unordered_map<PyObject*, PyObject*> dict_owners_;
  std::unordered_set<PyObject*> frames_;
  int depth_ = 0;
  bool early_ = false;
};

// A mutation of a pre-existing object, its operands already made: emitted after everything is complete.
struct Write {
  Op op;
  std::vector<Operand> operands;
  int64_t number = 0;
  bool hashes = false;  // keys, by Python code: after all others
};
std::vector<Write> collect_effects(Builder& builder);
Write end_of_frame(Builder& builder, Borrowed frame);

}  // namespace alternator::replay
