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

// A point where a trace may be cut: an instruction that was being executed when the trace stopped.
struct BreakPoint {
  uint64_t number = 0;  // of the instruction, in the order of execution
  uint64_t path = 0;    // a hash of the executed path: the same program takes the same path again
};

class Tracer {
 public:
  Tracer();
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  static Tracer* current();  // of this thread; null while native torch code runs

  // Runs a stopped chain of frames (a function that has not started is one) on the trace's own frames, up to `until` if
  // given. Null: it reached `until`, and `cut` holds the frames; or it stopped, see `stopped` and `break_points`. With
  // `raises`, the result is the exception that left the function.
  Ref run(const Chain& chain, const BreakPoint* until);

  // Debugging: a trace that may break breaks before its n-th instruction at the latest. 0: only where it must.
  // Initialized from the environment variable ALTERNATOR_BREAK_EVERY.
  static uint64_t break_every;
  bool may_break = false;

  // Speculated checks (speculated_checks.cpp): what must hold for the tensor data of a call for this trace to apply to
  // it. They are the first outputs of the graph.
  struct Assumption {
    Ref tensor;  // one bool
    bool wanted;
    Ref code;  // where the program tests it
    int index;
  };
  std::vector<Assumption> assumptions;
  bool may_assume = false;

  Chain cut;  // the traced frames at `until`; empty: it was not reached
  std::optional<report::Break> stopped;
  std::vector<BreakPoint> break_points;  // where it stopped, innermost frame first
  bool refuses = false;                  // error_on_graph_break(True) is in effect there
  bool raises = false;
  Ref interrupted;  // the exception that a signal handler raised meanwhile
  // The default-device modes on the thread's mode stack when the trace begins belong to the program, which may pop
  // them. `wants_modes`: the trace stopped because `has_modes` was off.
  bool has_modes = false, wants_modes = false;
  // The thread's state at the end of the trace.
  graph::Ambient exit_state;
  size_t exit_popped = 0;       // how many of the initial modes were popped, from the top
  std::vector<Ref> exit_modes;  // ... and the modes pushed in their place
  // torch flags: their values at the beginning, once the trace depends on them, and the groups that it depends on.
  std::optional<fake::Flags> flags_before;
  uint8_t flag_groups = 0;
  int exit_nesting = 0;                          // of autocast, relative to the beginning
  std::optional<fake::CastSettings> exit_casts;  // if the trace has changed them
  bool clears_casts = false;           // the cached casts of an autocast scope that was exited before are dropped here
  std::unique_ptr<lift::Taint> taint;  // if the sanitizer is on

  std::unique_ptr<lift::SourceTree> tree;
  fake::Session session;
  lift::Lifter lifter;
  graph::Recorder recorder;

  // id() results of plain values: they may be looked up where they are not found; any other use is a break.
  std::unordered_map<PyObject*, PyObject*> unguarded_identities;  // -> the value
  std::unordered_map<PyObject*, PyObject*> identities;            // of other objects -> the object
  // Once one of them is stored, all of them are guarded.
  bool stores_plain_identities = false;
  // How often the program has queried grad mode, or the requires_grad of a tensor that it made.
  size_t gradient_questions = 0;
  std::vector<Ref> keep_alive;
  Ref patterns;        // dict: arguments of re.compile in this trace -> the pattern
  Ref cached;          // dict: calls of lru_cache functions in this trace -> their results
  Ref handled_before;  // the exception that the caller is handling

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
  void store_cell(Borrowed cell, Ref value);                           // a pre-existing one
  void note_identity_test(Borrowed left, Borrowed right);
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // A call that becomes a node.
  Ref call_torch(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref special_method(Borrowed owner, Borrowed name);
  void use_descriptor(Borrowed attribute, PyTypeObject* type, Borrowed name);
  bool comes_first(Borrowed attribute, PyTypeObject* type, Borrowed name);
  // --- exceptions (raised_exceptions.cpp) ---
  // Guards the MRO of a class, if it may change.
  void guard_order_of_bases(Borrowed cls);
  // An exception group that native code is about to iterate over.
  void check_group(Borrowed exception, int depth = 0);
  void before_raise(Ref* exception);
  void raising();
  int handle_breaker(PyThreadState* ts);
  // --- print, warnings, logging (output_effects.cpp, logging.cpp): true: it was such a call ---
  bool call_effect(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                   Ref* result);
  // --- torch-function modes that the program enters (torch_function_modes.cpp) ---
  // The next torch call is dispatched to such a mode before the recording mode: its __torch_function__ is traced like
  // any other callback.
  bool is_under_modes() const;
  void forbid_under_modes(const char* what) const;
  // --- classes with a __torch_function__ (torch_function_methods.cpp) ---
  // Torch first dispatches to a user class's __torch_function__ for these: that method is traced like any other
  // callback.
  bool is_overridden(Borrowed object);
  bool is_overridden(PyObject* const* objects, size_t count);
  bool is_overridden_call(Borrowed callable, PyObject* const* arguments, size_t count);
  // Runs native code that dispatches to it.
  Ref run_overridden(const std::string& what, const std::function<PyObject*()>& run);
  // An exception that ends or cuts the trace is propagating.
  bool is_unwinding() const;
  // --- scopes that cannot stay open at a cut (scoped_modes.cpp): the trace is cut where the first was opened ---
  void open_scope(Borrowed scope);
  void close_scope(Borrowed scope);
  // Frames that ended but keep their locals, and that a traceback references: if one of these locals is the exception,
  // the cycle keeps them alive forever.
  void note_abandoned(PyFrameObject* frame) {
    if (frame != nullptr) abandoned_.push_back(Ref::share(reinterpret_cast<PyObject*>(frame)));
  }
  // The stand-ins of frames of the chain whose frame objects are referenced from outside the trace, if they have ended
  // in this trace.
  std::vector<Borrowed> ended_frames() const;
  // A generator's frame has run: it may be left suspended.
  void note_generator(Borrowed generator, bool preexisting = false);
  void end_generators();
  // An operator on a deferred random value (deferred_values.cpp).
  Ref combine_deferred_random(binaryfunc operation, Borrowed left, Borrowed right);
  // An f-string over values that are only known at run time becomes a deferred string (deferred_values.h).
  bool may_show_later(Borrowed value, Borrowed format) const;
  Ref show_later();
  // Where the first deferred random value or deferred string was created; empty: none was. Whatever needs its value is
  // done by cutting the trace there.
  const std::vector<BreakPoint>& deferred_points() const { return deferred_points_; }
  const std::optional<report::Break>& deferred_event() const { return deferred_event_; }
  // The operands of an operator, one of them a numpy scalar: next to a tensor it acts as a Python scalar. Returns the
  // converted scalar, which must outlive the operands.
  Ref check_numbers(Borrowed* left, Borrowed* right);
  // --- numpy arrays (concrete_arrays.cpp) ---
  static bool is_array_operation(Borrowed left, Borrowed right);
  Ref operate_on_arrays(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate_on_array(unaryfunc operation, Borrowed operand);
  Ref compare_arrays(Borrowed left, Borrowed right, int operation);
  // --- symbolic arrays (array_nodes.cpp) ---
  bool is_symbolic_array(Borrowed value);
  bool holds_symbolic_array(Borrowed value, int depth = 0);
  Py_ssize_t length_of_symbolic(Borrowed array);
  // One of these tensors, which outlive the trace, shares memory with an array that is still referenced.
  bool leaves_with_array(const std::vector<Ref>& tensors) const;
  // Before native code itself inspects a value: stops on an opaque object, or one whose string shows its address.
  void check_use(Borrowed value, const char* what);
  void check_text(Borrowed value, int depth = 0);
  // Before native code iterates over a value, or over what it holds: stops on a set whose order depends on addresses.
  void check_order(Borrowed value, const char* what);
  // What a native function, or the constructor of a native type, itself does with its arguments (native_callbacks.cpp).
  void check_native_use(Borrowed callable, PyObject* const* arguments, size_t count);
  void check_type_use(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);

  // --- unbacked symbols (unbacked_arithmetic.cpp) ---
  Ref operate(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate(Borrowed function, PyObject* const* arguments, size_t count);
  Ref compare_numbers(Borrowed left, Borrowed right, int operation);
  bool may_hold_symbol(Borrowed value) const;
  static bool has_native_length(Borrowed object);  // no user code computes its length
  void check_comparison(Borrowed left, Borrowed right);
  // One operand is a tensor, and neither has user code.
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
  // len() and isinstance() of a partly lifted container, which stays so. Null: it is another call.
  Ref call_on_partly_read(Borrowed callable, PyObject* const* arguments, size_t count);
  // The sanitizer: a pre-existing object that was not lifted is a bug in the tracer.
  void check_taint(PyObject* value);
  // Records why the trace ends here and sets the exception that unwinds it.
  void stop_here(report::Reason reason, std::string context);

 private:
  friend class Paused;
  Ref get_from_module(Borrowed module, Borrowed name);
  Ref get_from_type(PyTypeObject* type, Borrowed name);
  Ref get_from_tensor(Borrowed tensor, Borrowed name);
  // The method may have been looked up before the trace.
  void check_tensor_method(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count);
  void use_memory_of(Borrowed tensor, const std::string& name);
  Ref get_from_function(Borrowed function, Borrowed name);
  Ref get_from_super(Borrowed super, Borrowed name);
  Ref get_generic(Borrowed owner, Borrowed name, bool* absent);
  Ref get_with_hooks(Borrowed owner, Borrowed name);
  Ref module_attribute(Borrowed module, Borrowed name);  // module_attributes.cpp
  // `written`: the program set it on the class during the trace.
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
  // After torch has raised: stops as data-dependent, or with the reason that torch gives.
  [[noreturn]] void stop_for_torch(const std::string& what);
  // Iterators in the arguments of torch.autograd.grad, which consumes them before anything else, become tuples. False:
  // there are none.
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
  // One is a node with its own backward: a backward pass inside the trace would run that concretely.
  bool function_applied_ = false;
  Ref wrap_output(Borrowed output, const Forward& run, const std::string& name);
  static bool wants_gradient(PyObject* const* arguments, size_t count);
  // torch.utils.checkpoint.checkpoint (checkpoint.cpp).
  Ref call_checkpoint(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  struct CheckpointCall;
  const char* what_is_not_repeated(const CheckpointCall& call, size_t first);
  const char* what_differs_when_reentrant(const CheckpointCall& call, size_t first, Borrowed result);
  // torch modes that an object holds, and profiler ranges (scoped_modes.cpp). Null: it is no such call.
  Ref call_mode(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // torch flags (flag_calls.cpp). Null: the function neither reads nor sets one.
  Ref call_flag(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref ask_flag(Borrowed getter, PyObject* const* arguments, size_t count);
  void use_flags(uint8_t groups);
  void use_flags_of(const std::string& name);  // a torch call
  void check_casts(bool clears, Borrowed callable);
  int nesting_before_ = 0;  // of autocast
  Ref call_type(Borrowed type, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_native(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // Builtins that inspect objects: null without an error, and `handled` unset, if `callable` is none of them.
  Ref call_reflective(Borrowed callable, PyObject* const* arguments, size_t positional, bool* handled);
  Ref query(Borrowed builtin);
  Ref subclasses_of(Borrowed cls);
  Ref next_of_preexisting(PyObject* const* arguments, size_t count);
  // hash(): an int, or an identity if it depends on an address.
  Ref hash_of(Borrowed value, Borrowed callable);
  // Builtins that inspect their calling frame; likewise.
  Ref call_about_frame(Borrowed callable, PyObject* const* arguments, size_t count, bool* handled);
  bool is_running_here(cpython::Frame* wanted) const;
  Ref get_from_frame(Borrowed frame, Borrowed name);
  Ref frame_above(cpython::Frame* frame, long depth);
  Ref locals_of(cpython::Frame* frame);
  Ref globals_for_code(Borrowed globals);
  Ref run_code(Borrowed callable, PyObject* const* arguments, size_t count);
  // What copy and pickle call on an object (__reduce_ex__ and the like); null: the trace made the object, and native
  // code may answer.
  Ref reduce(Borrowed callable, PyObject* const* arguments, size_t count, const std::string& name);
  // Class creation (class_creation.cpp). True: the call creates a class.
  bool begin_class_call(Borrowed callable, PyObject* const* arguments, size_t positional);
  void begin_class_of(Borrowed bases);
  void finish_class(Borrowed cls);
  std::vector<PyTypeObject*> hooked_bases_;  // pre-existing bases of classes with a __subclasshook__
  void guard_abstract_methods(Borrowed cls);
  void check_class_call(Borrowed callable, PyObject* const* arguments, size_t count);
  // torch.nn.Parameter(data). Null: it is no such call.
  Ref call_parameter(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_buffer(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // torch.Tensor(2, 3), torch.LongTensor([1]), torch.autograd.Variable(x). Null: it is no such call, or cannot be made.
  Ref call_legacy_constructor(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  // x.new_tensor([1, 2]) and x.new([1, 2]). Null: it is no such call.
  Ref new_from_data(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t positional,
                    Borrowed keyword_names);
  // isinstance(tensor, torch.FloatTensor).
  bool is_of_tensor_type(Borrowed tensor, Borrowed type);
  // Standard library functions that are handled specially (library_functions.cpp); null: none of these.
  Ref call_library(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref compile_pattern(PyObject* const* arguments);
  // optree functions (optree.cpp). Null: it is none of these.
  Ref call_tree(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void use_tree_registry();
  void check_tree(Borrowed tree, int depth = 0);
  bool tree_registry_used_ = false;
  // dispatch() of a functools.singledispatch function, and logging.Manager.getLogger(); null: the function itself is
  // traced.
  Ref call_dispatch(Borrowed function, Borrowed cls);
  Ref find_logger(Borrowed function, PyObject* const* arguments, size_t count);
  // deferred_values.cpp. Null: it is no method that draws from a Python random generator; it is no call of such a
  // method.
  Ref random_method(Borrowed owner, Borrowed name);
  Ref call_random(Borrowed callable, size_t count);
  Ref cache_attribute(Borrowed owner, Borrowed name);
  bool is_backward(Borrowed callable) const;
  Ref call_backward(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t positional,
                    Borrowed keyword_names);
  Ref first_gradient(Borrowed leaf, Borrowed gradient, bool is_free);
  // tensor_hooks.cpp. Null: it is no call that registers a hook on a tensor.
  Ref call_hook(Borrowed callable, PyObject* const* arguments, size_t count);
  bool is_hook_handle_class(PyTypeObject* type) const;
  bool hooked_ = false;  // one was registered
  // random_generators.cpp: a torch.Generator is an argument of a call that becomes a node.
  void use_generator(Borrowed generator);
  Ref generator_attribute(Borrowed generator, Borrowed name);
  // Null: it is no call of a torch.Generator method.
  Ref call_generator(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref make_generator(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void note_seed(Borrowed generator, Borrowed seed);  // null: it is unknown
  Ref initial_seed(Borrowed generator);
  Ref state_of_generator(Borrowed generator);
  PyObject* last_seeded_ = nullptr;  // of the pre-existing generators; borrowed: only compared
  Ref last_seed_;
  std::unordered_set<PyObject*> unknown_seeds_;  // generators that the trace made; borrowed
  // concrete_arrays.cpp. Null: it is no numpy function, no numpy scalar type, and no method of a numpy scalar or array.
  Ref call_numpy(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref get_from_array(Borrowed array, Borrowed name);
  Ref item_of_array(Borrowed array, Borrowed key);
  void set_item_of_array(Borrowed array, Borrowed key, Borrowed value);  // null: delete
  bool array_contains(Borrowed array, Borrowed value);
  Tri truth_of_array(Borrowed array);
  bool may_compute_with(Borrowed value, int depth = 0);
  // A numpy operation; a warning from it is a break.
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
  // A pre-existing array: its type, shape and strides are guarded, and it is a graph input.
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
  // The Python scalar that torch converts a numpy scalar to; null: there is none in the value.
  Ref number_for_torch(Borrowed value, int depth = 0);
  // The same for all arguments of a call; false: none is converted.
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
  // True: the test depends on class structure alone, and runs natively.
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
  // A tensor was mutated after the program showed it.
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
  bool shows_text_ = false;    // objects that are shown may be converted to strings now
  cpython::Frame* outermost_;  // the frame that called the compiled function

  // The exception that the caller of the compiled function is handling becomes the __context__ of exceptions raised in
  // it.
  void use_callers_exception();
  // Takes the exception that left the function; null: the residual program cannot raise it.
  Ref take_exit();
  // Clears the completed frames that a traceback keeps alive, which drops what they hold.
  void clear_frames(Borrowed exception, int depth = 0);
  void clear_frame(Borrowed frame);

  // --- frames of the chain whose frame objects are referenced: see FrameState::frame_object (frame_access.cpp) ---
  Ref stand_in_of_frame(const FrameState& state, lift::Source* source);
  bool is_held_by_caller(cpython::Frame* frame) const;
  // Before each instruction, if there are such frames.
  bool may_finalize(const Position& position) const;

  Ref callers_exception_;  // null: none
  bool callers_exception_used_ = false;
  std::unordered_set<std::string> raised_texts_;  // messages of all exceptions so far
  std::vector<Ref> abandoned_;                    // see note_abandoned()
  Ref exit_;                                      // the exception that left the function
  // Generators that are suspended in a try, with a weak reference to those that the trace made; null for the others.
  std::unordered_map<PyObject*, Ref> generators_;
  std::unordered_set<PyObject*> preexisting_generators_;  // among them, or ended since

  // Fills the trace's own frames from a stopped chain.
  void fill(const Chain& chain, Chain* filled);
  // The `left` innermost frames are excluded as break points.
  std::vector<BreakPoint> points_here(size_t left = 0) const;
  report::Break event_here(report::Reason reason, std::string context, size_t left = 0) const;
  size_t library_methods_here() const;
  template <class Visit>
  void each_active(Visit&& visit) const;
  void note_refusal();
  bool is_disallowed(Borrowed callable);
  bool is_allowed_in_graph(Borrowed callable);

  // The instruction that each active frame is in; frames that have ended may still be on top.
  struct Active {
    cpython::Frame* frame;
    BreakPoint at;
    bool transformed = false;  // it is inside a transform
    bool moded = false;        // ... inside a mode that the program has entered
  };
  std::vector<Active> active_;
  // --- observable finalization (finalizers.cpp) ---
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
    const uint64_t* version;  // of the copy, if it has one
    uint64_t seen = 0;        // ... in which all of them were present
  };
  std::vector<HeldInside> held_inside_;
  std::vector<Ref> held_in_slots_;
  std::vector<PyObject*> stand_ins_;  // for values on the stacks of stopped frames
  size_t shadows_seen_ = 0;
  bool watches_finalizations_ = false;
  bool behind_a_break_ = false;  // it resumes frames whose slots may hold the last reference to an object
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
    std::optional<Ref> before;  // the previous value; none: the pre-existing one
  };
  std::vector<ContextChange> context_changes_;
  Ref context_;  // the trace's own, once the program has set something; the thread has entered it
  // The module decimal (decimals.cpp). Null: it is no call that returns or sets a context.
  Ref call_decimal(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void use_decimals();
  void set_decimal_context(Borrowed context);
  void note_decimal_context(Borrowed context);
  void finish_decimals();
  bool decimals_used_ = false;
  Ref decimal_context_;      // the copy of the thread's
  Ref decimal_context_set_;  // what the program has set in its place
  // functorch transforms: a trace is never cut inside one (functorch.cpp).
  void check_alive(Borrowed reference);
  Ref call_computed(Borrowed callable, PyObject* const* arguments, size_t count);
  Ref call_recorded(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  bool may_be_cut_at(const Active& active) const;
  Ref call_overridden(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  void note_override(Borrowed types, Borrowed arguments, Borrowed keywords);
  // torch.Tensor.__torch_function__ itself, torch._C._disabled_torch_function_impl, and the getters that torch passes
  // to either. Null: it is none of these calls, or is traced itself.
  Ref call_override(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_torchs_override(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_without_subclasses(PyObject* const* arguments, size_t count);
  Ref call_tensor_getter(Borrowed getter, PyObject* const* arguments, size_t count);
  Ref call_spread(Borrowed callable, Borrowed arguments, Borrowed keywords);
  Ref convert_result(Ref result, Borrowed cls);
  PyObject* for_class_ = nullptr;  // borrowed: torch.Tensor.__torch_function__ makes the next torch call for it
  uint64_t overrides_seen_ = 0;    // number of __torch_function__ dispatches
  int64_t modes_below_recording() const;
  // Null: it is no call that changes the mode stack.
  Ref call_mode_stack(Borrowed callable, PyObject* const* arguments, size_t count);
  Ref call_device_scope(Borrowed callable, size_t count);
  void push_mode(Borrowed mode);
  Ref pop_mode();
  void take_modes();
  lift::Source* mode_source(int64_t index);
  std::vector<Ref> modes_now() const;
  // False: modes other than default-device modes are left.
  bool note_exit_modes();
  std::vector<Ref> modes_before_;         // the initial modes, if has_modes
  int own_modes_ = 0;                     // how many the program has entered
  int foreign_modes_ = 0;                 // ... other than default-device modes
  std::vector<BreakPoint> mode_points_;   // where the first of those was entered
  PyObject* last_popped_mode_ = nullptr;  // borrowed: only compared
  void note_transforms();
  // torch.cond: both branches are traced, each as its own subgraph (cond.cpp).
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
  std::vector<Comparison> comparisons_;  // of unbacked symbols
  void assume(Ref flag, bool wanted);
  bool expect_all(Borrowed condition);
  int arms_ = 0;                            // branches that are being traced
  fake::TransformState transforms_before_;  // at the beginning of the trace
  bool transformed_ = false;                // they differ from transforms_before_, or a branch is being traced
  std::vector<BreakPoint> deferred_points_;
  std::optional<report::Break> deferred_event_;
  uint64_t instructions_ = 0, path_ = 0;
  const BreakPoint* until_ = nullptr;
  std::optional<Ref> disallowed_, allowed_;  // the tables, loaded on first use
  Watch watch_;
  bool lazy_on_stack_ = false;

  cpython::Frame* frame_ = nullptr;   // the user's position, for guards and breaks
  cpython::Frame* caller_ = nullptr;  // the frame that the trace runs under
  int index_ = 0;
  std::vector<Ref> held_frames_;  // stand-ins of frames whose frame objects are referenced from outside the trace
};

// The check at this instruction is not speculated any more.
void distrust(Borrowed code, int index);
void forget_distrust();

// Torch's code runs eagerly: its frames are not traced.
class Paused {
 public:
  explicit Paused(Tracer& tracer);
  ~Paused();
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  Tracer* tracer_;
};

// A torch call: paused, unless it is first dispatched to a mode or class of the program.
class TorchRuns {
 public:
  explicit TorchRuns(Tracer& tracer, bool is_overridden = false) {
    if (!is_overridden && !tracer.is_under_modes()) paused_.emplace(tracer);
  }

 private:
  std::optional<Paused> paused_;
};

// A trace is discarded: no user code runs within this scope. A generator of the trace is not closed when it is
// deallocated, its frame is only cleared; weak reference callbacks are skipped.
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
    const SavedError on_its_way;  // deallocating a trace's objects may clear the error indicator
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
// Arguments of the legacy tensor constructors and of x.new(): scalars and lists of them; ints, or one torch.Size.
bool is_data(Borrowed object, int depth = 0);
bool are_sizes(PyObject* const* arguments, size_t count);
// torch.FloatTensor and its like.
bool is_tensor_type(Borrowed object);
// Before anything is traced: resolves what these parts look up in modules, which may have to be imported.
void load_library();
void load_function_modes();
void load_overrides();
void load_flags();
void load_generators();
void load_hooks();
void load_loops();

// The frame evaluator of a tracing thread.
PyObject* evaluate_traced(PyThreadState* ts, cpython::Frame* frame, int throwflag);

int init_trace();
int init_symbol_hooks();

}  // namespace alternator::trace
