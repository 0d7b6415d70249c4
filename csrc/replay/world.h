// What replay wants to know of a finished trace.
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

  // Where the object of the outside world is found that `object` stands for; null: it was made in the trace, or is a
  // constant.
  virtual lift::Source* source_of(Borrowed object) = 0;
  // A class or a function that the trace made.
  virtual bool made_here(Borrowed object) = 0;
  // A constant of the code that ran: the same object in every call.
  virtual bool is_code_constant(Borrowed) { return false; }
  // Anything else that is the same object on every run.
  virtual bool is_constant(Borrowed) { return false; }
  // A tensor that the graph can return.
  virtual bool is_graph_tensor(Borrowed tensor) = 0;
  // An array of numpy's that the graph can return.
  virtual bool is_graph_array(Borrowed) { return false; }

  // In the order in which they were first lifted.
  virtual const std::deque<lift::Shadow>& shadows() = 0;
  virtual std::vector<lift::PlaceWrite> writes() = 0;
  virtual std::vector<EffectCall> calls() { return {}; }

  // The write-back relies on the container's length as it was.
  virtual void guard_length(const lift::Shadow& shadow) = 0;
  // What is found there is in the container no more: nobody must notice if that is its end.
  virtual void guard_finalization(const lift::Shadow& /*shadow*/, lift::Access /*access*/, Borrowed /*key*/,
                                  Py_ssize_t /*index*/) {}
};

// The world of a real trace.
class LifterWorld final : public World {
 public:
  explicit LifterWorld(lift::Lifter& lifter) : lifter_(lifter) {}

  lift::Source* source_of(Borrowed object) override;
  bool made_here(Borrowed object) override;
  bool is_code_constant(Borrowed object) override;
  bool is_constant(Borrowed object) override;
  bool is_graph_tensor(Borrowed tensor) override;
  bool is_graph_array(Borrowed object) override;
  const std::deque<lift::Shadow>& shadows() override;
  std::vector<lift::PlaceWrite> writes() override;
  std::vector<EffectCall> calls() override;
  void guard_length(const lift::Shadow& shadow) override;
  void guard_finalization(const lift::Shadow& shadow, lift::Access access, Borrowed key, Py_ssize_t index) override;

 private:
  const std::vector<lift::Source*>& referents();  // that weak references have found

  lift::Lifter& lifter_;
  std::optional<std::vector<lift::Source*>> referents_;
};

}  // namespace alternator::replay
