// What replay needs to know of a finished trace.
#pragma once

#include "lift/lifting/shadow.h"

#include <deque>
#include <optional>
#include <vector>

namespace alternator::lift {
class Lifter;
}

namespace alternator::replay {

using lift::EffectCall;

class World {
 public:
  virtual ~World() = default;

  // The source of the pre-existing object that `object` represents; null: it was made in the trace, or is a constant.
  virtual lift::Source* source_of(Borrowed object) = 0;
  // A class or a function that the trace made.
  virtual bool made_here(Borrowed object) = 0;
  // A constant of the code that ran: the same object in every call.
  virtual bool is_code_constant(Borrowed) { return false; }
  // Anything else that is the same object on every run.
  virtual bool is_constant(Borrowed) { return false; }
  // A tensor that the graph can return.
  virtual bool is_graph_tensor(Borrowed tensor) = 0;
  // A numpy array that the graph can return.
  virtual bool is_graph_array(Borrowed) { return false; }

  // The position of a number over backed symbols among those that the guards compute; none: it is no such number.
  virtual std::optional<uint32_t> number_of(Borrowed) { return {}; }

  // In the order in which they were first lifted.
  virtual const std::deque<lift::Shadow>& shadows() = 0;
  virtual std::vector<lift::VariableWrite> writes() = 0;
  virtual std::vector<EffectCall> calls() { return {}; }

  // The write-back relies on the container's original length.
  virtual void guard_length(const lift::Shadow& shadow) = 0;
  // The call removes this element from the container: guards that its finalization is not observable.
  virtual void guard_finalization(const lift::Shadow& /*shadow*/, lift::Access /*access*/, Borrowed /*key*/,
                                  Py_ssize_t /*index*/) {}
};

// The World of a real trace.
class LifterWorld final : public World {
 public:
  explicit LifterWorld(lift::Lifter& lifter) : lifter_(lifter) {}

  lift::Source* source_of(Borrowed object) override;
  bool made_here(Borrowed object) override;
  bool is_code_constant(Borrowed object) override;
  bool is_constant(Borrowed object) override;
  bool is_graph_tensor(Borrowed tensor) override;
  bool is_graph_array(Borrowed object) override;
  std::optional<uint32_t> number_of(Borrowed object) override;
  const std::deque<lift::Shadow>& shadows() override;
  std::vector<lift::VariableWrite> writes() override;
  std::vector<EffectCall> calls() override;
  void guard_length(const lift::Shadow& shadow) override;
  void guard_finalization(const lift::Shadow& shadow, lift::Access access, Borrowed key, Py_ssize_t index) override;

 private:
  const std::vector<lift::Source*>& referents();  // read through weak references

  lift::Lifter& lifter_;
  std::optional<std::vector<lift::Source*>> referents_;
};

}  // namespace alternator::replay
