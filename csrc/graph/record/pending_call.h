// A call that is being turned into a node: shared by the files of the recorder.
#pragma once

#include "graph/record/recorder.h"

#include "graph/record/record_error.h"
#include "graph/record/torch_types.h"
#include "graph/record/without_torch_functions.h"

#include <algorithm>

namespace alternator::graph {

class Recorder::ForArgument {
 public:
  ForArgument(Recorder& recorder, bool asks)
      : recorder_(recorder), before_(std::exchange(recorder.for_argument_, asks)) {}
  ~ForArgument() { recorder_.for_argument_ = before_; }
  ForArgument(const ForArgument&) = delete;
  ForArgument& operator=(const ForArgument&) = delete;

 private:
  Recorder& recorder_;
  bool before_;
};

// The arguments of a call that is being turned into a node.
class Recorder::Pending {
 public:
  Pending(Recorder& recorder, Borrowed callable)
      : recorder_(recorder), arena_(recorder.program_->arena), mark_(arena_.mark()), watch_(recorder.session_) {
    node.callable = Ref::share(callable);
  }
  ~Pending() {
    if (!kept_) arena_.rewind(mark_);
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  void reserve(size_t positional, size_t keyword) {
    if (positional > UINT16_MAX || keyword > UINT16_MAX) record_error("a call with too many arguments to record");
    node.positional = static_cast<uint16_t>(positional);
    node.keyword = static_cast<uint16_t>(keyword);
    node.arguments = arena_.reserve(positional + keyword);
  }
  void set(size_t i, Borrowed argument) {
    const ForArgument scope(recorder_, !node.wrapped);
    arena_.set(node.arguments + static_cast<uint32_t>(i), capture(arena_, argument, recorder_));
    // A subclass may override a method of any name, now or later.
    PyTypeObject* type = argument.type();
    const bool is_torchs = type == torch_types().tensor || type == torch_types().parameter;
    node.overridden = node.overridden || (!is_torchs && is_tensor(argument));
    node.separate = node.separate || is_generator(argument);
  }
  // Before the call, with all arguments set.
  void watch() {
    for (size_t i = mark_.values; i < arena_.size(); ++i)
      if (arena_[static_cast<uint32_t>(i)].is_tensor()) {
        const TensorRecord& record = recorder_.program_->tensors[arena_[static_cast<uint32_t>(i)].index];
        varies_ = varies_ || record.varies || record.expression != nullptr;
        if (record.is_symbol()) {
          symbolic_ = symbolic_ || record.torch_symbol;
        } else {
          watch_.watch(record.fake);
          histories_.push_back({record.fake.unsafeGetTensorImpl(), record.fake.requires_grad()});
        }
      }
  }
  // After the call: sets the node's effects and traits.
  void describe() {
    const CalleeFacts named = recorder_.named_callees_.of(node.function());
    node.traits = named.traits;
    node.effects = named.effects | watch_.effects(node.function());
  }
  bool wrote_argument() const { return watch_.wrote_argument(); }
  // requires_grad of a tensor argument changed, and not because a tensor that requires gradients was written to it:
  // requires_grad_, detach_.
  bool cut_history() const {
    return std::any_of(histories_.begin(), histories_.end(), [](const History& before) {
      return before.tensor->requires_grad() != before.required_grad &&
             at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(before.tensor)).is_leaf();
    });
  }
  bool symbolic() const { return symbolic_; }  // an unbacked symbol is among the arguments
  bool varies() const { return varies_; }      // ... or a number, or a tensor whose sizes vary
  void keep() { kept_ = true; }

  Node node;

 private:
  Recorder& recorder_;
  Arena& arena_;
  Arena::Mark mark_;
  EffectWatch watch_;
  struct History {
    c10::TensorImpl* tensor;  // kept alive by the program
    bool required_grad;
  };
  c10::SmallVector<History, 8> histories_;
  bool symbolic_ = false;
  bool varies_ = false;
  bool kept_ = false;
};

}  // namespace alternator::graph
