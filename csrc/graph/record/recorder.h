// Records the torch calls that a program makes on fakes.
//
//   Recorder recorder(session);
//   recorder.declare(fake_x, label, source);          // may become an input
//   recorder.begin();                                 // this thread: the session is active, calls are seen
//   ... recorder.call(callable, args, nargs, kwnames) // a call that the interpreter recognised
//   ... plain Python or C code                        // its torch calls come through the mode
//   std::unique_ptr<Program> program = recorder.finish(result);
//
// Only the outermost torch API call is a node: what it calls itself is part of it. A call that makes no new tensor and
// has no effect (x.shape, x.contiguous() of a contiguous tensor) is none.
#pragma once

#include "fake/fake.h"
#include "graph/record/node_effects.h"
#include "graph/record/program.h"
#include "graph/record/recording_mode.h"
#include "graph/record/torch_function_classes.h"

#include <c10/util/FunctionRef.h>
#include <c10/util/flat_hash_map.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace alternator::graph {

class Recorder final : private TensorNames {
 public:
  // `stack` tells the user's line of each node; null: no lines.
  explicit Recorder(fake::Session& session, std::unique_ptr<StackSource> stack = nullptr);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A fake that stands in for a tensor of the outside world: an input once it is used. `label` is how a user would
  // write it, `source` is handed back with the program.
  void declare(const at::Tensor& fake, Borrowed label, Borrowed source);

  // The same for a generator of the outside world. Without a source it is that very one in every run.
  void declare_generator(Borrowed generator, Borrowed label, Borrowed source);
  // ... and for an array of numpy's.
  void declare_array(Borrowed array, Borrowed label, Borrowed source);
  // From now on, one that was neither declared nor made is an error.
  void refuse_symbolic_generators() { refuses_generators_ = true; }
  // From now on, a call that torch warns in is an error: the program has set filters that a run would not see.
  void refuse_warnings() { refuses_warnings_ = true; }

  void begin();
  bool recording() const { return active_.has_value(); }
  bool is_silent() const { return inside_; }
  bool is_checkpointed() const { return checkpoint_ != 0; }
  // Calls in its scope run on fakes and leave no node.
  class Silent {
   public:
    explicit Silent(Recorder& recorder) : recorder_(recorder), before_(std::exchange(recorder.inside_, true)) {}
    ~Silent() { recorder_.inside_ = before_; }
    Silent(const Silent&) = delete;
    Silent& operator=(const Silent&) = delete;

   private:
    Recorder& recorder_;
    bool before_;
  };
  // Nodes of its scope are computed once more in the backward pass, where the backend can do that.
  class Checkpoint {
   public:
    explicit Checkpoint(Recorder& recorder);
    ~Checkpoint() { recorder_.checkpoint_ = before_; }
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;

   private:
    Recorder& recorder_;
    uint16_t before_;
  };
  // Makes the call and records it, in the vectorcall convention. Throws PyError with the callee's exception, or with
  // RecordError when the call cannot be a node. Under modes of the user's own the call takes its way through them.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t flagged_count, Borrowed keyword_names);
  // The same for the mode, which has a tuple and a dict (or null), and the classes that torch would ask.
  // NotImplemented: torch is to ask them.
  Ref call_from_mode(Borrowed callable, Borrowed types, Borrowed arguments, Borrowed keywords);
  // Before torch asks classes of the program's (torch_function_classes.h). Null: it is not to do that.
  std::function<void(Borrowed types, Borrowed arguments, Borrowed keywords)> on_override;
  // What torch.Tensor.__torch_function__ does for a class, as one node.
  Ref call_for_class(Borrowed cls, Borrowed callable, PyObject* const* arguments, size_t positional,
                     Borrowed keyword_names);

  // A part of the program that is recorded as one of its own, over tensors of the program around it: an arm of a
  // conditional. The recording around it goes on where it was.
  class Part {
   public:
    explicit Part(Recorder& recorder);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    // `result` is a list of tensors. What it uses of the program around it is declared in the order of first use.
    std::unique_ptr<Program> finish(Borrowed result);

   private:
    friend class Recorder;
    bool knows(const at::Tensor& tensor) const {
      return known_.count(tensor.unsafeGetTensorImpl()) != 0 || (outer_ != nullptr && outer_->knows(tensor));
    }
    void leave();

    Recorder& recorder_;
    Part* outer_;
    // Of the program around it.
    std::unique_ptr<Program> program_;
    ska::flat_hash_map<const c10::TensorImpl*, uint32_t> known_;
    uint32_t scope_;
    uint16_t last_state_;
  };
  // Writes down a call that is not made: `result` is what it gives, a tuple of new fakes.
  void note_call(Borrowed callable, PyObject* const* arguments, size_t count, Ref result, uint8_t effects);
  // The same for a call that runs apart from what a backend compiles. `result`: a new fake, a new generator, or None.
  void note_separate_segment(Borrowed callable, PyObject* const* arguments, size_t count, Ref result);
  // ... for a call of numpy's, or from or to it. Arrays in `result` are new, or known already.
  void note_array_call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                       Ref result, bool writes);
  // An argument of such a call that is a constant of the program: nobody else has it.
  void keep_array(Borrowed array) { kept_arrays_.insert(array.get()); }
  // ... and for one that gives an integer that only a run knows.
  Ref number_separately(Borrowed callable, PyObject* const* arguments, size_t count);

  // From now on, nodes remember the flags of torch's that they run with. False: nobody can tell what these are.
  bool watch_flags();
  bool watches_flags() const { return flags_seen_.has_value(); }
  bool watched_flags() const { return watched_flags_; }

  // The module whose forward runs until the matching leave.
  void enter_module(Borrowed module);
  void leave_module();

  // Ends the recording without a program. begin() may be called again afterwards: it continues the same program.
  void end();
  // Ends the recording; `result` is what the program returns. The recorder is empty afterwards.
  std::unique_ptr<Program> finish(Borrowed result, Unused unused = Unused::kGo);

  // The real value of a tensor of the recording, computed now: see value_now(). The session must be inactive.
  Ref value_of(Borrowed tensor);
  // Numbers that only a run knows (fake/unbacked_symbol.h). Where these are on, `.item()` of a tensor without a known
  // value gives one, and so does the size of `x[mask]`.
  struct Captured {
    bool scalars, sizes;
  };
  void capture_unbacked(Captured wanted) {
    captures_scalars_ = wanted.scalars;
    session_.capture_sizes(wanted.sizes);
  }
  bool captures_scalars() const { return captures_scalars_; }
  // Whether two calls of .item() gave the same object, since nothing was written between.
  bool shares_symbols() const { return shares_symbols_; }
  // Whether there are any: what has seen none cannot hold one.
  bool has_symbols() const { return records_numbers() || meets_numbers_; }
  // ... that the program computes. Others are not its business: whoever uses one of them gets a RecordError.
  bool records_numbers() const { return static_cast<bool>(program_->shape_env); }
  void expect_numbers() { meets_numbers_ = true; }
  // Carries out and records a function on numbers, some of them symbols, past all modes.
  Ref operate(Borrowed function, PyObject* const* arguments, size_t count);
  // As torch knows it.
  Ref torch_symbol(Borrowed symbol) const;

  Program& program() { return *program_; }
  fake::Session& session() { return session_; }
  Borrowed mode() const { return mode_; }

 private:
  class Pending;
  class ForArgument;

  uint32_t tensor_id(Borrowed tensor) override;
  uint32_t object_id(Borrowed object) override;
  bool is_kept(Borrowed object) override { return kept_arrays_.count(object.get()) != 0; }
  uint32_t tensor_id(const at::Tensor& tensor);
  uint32_t add_tensor(const at::Tensor& fake, Origin origin, uint32_t index);
  Ref record(Pending& pending, c10::function_ref<PyObject*()> call);
  Ref call_wrapped(Borrowed wrapper, Borrowed callable, Borrowed arguments, Borrowed keywords);
  Ref iterate(Borrowed tensor);
  bool bind(Ref& result, Node& node);
  void note(Pending& pending, Ref result, uint8_t effects);
  uint32_t add_symbol(Borrowed symbol, Ref torch_symbol, Origin origin, uint32_t index);
  Ref item(Pending& pending, Borrowed tensor);
  // The value with torch's symbols in place of ours: itself where it holds none.
  Ref to_torch(Borrowed value) const;
  Ref from_torch(Borrowed value);
  bool bind_items(Borrowed container, uint32_t position, uint32_t parent);
  void check_made_here(const at::Tensor& tensor);
  void note_class(PyTypeObject* type);  // of a tensor that was made
  uint16_t state_number();
  void locate(Node& node);
  bool on_own_thread();
  bool has_unseen_effects() const;

  fake::Session& session_;
  std::unique_ptr<StackSource> stack_;
  std::unique_ptr<Program> program_;
  ska::flat_hash_map<const c10::TensorImpl*, uint32_t> known_;
  ska::flat_hash_map<const PyObject*, uint32_t> symbols_;
  ska::flat_hash_set<const PyObject*> kept_arrays_;  // the program has them
  struct Item {
    uint64_t writes;  // all that the session had counted
    Ref symbol;
  };
  ska::flat_hash_map<const c10::TensorImpl*, Item> items_;
  bool shares_symbols_ = false;
  std::vector<std::pair<PyObject*, Ref>> from_torch_;  // of the call at hand: torch's number -> ours
  std::vector<Frame> frames_;
  uint32_t scope_ = kNowhere;
  uint16_t last_state_ = 0;
  uint16_t checkpoint_ = 0;
  Part* part_ = nullptr;  // the innermost
  bool captures_scalars_ = false;
  bool meets_numbers_ = false;
  bool refuses_generators_ = false;
  bool refuses_warnings_ = false;
  bool for_array_call_ = false;
  bool inside_ = false;          // a recorded call is running
  bool for_argument_ = false;    // a tensor is asked for that torch would ask the class of
  bool foreign_thread_ = false;  // another thread made a call
  bool unseen_ = false;          // something was written after the last recorded call
  unsigned long thread_ = 0;
  NamedEffects named_effects_;
  std::optional<FlagsSeen> flags_seen_;
  bool watched_flags_ = false;
  fake::Session::Counts seen_;  // after the last recorded call
  Ref mode_;
  std::optional<fake::Active> active_;
  std::optional<ModeOnStack> on_stack_;
};

}  // namespace alternator::graph
