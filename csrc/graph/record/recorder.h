// Records the torch calls that a program makes on fakes.
//
//   Recorder recorder(session);
//   recorder.declare(fake_x, label, source);          // may become an input
//   recorder.begin();                                 // this thread: the session is active, calls are recorded
//   ... recorder.call(callable, args, nargs, kwnames) // a call that the interpreter recognized
//   ... plain Python or C code                        // its torch calls arrive through the mode
//   std::unique_ptr<Program> program = recorder.finish(result);
//
// Only the outermost torch API call is a node: the calls inside it are part of it. A call that creates no tensor and
// has no side effect (x.shape, x.contiguous() of a contiguous tensor) is none.
#pragma once

#include "fake/fake.h"
#include "graph/record/node_effects.h"
#include "graph/record/program.h"
#include "graph/record/recording_mode.h"
#include "graph/record/torch_function_classes.h"
#include "graph/record/torch_types.h"

#include <c10/util/FunctionRef.h>
#include <c10/util/flat_hash_map.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace alternator::graph {

class Recorder final : private TensorNames {
 public:
  // `stack` gives the user's line of each node; null: no lines.
  explicit Recorder(fake::Session& session, std::unique_ptr<StackSource> stack = nullptr);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The fake of a pre-existing tensor: an input once it is used. `label` is the user's expression for it, `source` is
  // returned with the program.
  void declare(const at::Tensor& fake, Borrowed label, Borrowed source);

  // The same for a pre-existing generator. Without a source, every run uses this very object.
  void declare_generator(Borrowed generator, Borrowed label, Borrowed source);
  // ... and for a numpy array.
  void declare_array(Borrowed array, Borrowed label, Borrowed source);
  // From now on, a generator that was neither declared nor created by the program is an error.
  void refuse_symbolic_generators() { refuses_generators_ = true; }
  // From now on, a call that issues a torch warning is an error: the program has set filters that a run would not see.
  void refuse_warnings() { refuses_warnings_ = true; }

  void begin();
  bool recording() const { return active_.has_value(); }
  bool is_silent() const { return inside_; }
  bool is_checkpointed() const { return checkpoint_ != 0; }
  // Calls in its scope run on fakes and leave no node.
  class Silent {
   public:
    explicit Silent(Recorder& recorder) : recorder_(recorder), before_(std::exchange(recorder.inside_, true)) {
      if (recorder.backed_ && recorder.on_silence) recorder.on_silence();  // what they tell of sizes is not seen
    }
    ~Silent() { recorder_.inside_ = before_; }
    Silent(const Silent&) = delete;
    Silent& operator=(const Silent&) = delete;

   private:
    Recorder& recorder_;
    bool before_;
  };
  // Nodes of its scope are recomputed in the backward pass, where the backend supports that.
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
  // RecordError when the call cannot be a node. Under user modes the call is dispatched through them.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t flagged_count, Borrowed keyword_names);
  // The same for the mode, which receives a tuple and a dict (or null), and the classes that torch would dispatch to.
  // NotImplemented: torch is to dispatch to them.
  Ref call_from_mode(Borrowed callable, Borrowed types, Borrowed arguments, Borrowed keywords);
  // Called before torch dispatches to user classes (torch_function_classes.h). Null: that is not allowed.
  std::function<void(Borrowed types, Borrowed arguments, Borrowed keywords)> on_override;
  // torch.Tensor.__torch_function__ called for a class, as one node.
  Ref call_for_class(Borrowed cls, Borrowed callable, PyObject* const* arguments, size_t positional,
                     Borrowed keyword_names);

  // A part of the program that is recorded as a subgraph, over tensors of the enclosing program: a branch of a
  // conditional. The enclosing recording continues afterwards.
  class Part {
   public:
    explicit Part(Recorder& recorder);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    // `result` is a list of tensors. The tensors that it uses of the enclosing program are declared in the order of
    // first use.
    std::unique_ptr<Program> finish(Borrowed result);

   private:
    friend class Recorder;
    bool knows(const at::Tensor& tensor) const {
      return known_.count(tensor.unsafeGetTensorImpl()) != 0 || (outer_ != nullptr && outer_->knows(tensor));
    }
    void leave();
    void specialize(const at::Tensor& tensor);  // on its sizes

    Recorder& recorder_;
    Part* outer_;
    // Of the enclosing program.
    std::unique_ptr<Program> program_;
    ska::flat_hash_map<const c10::TensorImpl*, uint32_t> known_;
    uint32_t scope_;
    uint16_t last_state_;
  };
  // Records a call without making it: `result` is its result, a tuple of new fakes.
  void note_call(Borrowed callable, PyObject* const* arguments, size_t count, Ref result, uint8_t effects);
  // The same for a call in a separate segment, outside of what a backend compiles. `result`: a new fake, a new
  // generator, or None.
  void note_separate_segment(Borrowed callable, PyObject* const* arguments, size_t count, Ref result);
  // ... for a call of numpy, or a conversion from or to it. Arrays in `result` are new, or known already.
  void note_array_call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                       Ref result, bool writes);
  // An argument of such a call that is a constant of the program: it has no other owner.
  void keep_array(Borrowed array) { kept_arrays_.insert(array.get()); }
  // ... and for one that returns an integer unbacked symbol.
  Ref number_separately(Borrowed callable, PyObject* const* arguments, size_t count);

  // From now on, nodes record the torch flags that they run with. False: the flags cannot be determined.
  bool watch_flags();
  bool watches_flags() const { return flags_seen_.has_value(); }
  bool watched_flags() const { return watched_flags_; }

  // The module whose forward runs until the matching leave.
  void enter_module(Borrowed module);
  void leave_module();

  // Ends the recording without a program. begin() may be called again afterwards: it continues the same program.
  void end();
  // Ends the recording; `result` is the program's return value. The recorder is empty afterwards.
  std::unique_ptr<Program> finish(Borrowed result, Unused unused = Unused::kGo);

  // The real value of a tensor of the recording, computed now: see value_now(). The session must be inactive.
  Ref value_of(Borrowed tensor);
  // Unbacked symbols (fake/unbacked_symbol.h). Where these are on, `.item()` of a tensor without a known value returns
  // one, and so does the size of `x[mask]`.
  struct Captured {
    bool scalars, sizes;
  };
  void capture_unbacked(Captured wanted) {
    captures_scalars_ = wanted.scalars;
    session_.capture_sizes(wanted.sizes);
  }
  bool captures_scalars() const { return captures_scalars_; }
  // Whether two calls of .item() returned the same object, since nothing was mutated in between.
  bool shares_symbols() const { return shares_symbols_; }
  // Whether there are any: code that has seen none cannot hold one.
  bool has_symbols() const { return has_unbacked() || backed_ != nullptr; }
  bool has_unbacked() const { return records_numbers() || meets_numbers_; }
  // ... that the program computes. Symbols of other programs are not recorded: using one raises RecordError.
  bool records_numbers() const { return static_cast<bool>(program_->shape_env); }
  void expect_numbers() { meets_numbers_ = true; }
  // Backed symbols (fake/backed_symbols.h): from now on, numbers and sizes over them may be met.
  void use_backed(std::shared_ptr<fake::BackedSymbols> symbols);
  fake::BackedSymbols* backed() const { return backed_.get(); }
  // The sizes and strides of a declared tensor, some of them symbolic.
  void note_geometry(const at::Tensor& fake, fake::SymbolicGeometry geometry);
  // Called after each call with an argument whose sizes vary, or with a number: the result as the program is to see it.
  // The arguments of the node are in the arena; `made`: the first of its new tensors.
  std::function<Ref(const Node& node, Ref result, uint32_t made)> on_varying;
  // ... for such a call that raised, or whose result was made for these very sizes; and for a tensor whose sizes vary
  // where a part reads it.
  std::function<void(const Node& node)> on_fixed_sizes;
  std::function<void(uint32_t tensor)> on_enters_part;
  std::function<void()> on_silence;
  bool is_in_part() const { return part_ != nullptr; }
  // The id of a tensor of the program that is being recorded.
  std::optional<uint32_t> known_tensor(Borrowed tensor) const {
    const auto found = known_.find(as_tensor(tensor).unsafeGetTensorImpl());
    return found != known_.end() ? std::optional<uint32_t>(found->second) : std::nullopt;
  }
  // Executes and records a function on scalars, some of them unbacked symbols, bypassing all modes.
  Ref operate(Borrowed function, PyObject* const* arguments, size_t count);
  // As torch sees it.
  Ref torch_symbol(Borrowed symbol) const;

  Program& program() { return *program_; }
  fake::Session& session() { return session_; }
  Borrowed mode() const { return mode_; }

 private:
  class Pending;
  class ForArgument;

  uint32_t tensor_id(Borrowed tensor) override;
  void prepare(Borrowed number) override;
  uint32_t object_id(Borrowed object) override;
  bool is_kept(Borrowed object) override { return kept_arrays_.count(object.get()) != 0; }
  uint32_t tensor_id(const at::Tensor& tensor);
  uint32_t add_tensor(const at::Tensor& fake, Origin origin, uint32_t index);
  Ref record(Pending& pending, c10::function_ref<PyObject*()> call);
  Ref call_wrapped(Borrowed wrapper, Borrowed callable, Borrowed arguments, Borrowed keywords);
  Ref iterate(Borrowed tensor);
  Ref vary(const Node& node, Ref result, uint32_t made);
  bool bind(Ref& result, Node& node);
  void note(Pending& pending, Ref result, uint8_t effects);
  uint32_t add_symbol(Borrowed symbol, Ref torch_symbol, Origin origin, uint32_t index);
  uint32_t number_id(Borrowed number, shapes::Expression expression);
  Ref item(Pending& pending, Borrowed tensor);
  // The value with torch's symbols in place of ours: itself where it contains none.
  Ref to_torch(Borrowed value) const;
  Ref from_torch(Borrowed value);
  bool bind_items(Borrowed container, uint32_t position, uint32_t parent);
  void check_made_here(const at::Tensor& tensor);
  void note_class(PyTypeObject* type);  // of a tensor that was created
  uint16_t state_number();
  void locate(Node& node);
  bool on_own_thread();
  bool has_unseen_effects() const;

  fake::Session& session_;
  std::unique_ptr<StackSource> stack_;
  std::unique_ptr<Program> program_;
  ska::flat_hash_map<const c10::TensorImpl*, uint32_t> known_;
  ska::flat_hash_map<const PyObject*, uint32_t> symbols_;
  std::shared_ptr<fake::BackedSymbols> backed_;
  ska::flat_hash_map<shapes::Expression, uint32_t> numbers_;
  ska::flat_hash_set<const PyObject*> kept_arrays_;  // owned by the program
  struct Item {
    uint64_t writes;  // the session's count of writes at that time
    Ref symbol;
  };
  ska::flat_hash_map<const c10::TensorImpl*, Item> items_;
  bool shares_symbols_ = false;
  std::vector<std::pair<PyObject*, Ref>> from_torch_;  // of the current call: torch's symbol -> ours
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
  bool for_argument_ = false;    // the lookup is for an argument, whose class torch would dispatch to
  bool foreign_thread_ = false;  // another thread made a call
  bool unseen_ = false;          // something was mutated after the last recorded call
  unsigned long thread_ = 0;
  NamedCallees named_callees_;
  std::optional<FlagsSeen> flags_seen_;
  bool watched_flags_ = false;
  fake::Session::Counts seen_;  // after the last recorded call
  Ref mode_;
  std::optional<fake::Active> active_;
  std::optional<ModeOnStack> on_stack_;
};

}  // namespace alternator::graph
