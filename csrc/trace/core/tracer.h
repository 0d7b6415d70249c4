// One trace: a program run on lifted values, its torch calls recorded.
#pragma once

#include "interpreter/control.h"

#include "fake/functorch_state.h"
#include "fake/thread_state.h"
#include "fake/unbacked_symbol.h"
#include "graph/record/ambient_state.h"
#include "graph/record/recorder.h"
#include "graph/record/torch_types.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/taint.h"
#include "lift/sources/numpy_types.h"
#include "report/event.h"
#include "trace/soundness/address_identity.h"
#include "trace/stdlib/output_effects.h"
#include "trace/symbolic/deferred_values.h"

#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>

namespace alternator::trace {

// Thrown inside the tracer where the program cannot be followed; becomes `Tracer::stopped`.
struct Stop {
  report::Reason reason;
  std::string context;
};
[[noreturn]] void stop(report::Reason reason, std::string context = {});

using lift::lazy_type;
using lift::LazyObject;

// A place where a trace may be cut: an instruction that it was in when it stopped.
struct BreakPoint {
  uint64_t number = 0;  // of the instruction, in the order of execution
  uint64_t path = 0;    // a hash of the way there: the same program takes the same way again
};

class Tracer {
 public:
  Tracer();
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  static Tracer* current();  // of this thread; null while native torch code runs

  // Runs a stopped chain of frames (a function that has not begun is one) on frames of its own, as far as `until` if
  // that is given. Null: it got there, and `cut` is what was found; or see `stopped` and `break_points`. With `raises`,
  // the result is an exception that left the function.
  Ref run(const Chain& chain, const BreakPoint* until);

  // Debugging: a trace that may break does so at the latest before its n-th instruction. 0: where it must. Also read
  // from the environment at start: ALTERNATOR_BREAK_EVERY.
  static uint64_t break_every;
  bool may_break = false;

  // What the data of a call must say for the trace to be the call's (speculated_checks.cpp): the first results of the
  // graph.
  struct Assumption {
    Ref tensor;  // one bool
    bool wanted;
    Ref code;  // where it is asked
    int index;
  };
  std::vector<Assumption> assumptions;
  bool may_assume = false;

  Chain cut;  // the traced frames at `until`; empty: it was not reached
  std::optional<report::Break> stopped;
  std::vector<BreakPoint> break_points;  // where it was when it stopped: in the innermost frame first
  bool refuses = false;                  // error_on_graph_break(True) holds there
  bool raises = false;
  Ref interrupted;  // what a signal's handler raised meanwhile
  // The modes of a default device that the thread has when the trace begins are the program's own: it may take them
  // off. `wants_modes`: the trace stopped because they are not.
  bool has_modes = false, wants_modes = false;
  // The thread's state at the end of the trace.
  graph::Ambient exit_state;
  size_t exit_popped = 0;       // of the modes that it had at the beginning, from the top
  std::vector<Ref> exit_modes;  // ... and those that come in their place
  // Flags of torch's: what they were at the beginning, once that matters, and which of them matter.
  std::optional<fake::Flags> flags_before;
  uint8_t flag_groups = 0;
  int exit_nesting = 0;                          // of autocast, against that at its beginning
  std::optional<fake::CastSettings> exit_casts;  // where it has set them
  bool clears_casts = false;                     // a scope of autocast that was left before has its casts dropped here
  std::unique_ptr<lift::Taint> taint;            // where the sanitizer is on

  std::unique_ptr<lift::SourceTree> tree;
  fake::Session session;
  lift::Lifter lifter;
  graph::Recorder recorder;

  // Identities of plain values: they may be looked up, where they are not found; anything else is a break.
  std::unordered_map<PyObject*, PyObject*> unguarded_identities;  // -> the value
  std::unordered_map<PyObject*, PyObject*> identities;            // of other objects -> the object
  // From the first one that is stored on, all of them are guarded.
  bool stores_plain_identities = false;
  // How often the program has asked whether gradients are on, or whether a tensor that it made wants one.
  size_t gradient_questions = 0;
  std::vector<Ref> keep_alive;
  Ref patterns;        // dict: what re.compile was asked for in this trace -> the pattern
  Ref cached;          // dict: what functions with an lru_cache were asked for in this trace -> what they said
  Ref handled_before;  // the exception that the caller handles

  // --- the meaning of opcodes (tracing.h) ---
  Ref get_attribute(Borrowed owner, Borrowed name);
  void set_attribute(Borrowed owner, Borrowed name, Borrowed value);  // null: delete
  Ref get_item(Borrowed container, Borrowed key);
  void set_item(Borrowed container, Borrowed key, Borrowed value);  // null: delete
  bool contains(Borrowed container, Borrowed value);
  Tri truth(Borrowed value);
  Ref load_global(Borrowed globals, Borrowed builtins, Borrowed name);
  void guard_import(Borrowed name);
  void store_global(Borrowed globals, Borrowed name, Borrowed value);  // null: delete
  void store_cell(Borrowed cell, Ref value);                           // an outside one
  void note_identity_test(Borrowed left, Borrowed right);
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // A call that becomes a node.
  Ref call_torch(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref special_method(Borrowed owner, Borrowed name);
  void use_descriptor(Borrowed attribute, PyTypeObject* type, Borrowed name);
  bool comes_first(Borrowed attribute, PyTypeObject* type, Borrowed name);
  // --- exceptions (raised_exceptions.cpp) ---
  // Which classes it is a subclass of is guarded, where that may change.
  void guard_order_of_bases(Borrowed cls);
  // A group that native code is to go through.
  void check_group(Borrowed exception, int depth = 0);
  void before_raise(Ref* exception);
  void raising();
  int handle_breaker(PyThreadState* ts);
  // --- print, warnings, logging (output_effects.cpp, logging.cpp): true: it was such a call ---
  bool call_effect(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                   Ref* result);
  // --- torch-function modes that the program enters (torch_function_modes.cpp) ---
  // One of them sees the next torch call before the recording does: its __torch_function__ is a callback like any
  // other.
  bool is_under_modes() const;
  void forbid_under_modes(const char* what) const;
  // --- classes with a __torch_function__ (torch_function_methods.cpp) ---
  // Torch asks a class of the program's before it does anything with these: its method is a callback like any other.
  bool is_overridden(Borrowed object);
  bool is_overridden(PyObject* const* objects, size_t count);
  bool is_overridden_call(Borrowed callable, PyObject* const* arguments, size_t count);
  // Native code that asks it.
  Ref run_overridden(const std::string& what, const std::function<PyObject*()>& run);
  // An exception that ends or cuts the trace is on its way.
  bool is_unwinding() const;
  // --- scopes that cannot be left open where a trace is cut (scoped_modes.cpp): it is cut where the first was opened
  // ---
  void open_scope(Borrowed scope);
  void close_scope(Borrowed scope);
  // A frame of a generator runs: it may be left suspended.
  // Frames that ended with their variables, and that a traceback holds: with an exception in one of those, for ever.
  void note_abandoned(PyFrameObject* frame) {
    if (frame != nullptr) abandoned_.push_back(Ref::share(reinterpret_cast<PyObject*>(frame)));
  }
  // Frames of the chain whose objects somebody outside holds, as far as they have ended here: what stands for them.
  std::vector<Borrowed> ended_frames() const;
  void note_generator(Borrowed generator, bool preexisting = false);
  void end_generators();
  // An operator on a random number that nobody knows (deferred_values.cpp).
  Ref combine_deferred_random(binaryfunc operation, Borrowed left, Borrowed right);
  // An f-string that shows what only a run knows (deferred_values.h).
  bool may_show_later(Borrowed value, Borrowed format) const;
  Ref show_later();
  // Where the first random number of Python's was drawn, or the first such text was made; empty: none was. What cannot
  // be done without its value is done by cutting the trace there.
  const std::vector<BreakPoint>& deferred_points() const { return deferred_points_; }
  const std::optional<report::Break>& deferred_event() const { return deferred_event_; }
  // The operands of an operator of which one is a number of numpy's: with a tensor it is a number like any other.
  // Returns what was made for it, which must live as long as the operands.
  Ref check_numbers(Borrowed* left, Borrowed* right);
  // --- arrays of numpy's (concrete_arrays.cpp) ---
  static bool is_array_operation(Borrowed left, Borrowed right);
  Ref operate_on_arrays(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate_on_array(unaryfunc operation, Borrowed operand);
  Ref compare_arrays(Borrowed left, Borrowed right, int operation);
  // --- arrays whose numbers only a run knows (array_nodes.cpp) ---
  bool is_symbolic_array(Borrowed value);
  bool holds_symbolic_array(Borrowed value, int depth = 0);
  Py_ssize_t length_of_symbolic(Borrowed array);
  // One of these tensors, which leave the trace, has the memory of an array that somebody holds.
  bool leaves_with_array(const std::vector<Ref>& tensors) const;
  // Before native code looks at a value by itself: an opaque object, or one whose text shows its address.
  void check_use(Borrowed value, const char* what);
  void check_text(Borrowed value, int depth = 0);
  // Before native code goes through a value, or through what it holds: a set whose order follows addresses.
  void check_order(Borrowed value, const char* what);
  // What a native function or the constructor of a native type does with its arguments by itself
  // (native_callbacks.cpp).
  void check_native_use(Borrowed callable, PyObject* const* arguments, size_t count);
  void check_type_use(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);

  // --- numbers that only a run knows (unbacked_arithmetic.cpp) ---
  Ref operate(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate(Borrowed function, PyObject* const* arguments, size_t count);
  Ref compare_numbers(Borrowed left, Borrowed right, int operation);
  bool may_hold_symbol(Borrowed value) const;
  static bool has_native_length(Borrowed object);  // no code of the user's says how long it is
  void check_comparison(Borrowed left, Borrowed right);
  // A tensor and nothing that has code of the user's.
  static bool is_torchs_operation(Borrowed left, Borrowed right);
  void check_symbols(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count);
  void check_symbols(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);

  // An instruction begins. kCapture: the trace is to be cut here.
  Verdict begin_instruction(const Position& position);
  uint64_t instructions() const { return instructions_; }
  bool has_lazy_on_stack() const { return lazy_on_stack_ || lifter.has_open(); }
  void note_lazy_on_stack() { lazy_on_stack_ = true; }
  // The frame whose result is that of the trace.
  bool is_outermost(cpython::Frame* frame) const { return frame->previous == caller_; }
  // len() and isinstance() of a container that is not lifted whole, and stays so. Null: it is something else.
  Ref call_on_partly_read(Borrowed callable, PyObject* const* arguments, size_t count);
  // The sanitizer: an outside object that was not lifted is a bug of ours.
  void check_taint(PyObject* value);
  // Records why the trace ends here and sets the exception that unwinds it.
  void stop_here(report::Reason reason, std::string context);

 private:
  friend class Paused;
  Ref get_from_module(Borrowed module, Borrowed name);
  Ref get_from_type(PyTypeObject* type, Borrowed name);
  Ref get_from_tensor(Borrowed tensor, Borrowed name);
  // A method may have been looked up before the trace.
  void check_tensor_method(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count);
  void use_memory_of(Borrowed tensor, const std::string& name);
  Ref get_from_function(Borrowed function, Borrowed name);
  Ref get_from_super(Borrowed super, Borrowed name);
  Ref get_generic(Borrowed owner, Borrowed name, bool* absent);
  Ref get_with_hooks(Borrowed owner, Borrowed name);
  Ref module_attribute(Borrowed module, Borrowed name);  // module_attributes.cpp
  // `written`: the program itself put it on the class.
  Ref bind_descriptor(Borrowed descriptor, Borrowed owner, PyTypeObject* type, lift::Source* source,
                      bool written = false);
  bool is_written(PyTypeObject* type, Borrowed name) {
    PyObject* value;
    return lifter.find_written(type, name, &value);
  }
  void set_on_class(PyTypeObject* type, Borrowed name, Borrowed value);  // null: delete
  void store_on_class(PyTypeObject* type, Borrowed name, Borrowed value);
  void lift_descriptor(PyTypeObject* type, Borrowed attribute, Borrowed name);
  Ref get_cached_property(Borrowed property, Borrowed owner, lift::Source* source);
  Ref names_of(Borrowed object);  // dir()
  void set_generic(Borrowed owner, Borrowed name, Borrowed value);
  Ref call_function(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_compiled(Borrowed compiled, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_constant(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // After torch has raised: because of data, or for a reason that it gives.
  [[noreturn]] void stop_for_torch(const std::string& what);
  // What torch.autograd.grad goes through itself before anything else. False: nothing is among the arguments.
  bool use_iterators(PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                     std::vector<PyObject*>* given, std::vector<Ref>* tuples);
  bool expect(Borrowed value);
  Ref extreme_of_numbers(const std::string& name, PyObject* const* arguments, size_t count);
  Ref convert_number(PyTypeObject* type, Borrowed number);
  Ref convert_tensor(PyTypeObject* type, Borrowed tensor);
  Ref list_of_numbers(Borrowed tensor);
  // torch.tensor(n) and torch.tensor([n, 1]) (symbol_tensors.cpp). Null: it is no such call.
  Ref tensor_of_symbols(const std::string& name, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref list_of_values(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count);
  // autograd_functions.cpp
  struct Forward;
  Ref call_autograd_function(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_transformed_function(Borrowed callable, PyObject* const* arguments, size_t positional,
                                Borrowed keyword_names);
  Forward run_forward(Borrowed cls, PyObject* const* arguments, size_t count);
  Ref apply_forward(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name);
  template <typename Rehearse>
  Ref apply_whole(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name,
                  const Rehearse& rehearse);
  void run_vmap_rule(Borrowed cls, PyObject* const* arguments, size_t count, const std::string& name);
  // One is a node, with its backward as it is: a pass backwards inside would run that for real.
  bool function_applied_ = false;
  Ref wrap_output(Borrowed output, const Forward& run, const std::string& name);
  static bool wants_gradient(PyObject* const* arguments, size_t count);
  // torch.utils.checkpoint.checkpoint (checkpoint.cpp).
  Ref call_checkpoint(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  struct CheckpointCall;
  const char* what_is_not_repeated(const CheckpointCall& call, size_t first);
  const char* what_differs_when_reentrant(const CheckpointCall& call, size_t first, Borrowed result);
  // Modes of torch that an object holds, and marks for profilers (scoped_modes.cpp). Null: it is no such call.
  Ref call_mode(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // Flags of torch's (flag_calls.cpp). Null: it is no function that reads or sets one.
  Ref call_flag(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref ask_flag(Borrowed getter, PyObject* const* arguments, size_t count);
  void use_flags(uint8_t groups);
  void use_flags_of(const std::string& name);  // a torch call
  void check_casts(bool clears, Borrowed callable);
  int nesting_before_ = 0;  // of autocast
  Ref call_type(Borrowed type, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_native(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // Builtins that read objects by name or shape: null without an error where `callable` is none of them.
  Ref call_reflective(Borrowed callable, PyObject* const* arguments, size_t positional, bool* handled);
  Ref query(Borrowed builtin);
  Ref subclasses_of(Borrowed cls);
  Ref next_of_preexisting(PyObject* const* arguments, size_t count);
  // hash(): a number, or an identity where it goes by addresses.
  Ref hash_of(Borrowed value, Borrowed callable);
  // Builtins that look at the frame that they are called from; likewise.
  Ref call_about_frame(Borrowed callable, PyObject* const* arguments, size_t count, bool* handled);
  bool is_running_here(cpython::Frame* wanted) const;
  Ref get_from_frame(Borrowed frame, Borrowed name);
  Ref frame_above(cpython::Frame* frame, long depth);
  Ref locals_of(cpython::Frame* frame);
  Ref globals_for_code(Borrowed globals);
  Ref run_code(Borrowed callable, PyObject* const* arguments, size_t count);
  // What copy and pickle ask an object for; null: the object is the trace's own, and native code may answer.
  Ref reduce(Borrowed callable, PyObject* const* arguments, size_t count, const std::string& name);
  // Making classes (class_creation.cpp). True: the call makes one.
  bool begin_class_call(Borrowed callable, PyObject* const* arguments, size_t positional);
  void begin_class_of(Borrowed bases);
  void finish_class(Borrowed cls);
  std::vector<PyTypeObject*> hooked_bases_;  // outside bases of classes with a __subclasshook__
  void guard_abstract_methods(Borrowed cls);
  void check_class_call(Borrowed callable, PyObject* const* arguments, size_t count);
  // Functions of the standard library with a meaning of their own (library_functions.cpp); null: none of these.
  // torch.Tensor(2, 3), torch.LongTensor([1]), torch.autograd.Variable(x). Null: it is no such call, or cannot be made.
  // torch.nn.Parameter(data). Null: it is no such call.
  Ref call_parameter(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_buffer(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_legacy_constructor(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // x.new_tensor([1, 2]) and x.new([1, 2]). Null: it is no such call.
  Ref new_from_data(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t positional,
                    Borrowed keyword_names);
  // isinstance(tensor, torch.FloatTensor).
  bool is_of_tensor_type(Borrowed tensor, Borrowed type);
  Ref call_library(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref compile_pattern(PyObject* const* arguments);
  // Functions of optree's (optree.cpp). Null: it is none of these.
  Ref call_tree(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void use_tree_registry();
  void check_tree(Borrowed tree, int depth = 0);
  bool tree_registry_used_ = false;
  // dispatch() of a functools.singledispatch function, and logging.Manager.getLogger(); null: it is to be traced
  // itself.
  Ref call_dispatch(Borrowed function, Borrowed cls);
  Ref find_logger(Borrowed function, PyObject* const* arguments, size_t count);
  // deferred_values.cpp. Null: it is no method that draws a number from a generator of Python's; it is none that is
  // called.
  Ref random_method(Borrowed owner, Borrowed name);
  Ref call_random(Borrowed callable, size_t count);
  // tensor_hooks.cpp. Null: it is no call that registers a hook on a tensor.
  Ref cache_attribute(Borrowed owner, Borrowed name);
  bool is_backward(Borrowed callable) const;
  Ref call_backward(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t positional,
                    Borrowed keyword_names);
  Ref first_gradient(Borrowed leaf, Borrowed gradient, bool is_free);
  Ref call_hook(Borrowed callable, PyObject* const* arguments, size_t count);
  bool is_hook_handle_class(PyTypeObject* type) const;
  bool hooked_ = false;  // one was registered
  // random_generators.cpp: a generator is an argument of a call that becomes a node.
  void use_generator(Borrowed generator);
  Ref generator_attribute(Borrowed generator, Borrowed name);
  // Null: it is no call of a generator's.
  Ref call_generator(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref make_generator(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void note_seed(Borrowed generator, Borrowed seed);  // null: nobody knows it
  Ref initial_seed(Borrowed generator);
  Ref state_of_generator(Borrowed generator);
  PyObject* last_seeded_ = nullptr;  // of the generators from outside; borrowed: only compared
  Ref last_seed_;
  std::unordered_set<PyObject*> unknown_seeds_;  // generators of the trace's own; borrowed
  // concrete_arrays.cpp. Null: it is no function of numpy's, none of its numbers and no method of those or of an array.
  Ref call_numpy(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref get_from_array(Borrowed array, Borrowed name);
  Ref item_of_array(Borrowed array, Borrowed key);
  void set_item_of_array(Borrowed array, Borrowed key, Borrowed value);  // null: delete
  bool array_contains(Borrowed array, Borrowed value);
  Tri truth_of_array(Borrowed array);
  bool may_compute_with(Borrowed value, int depth = 0);
  // An operation of numpy's; what it warns of is a break.
  template <class Operation>
  Ref compute(const std::string& what, Operation&& operation);
  void check_numpy_error(const std::string& what);
  bool check_array_arguments(const std::string& name, PyObject* const* arguments, size_t count);
  bool check_array_arguments(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);
  void use_array(Borrowed array);
  bool has_written_memory();
  bool numbers_for_tensors(PyObject* const* arguments, size_t positional, size_t total, std::vector<PyObject*>* given,
                           std::vector<Ref>* numbers);
  Ref tensor_of_array(const std::string& name, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref torch_type(Borrowed array);
  Ref record_array_call(const std::string& what, Borrowed callable, const std::vector<PyObject*>& arguments,
                        size_t positional, Borrowed keyword_names, const std::vector<Borrowed>& written);
  void promote_array(Borrowed array, const std::string& what);
  Ref frozen_array(Borrowed array, const std::string& what);
  void note_symbolic_array(Borrowed array, const std::string& what);
  Ref operate_on_symbolic(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate_on_symbolic(unaryfunc operation, Borrowed operand);
  Ref compare_symbolic(Borrowed left, Borrowed right, int operation);
  Ref item_of_symbolic(Borrowed array, Borrowed key);
  void set_item_of_symbolic(Borrowed array, Borrowed key, Borrowed value);
  Ref attribute_of_symbolic(Borrowed array, Borrowed name);
  Ref call_on_symbolic(const std::string& name, Borrowed callable, Borrowed self, PyObject* const* arguments,
                       size_t positional, Borrowed keyword_names, bool is_method);
  Ref call_builtin_on_symbolic(Borrowed callable, PyObject* const* arguments, size_t positional,
                               Borrowed keyword_names);
  Ref array_of_tensor(Borrowed callable, Borrowed tensor);
  Ref numpy_of_tensor(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count);
  Ref tensor_of_symbolic(const std::string& name, Borrowed callable, PyObject* const* arguments, size_t positional,
                         Borrowed keyword_names);
  // Of one from outside: its type, shape and strides are guarded, and it is an input of the graph.
  bool use_preexisting_array(Borrowed array);
  bool shared_changed();
  struct SharedMemory {
    Ref array;  // that has the memory
    std::string bytes;
    Ref tensor;
    size_t position;  // the number of nodes so far
    bool outside;
  };
  std::vector<SharedMemory> shared_;
  size_t nodes_seen_ = 0;  // by has_written_memory()
  bool memory_written_ = false;
  // What torch takes a number of numpy's for; null: there is none in the value.
  Ref number_for_torch(Borrowed value, int depth = 0);
  // The same for all arguments of a call; false: they stay as they are.
  bool use_numbers(PyObject* const* arguments, size_t count, const std::string& name, std::vector<PyObject*>* given,
                   std::vector<Ref>* numbers);
  Ref call_getter(Borrowed getter, Borrowed object);
  Ref find_cached(Borrowed wrapper, PyObject* const* arguments, size_t count);
  Ref call_cached(Borrowed wrapper, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  bool is_preexisting_value(Borrowed value);
  static bool reads_attributes(Borrowed value);
  static bool reads_objects(Borrowed value);
  int place_of_reader(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_with_stand_in(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                         size_t place);
  // True: the test is one of structure alone, and runs natively.
  bool check_instance_test(Borrowed subject_class, Borrowed classes);
  void check_callback(Borrowed callback, PyObject* const* arguments, size_t count);
  void check_shown(PyObject* const* arguments, size_t count);
  PyTypeObject* check_class_call(PyTypeObject* type);  // the native base
  Ref call_partial(Borrowed partial, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // Null: it is no such test.
  Ref real_instance_test(Borrowed callable, Borrowed subject);
  void escape_all(PyObject* const* arguments, size_t count);
  void print(Arguments& given);
  void warn(Arguments& given);
  void log(Borrowed method, Arguments& given);
  void check_logger(Borrowed logger);
  bool is_logged(Borrowed logger, long level);
  void check_handlers(Borrowed logger, long level);
  void check_unwritten(Borrowed object);
  void check_handler(Borrowed handler);
  void check_filters(Borrowed category);
  void check_stream(Borrowed stream, const char* what);
  void add_effect(Borrowed callable, Ref arguments, Ref keywords);
  Ref freeze(Borrowed value, int depth = 0);
  Ref show_tensor(Borrowed tensor);
  // A tensor that is shown was written to afterwards.
  bool shown_changed();
  struct UserFrame {
    PyCodeObject* code;
    PyObject* globals;
    int line;
  };
  // The frames of the program, innermost first.
  std::vector<UserFrame> user_frames() const;

  struct Shown {
    Ref tensor;
    size_t position;  // the number of nodes so far
  };
  std::vector<Shown> shown_;
  bool shows_text_ = false;    // what is shown may be turned into text now
  cpython::Frame* outermost_;  // that called the compiled function

  // The exception that whoever called the compiled function is handling becomes the context of what is raised in it.
  void use_callers_exception();
  // Takes the exception that left the function; null: it cannot be raised again.
  Ref take_exit();
  // The frames that a traceback keeps are over: what they hold may die.
  void clear_frames(Borrowed exception, int depth = 0);
  void clear_frame(Borrowed frame);

  // --- frames of the chain whose objects somebody holds: see FrameState::frame_object (frame_access.cpp) ---
  Ref stand_in_of_frame(const FrameState& state, lift::Source* source);
  bool is_held_by_caller(cpython::Frame* frame) const;
  // Before each instruction, where there are such frames.
  bool may_finalize(const Position& position) const;

  Ref callers_exception_;  // null: none
  bool callers_exception_used_ = false;
  std::unordered_set<std::string> raised_texts_;  // of all exceptions so far
  std::vector<Ref> abandoned_;                    // see note_abandoned()
  Ref exit_;                                      // the exception that left the function
  // That are suspended in a try, with a weak reference to those that the trace has made; the others are null.
  std::unordered_map<PyObject*, Ref> generators_;
  std::unordered_set<PyObject*> preexisting_generators_;  // among them, or ended since

  // The frames of its own for a stopped chain.
  void fill(const Chain& chain, Chain* filled);
  // Of the innermost frames as many as `left` are not to be stopped in.
  std::vector<BreakPoint> points_here(size_t left = 0) const;
  report::Break event_here(report::Reason reason, std::string context, size_t left = 0) const;
  size_t library_methods_here() const;
  template <class Visit>
  void each_active(Visit&& visit) const;
  void note_refusal();
  bool is_disallowed(Borrowed callable);
  bool is_allowed_in_graph(Borrowed callable);

  // The instruction that each active frame is in; frames that ended may lie on top.
  struct Active {
    cpython::Frame* frame;
    BreakPoint at;
    bool transformed = false;  // it is inside of a transform
    bool moded = false;        // ... of a mode that the program has entered
  };
  std::vector<Active> active_;
  // --- objects whose end is noticed (finalizers.cpp) ---
  void check_finalization(Borrowed old, lift::Source* place);
  void watch_slot(Borrowed value);
  void watch_containers();
  PyObject* original_of(PyObject* value) const;
  bool is_in_a_slot(const Position& position, Borrowed wanted) const;
  Borrowed dropped(const Position& position);
  bool check_finalizations(const Position& position);
  struct HeldInside {
    const lift::Shadow* shadow;
    std::vector<Ref> objects;
    const uint64_t* version;  // of the copy, where it has one
    uint64_t seen = 0;        // ... in which all of them were found
  };
  std::vector<HeldInside> held_inside_;
  std::vector<Ref> held_in_slots_;
  std::vector<PyObject*> stand_ins_;  // for those on the stacks of stopped frames
  size_t shadows_seen_ = 0;
  bool watches_finalizations_ = false;
  bool behind_a_break_ = false;  // frames go on whose slots may be the only ones to hold something
  struct OpenScope {
    PyObject* scope;  // borrowed: only compared
    std::vector<BreakPoint> points;
  };
  std::vector<OpenScope> open_scopes_;
  const OpenScope* open_scope() const;  // the first; null: there is none
  // contextvars.ContextVar (context_variables.cpp). Null: it is no call of its methods.
  Ref call_context_variable(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref context_value(Borrowed variable, Borrowed otherwise);
  Ref set_context_value(Borrowed variable, Borrowed value);
  void reset_context_value(Borrowed variable, Borrowed token);
  void store_context_value(Borrowed variable, std::optional<Ref> value);
  void leave_context();
  std::unordered_map<PyObject*, Ref> context_values_;  // by variable: what the program has set
  struct ContextChange {
    Ref token;
    std::optional<Ref> before;  // what was set then; none: what is outside
  };
  std::vector<ContextChange> context_changes_;
  Ref context_;  // the trace's own, once it has set something; the thread is in it
  // The module decimal (decimals.cpp). Null: it is no call that gives or sets a context.
  Ref call_decimal(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void use_decimals();
  void set_decimal_context(Borrowed context);
  void note_decimal_context(Borrowed context);
  void finish_decimals();
  bool decimals_used_ = false;
  Ref decimal_context_;      // the copy of the thread's
  Ref decimal_context_set_;  // what the program has set in its place
  // functorch's transforms: a trace is never cut inside of one (functorch.cpp).
  void check_alive(Borrowed reference);
  Ref call_computed(Borrowed callable, PyObject* const* arguments, size_t count);
  Ref call_recorded(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  bool may_be_cut_at(const Active& active) const;
  Ref call_overridden(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void note_override(Borrowed types, Borrowed arguments, Borrowed keywords);
  // torch.Tensor.__torch_function__ itself, torch._C._disabled_torch_function_impl, and the getters that torch hands to
  // either. Null: it is none of these calls, or to be traced itself.
  Ref call_override(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_torchs_override(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_without_subclasses(PyObject* const* arguments, size_t count);
  Ref call_tensor_getter(Borrowed getter, PyObject* const* arguments, size_t count);
  Ref call_spread(Borrowed callable, Borrowed arguments, Borrowed keywords);
  Ref convert_result(Ref result, Borrowed cls);
  PyObject* for_class_ = nullptr;  // borrowed: the next torch call is one that torch.Tensor's method makes for it
  uint64_t overrides_seen_ = 0;    // how often torch has asked
  int64_t modes_below_recording() const;
  // Null: it is no call that changes the stack of modes.
  Ref call_mode_stack(Borrowed callable, PyObject* const* arguments, size_t count);
  Ref call_device_scope(Borrowed callable, size_t count);
  void push_mode(Borrowed mode);
  Ref pop_mode();
  void take_modes();
  lift::Source* mode_source(int64_t index);
  std::vector<Ref> modes_now() const;
  // False: others than those of a default device are left.
  bool note_exit_modes();
  std::vector<Ref> modes_before_;         // those that has_modes says are the program's
  int own_modes_ = 0;                     // that the program has entered
  int foreign_modes_ = 0;                 // ... that are not those of a default device
  std::vector<BreakPoint> mode_points_;   // where the first of those was entered
  PyObject* last_popped_mode_ = nullptr;  // borrowed: only compared
  void note_transforms();
  // torch.cond: both arms are traced, each as a graph of its own (cond.cpp).
  Ref call_cond(PyObject* const* arguments, size_t count);
  struct Arm;
  Arm trace_arm(const char* what, Borrowed function, Borrowed operands, bool fresh = false);
  // while_loop, scan and associative_scan of torch._higher_order_ops (loops.cpp). Null: it is none of them.
  Ref call_loop(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  friend class Loops;
  std::optional<bool> assume_truth(Borrowed tensor);
  bool may_assume_here() const;
  std::optional<bool> assume_comparison(Borrowed truth);
  struct Comparison {
    Ref truth, left, right;
    int operation;
  };
  std::vector<Comparison> comparisons_;  // of numbers that only a run knows
  void assume(Ref flag, bool wanted);
  bool expect_all(Borrowed condition);
  int arms_ = 0;                            // that are being traced
  fake::TransformState transforms_before_;  // at the beginning of the trace
  bool transformed_ = false;                // they are not what they were then, or an arm is traced
  std::vector<BreakPoint> deferred_points_;
  std::optional<report::Break> deferred_event_;
  uint64_t instructions_ = 0, path_ = 0;
  const BreakPoint* until_ = nullptr;
  std::optional<Ref> disallowed_, allowed_;  // the tables, once they were asked for
  Watch watch_;
  bool lazy_on_stack_ = false;

  cpython::Frame* frame_ = nullptr;   // the user's position, for guards and breaks
  cpython::Frame* caller_ = nullptr;  // what the trace runs under
  int index_ = 0;
  std::vector<Ref> held_frames_;  // what stands for frames whose objects somebody outside holds
};

// A check at this place is not taken for granted any more.
void distrust(Borrowed code, int index);
void forget_distrust();

// Torch's own code runs as it is: its frames are not traced.
class Paused {
 public:
  explicit Paused(Tracer& tracer);
  ~Paused();
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  Tracer* tracer_;
};

// A torch call: paused, unless a mode of the program's gets to see it first, or a class of its.
class TorchRuns {
 public:
  explicit TorchRuns(Tracer& tracer, bool is_overridden = false) {
    if (!is_overridden && !tracer.is_under_modes()) paused_.emplace(tracer);
  }

 private:
  std::optional<Paused> paused_;
};

// A trace is thrown away: no code runs in its scope. A generator of the trace that dies is not closed, its frame is
// cleared; callbacks of weak references are left out.
class Discarding {
 public:
  Discarding();
  ~Discarding();
  Discarding(const Discarding&) = delete;
  Discarding& operator=(const Discarding&) = delete;

 private:
  bool abandoning_;
  PyObject* (*evaluator_)(PyThreadState*, cpython::Frame*, int);
};

// A tracer whose objects are discarded at its end.
class OwnedTracer {
 public:
  OwnedTracer() : tracer_(std::make_unique<Tracer>()) {}
  ~OwnedTracer() {
    const SavedError on_its_way;  // what dies with a trace may clear the error indicator
    const Discarding discarding;
    tracer_.reset();
  }
  OwnedTracer(const OwnedTracer&) = delete;
  OwnedTracer& operator=(const OwnedTracer&) = delete;
  Tracer& operator*() { return *tracer_; }

 private:
  std::unique_ptr<Tracer> tracer_;
};

bool is_autograd_apply(Borrowed callable);
bool has_field_path(Borrowed format);
// Of the legacy constructors of tensors, and of x.new(): numbers and lists of them; integers, or one torch.Size.
bool is_data(Borrowed object, int depth = 0);
bool are_sizes(PyObject* const* arguments, size_t count);
// torch.FloatTensor and its like.
bool is_tensor_type(Borrowed object);
// Before anything is traced: what these rooms look up in modules that may have to be imported.
void load_library();
void load_function_modes();
void load_overrides();
void load_flags();
void load_generators();
void load_hooks();
void load_loops();

// The frame evaluator of a thread that traces.
PyObject* evaluate_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag);

int init_trace();
int init_symbol_hooks();

}  // namespace alternator::trace
