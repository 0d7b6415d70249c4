#include "graph/record/pending_call.h"

#include "fake/functorch_state.h"
#include "fake/numpy_scalar_input.h"
#include "fake/unbacked_ops.h"
#include "graph/record/node_run.h"
#include "graph/record/record_error.h"
#include "graph/record/torch_symbol.h"
#include "graph/record/torch_types.h"
#include "graph/record/torch_warnings.h"

#include <c10/util/ScopeExit.h>

namespace alternator::graph {
namespace {

bool is_of_numpy(Borrowed object) { return is_array(object) || fake::is_numpy_scalar_input(object); }

constexpr const char* kUnseen = "a torch call that was not recorded wrote to a tensor or drew random numbers";

}  // namespace

Recorder::Recorder(fake::Session& session, std::unique_ptr<StackSource> stack)
    : session_(session), stack_(std::move(stack)), program_(std::make_unique<Program>()) {}

Recorder::~Recorder() {
  end();
  if (mode_) detach_mode(mode_);
}

void Recorder::begin() {
  ALT_CHECK(!recording(), "this recorder is already recording");
  ALT_CHECK(program_ != nullptr, "this recorder's program was already taken");
  if (!mode_) mode_ = make_mode(*this);
  if (program_->states.empty()) program_->states.push_back(Ambient::now());
  program_->grad_sets.begin(program_->states[0].grad);
  last_state_ = state_number();
  thread_ = PyThread_get_thread_ident();
  active_.emplace(session_);
  on_stack_.emplace(mode_);
  seen_ = session_.counts();
}

void Recorder::end() {
  if (!recording()) return;
  program_->exit_state = state_number();
  unseen_ = unseen_ || has_unseen_effects();
  on_stack_.reset();
  active_.reset();
  flags_seen_.reset();
}

std::unique_ptr<Program> Recorder::finish(Borrowed result, Unused unused) {
  end();
  ALT_CHECK(program_ != nullptr, "this recorder's program was already taken");
  if (foreign_thread_) record_error("a torch call was made on another thread while recording");
  if (unseen_) record_error(kUnseen);
  for_array_call_ = true;  // the result may contain arrays
  program_->result = capture(program_->arena, result, *this);
  program_->finish(unused);
  // The objects that represented them in the recording may be large.
  for (TensorRecord& record : program_->tensors)
    if (record.symbol && is_of_numpy(record.symbol)) record.symbol = Ref::share(Py_None);
  known_.clear();
  symbols_.clear();
  numbers_.clear();
  items_.clear();
  return std::move(program_);
}

Recorder::Checkpoint::Checkpoint(Recorder& recorder) : recorder_(recorder), before_(recorder.checkpoint_) {
  ALT_CHECK(recorder.program_->checkpoints < UINT16_MAX);
  recorder.checkpoint_ = ++recorder.program_->checkpoints;
}

bool Recorder::watch_flags() {
  if (flags_seen_) return true;
  ALT_CHECK(part_ == nullptr, "flags are set inside of a part");
  const std::optional<fake::Flags> now = fake::Flags::now();
  if (!now) return false;
  for (Ambient& state : program_->states) state.flags = now;
  flags_seen_.emplace();
  watched_flags_ = true;
  return true;
}

void Recorder::enter_module(Borrowed module) { scope_ = program_->modules.intern(scope_, module); }

void Recorder::leave_module() {
  ALT_CHECK(scope_ != kNowhere, "no module was entered");
  scope_ = program_->modules.outer(scope_);
}

// ---- what tensors are called

uint32_t Recorder::add_tensor(const at::Tensor& fake, Origin origin, uint32_t index) {
  const uint32_t id = static_cast<uint32_t>(program_->tensors.size());
  program_->tensors.push_back({fake, origin, index});
  known_.emplace(fake.unsafeGetTensorImpl(), id);
  return id;
}

void Recorder::declare(const at::Tensor& fake, Borrowed label, Borrowed source) {
  if (known_.count(fake.unsafeGetTensorImpl()) != 0) return;
  // A pre-existing object that a part reads is an input of the whole program.
  Part* whole = part_;
  while (whole != nullptr && whole->outer_ != nullptr) whole = whole->outer_;
  const auto add = [&](Program& program, auto& known) {
    const uint32_t tensor = static_cast<uint32_t>(program.tensors.size());
    program.tensors.push_back({fake, Origin::Input, static_cast<uint32_t>(program.declared.size())});
    c10::TensorImpl* impl = fake.unsafeGetTensorImpl();
    program.declared.push_back({tensor, Ref::share(label), Ref::share(source)});
    if (!impl->is_inference()) program.declared.back().version = impl->version_counter().current_version();
    known.emplace(fake.unsafeGetTensorImpl(), tensor);
  };
  if (whole != nullptr && !part_->knows(fake)) add(*whole->program_, whole->known_);
  add(*program_, known_);
}

void Recorder::declare_generator(Borrowed generator, Borrowed label, Borrowed source) {
  if (symbols_.count(generator.get()) != 0) return;
  if (!source) {
    symbols_.emplace(generator.get(), kNone);
    return;
  }
  const uint32_t id = add_symbol(generator, {}, Origin::Input, static_cast<uint32_t>(program_->declared.size()));
  program_->declared.push_back({id, Ref::share(label), Ref::share(source)});
}

void Recorder::declare_array(Borrowed array, Borrowed label, Borrowed source) {
  program_->has_arrays = true;
  declare_generator(array, label, source);
}

uint32_t Recorder::object_id(Borrowed object) {
  if (!is_generator(object)) {
    const bool is_number = fake::is_numpy_scalar_input(object);
    if (!is_number && (!program_->has_arrays || !is_array(object))) return kNone;
    const auto array = symbols_.find(object.get());
    if (array == symbols_.end() && !is_number) return kNone;
    if (array == symbols_.end() || !for_array_call_) record_error("a numpy array or scalar reached a torch call");
    return array->second;
  }
  const auto found = symbols_.find(object.get());
  if (found != symbols_.end()) return found->second;
  if (refuses_generators_) record_error("an undeclared generator reached a torch call");
  return kNone;
}

uint32_t Recorder::tensor_id(Borrowed object) {
  if (!is_symbol(object)) [[likely]] {
    // The call would run user code: while it is recorded, and again whenever the node runs. And a node does not record
    // that __torch_function__ dispatch to classes was disabled.
    if (for_argument_ && (has_own_torch_function(object.type()) || (subclasses_are_off() && is_asked(object.type()))))
      record_error(std::string(object.type()->tp_name) + " has a __torch_function__ that is not to be called");
    return tensor_id(as_tensor(object));
  }
  if (shapes::Expression number = backed_ ? backed_->expression_of(object) : nullptr) return number_id(object, number);
  const auto found = symbols_.find(object.get());
  if (found == symbols_.end()) record_error("an unbacked symbol of another recording reached a torch call");
  return found->second;
}

uint32_t Recorder::tensor_id(const at::Tensor& tensor) {
  const auto found = known_.find(tensor.unsafeGetTensorImpl());
  if (found != known_.end()) [[likely]]
    return found->second;
  if (part_ != nullptr && part_->knows(tensor)) {
    if (backed_ && on_enters_part) part_->specialize(tensor);
    declare(tensor, Py_None, Py_None);
    return known_.at(tensor.unsafeGetTensorImpl());
  }
  if (!fake::is_fake(tensor)) record_error("a real tensor reached a torch call of the recording");
  if (fake::session_of(tensor) != session_.id())
    record_error("a fake tensor of another recording reached a torch call");
  if (std::optional<at::Tensor> value = session_.known_value(tensor)) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    const uint32_t version = impl->is_inference() ? 0 : impl->version_counter().current_version();
    const uint32_t position = static_cast<uint32_t>(program_->constants.size());
    const uint32_t id = add_tensor(tensor, Origin::Constant, position);
    program_->constants.push_back({id, std::move(*value), version});
    return id;
  }
  if (session_.real_of(tensor).defined()) {
    declare(tensor, Py_None, Py_None);
    return known_.at(tensor.unsafeGetTensorImpl());
  }
  record_error("a tensor reached a torch call that no recorded call has made");
}

Ref Recorder::value_of(Borrowed tensor) { return value_now(*program_, tensor_id(tensor), session_); }

// ---- calls

// Code that disables torch functions, or that torch does not show to modes, may still mutate our tensors.
bool Recorder::has_unseen_effects() const {
  const fake::Session::Counts now = session_.counts();
  return now.writes != seen_.writes || now.draws != seen_.draws || now.acts != seen_.acts || now.checks != seen_.checks;
}

uint16_t Recorder::state_number() {
  std::vector<Ambient>& states = program_->states;
  const Ambient now = Ambient::now();
  if (last_state_ < states.size() && states[last_state_] == now) [[likely]]
    return last_state_;
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i] == now) return last_state_ = static_cast<uint16_t>(i);
  ALT_CHECK(states.size() < UINT16_MAX);
  states.push_back(now);
  return last_state_ = static_cast<uint16_t>(states.size() - 1);
}

void Recorder::locate(Node& node) {
  node.scope = scope_;
  if (stack_ == nullptr) return;
  frames_.clear();
  stack_->collect(frames_);
  node.site = program_->sites.intern(frames_);
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
    if (frame->module != nullptr) node.scope = program_->modules.intern(node.scope, frame->module, stack_.get());
  }
}

Ref Recorder::record(Pending& pending, c10::function_ref<PyObject*()> call) {
  Node& node = pending.node;
  if (has_unseen_effects()) record_error(kUnseen);
  pending.watch();
  node.state = state_number();
  node.checkpoint = checkpoint_;
  locate(node);

  inside_ = true;
  Ref result;
  std::vector<Warning> warnings;
  {
    WarningsKept kept(WarningsKept::Kind::kFake);
    const fake::UnbackedSymbols unknown(session_, pending.symbolic() || pending.varies());
    const SymbolicKernels kernels(pending.symbolic());
    result = Ref::steal(call());
    warnings = kept.take();
  }
  inside_ = false;
  if (result && !warnings.empty() && refuses_warnings_)
    record_error("a torch warning under warning filters that the function sets");
  if (result && !warnings.empty() && may_raise_warnings()) give(std::exchange(warnings, {}));
  if (!result && pending.varies() && on_fixed_sizes) {
    const SavedError on_its_way;
    on_fixed_sizes(node);
  }
  if (!result) {
    // A call that failed before it mutated anything had no effect.
    if (!pending.wrote_argument()) seen_ = session_.counts();
    throw PyError();
  }
  seen_ = session_.counts();

  if (!records_numbers() && session_.has_shape_env()) [[unlikely]]
    program_->shape_env = Ref::share(session_.shape_env());
  if (records_numbers()) node.bindings = new_bindings(session_, result);
  const uint32_t made = static_cast<uint32_t>(program_->tensors.size());
  const bool makes_tensors = bind(result, node);
  pending.describe();
  if (pending.varies()) [[unlikely]]
    result = vary(node, std::move(result), made);
  if (pending.cut_history()) program_->keeps_history = true;  // AOTAutograd would lose that
  if (records_numbers()) {
    // The result relies on runtime asserts about unbacked symbols, which a run must check at the latest here.
    const size_t asserts = assert_count(program_->shape_env);
    if (std::exchange(program_->asserts, asserts) != asserts) node.effects |= kChecks;
  }
  if (!makes_tensors && is_users_function(node.function())) node.effects |= kActs;  // it must have a side effect
  if (makes_tensors || node.effects != kPure) {
    pending.keep();
    program_->nodes.push_back(std::move(node));
    if (!warnings.empty()) note_warnings(std::move(warnings));
  } else if (!warnings.empty()) {
    give(std::move(warnings));  // no run will issue them
  }
  return result;
}

// ---- parts

Recorder::Part::Part(Recorder& recorder)
    : recorder_(recorder),
      outer_(std::exchange(recorder.part_, this)),
      program_(std::exchange(recorder.program_, std::make_unique<Program>())),
      known_(std::exchange(recorder.known_, {})),
      scope_(std::exchange(recorder.scope_, kNowhere)),
      last_state_(std::exchange(recorder.last_state_, 0)) {
  recorder_.program_->states.push_back(Ambient::now());
}

Recorder::Part::~Part() {
  if (program_) leave();
}

void Recorder::Part::leave() {
  recorder_.program_ = std::move(program_);
  recorder_.known_ = std::move(known_);
  recorder_.scope_ = scope_;
  recorder_.last_state_ = last_state_;
  recorder_.part_ = outer_;
}

std::unique_ptr<Program> Recorder::Part::finish(Borrowed result) {
  Program& program = *recorder_.program_;
  program.exit_state = recorder_.state_number();
  const ForArgument scope(recorder_, true);
  program.result = capture(program.arena, result, recorder_);
  program.finish(Unused::kStay);
  std::unique_ptr<Program> part = std::move(recorder_.program_);
  leave();
  return part;
}

void Recorder::note_call(Borrowed callable, PyObject* const* arguments, size_t count, Ref result, uint8_t effects) {
  Pending pending(*this, callable);
  pending.reserve(count, 0);
  Arena& arena = program_->arena;
  Node& node = pending.node;
  for (size_t i = 0; i < count; ++i) {
    const bool is_value = is_tensor(arguments[i]) || PyTuple_Check(arguments[i]) || PyDict_CheckExact(arguments[i]);
    // A graph must not hold a tensor of the recording.
    if (!is_value)
      arena.set(node.arguments + static_cast<uint32_t>(i), Value::of(ValueKind::Opaque, arena.keep(arguments[i])));
    else
      pending.set(i, arguments[i]);
  }
  note(pending, std::move(result), effects);
}

void Recorder::note_separate_segment(Borrowed callable, PyObject* const* arguments, size_t count, Ref result) {
  if (has_unseen_effects()) record_error(kUnseen);
  Pending pending(*this, callable);
  pending.reserve(count, 0);
  for (size_t i = 0; i < count; ++i) pending.set(i, arguments[i]);
  pending.node.separate = true;
  // A generator that is created and never used may be eliminated.
  note(pending, std::move(result), is_generator(result) ? kPure : kRandom);
}

void Recorder::note_array_call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                               Ref result, bool writes) {
  ALT_CHECK(part_ == nullptr, "an array is used inside of a part");
  if (has_unseen_effects()) record_error(kUnseen);
  const size_t keyword = keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0;
  program_->has_arrays = true;
  Pending pending(*this, callable);
  pending.reserve(positional, keyword);
  for_array_call_ = true;
  const auto done = c10::make_scope_exit([&] { for_array_call_ = false; });
  for (size_t i = 0; i < positional + keyword; ++i) pending.set(i, arguments[i]);
  if (keyword != 0) pending.node.keyword_names = Ref::share(keyword_names);
  pending.node.separate = true;
  // numpy reports floating-point errors, whether the result is used or not.
  note(pending, std::move(result), writes ? kChecks | kMutates : kChecks);
}

Ref Recorder::number_separately(Borrowed callable, PyObject* const* arguments, size_t count) {
  Pending pending(*this, callable);
  pending.reserve(count, 0);
  for (size_t i = 0; i < count; ++i) pending.set(i, arguments[i]);
  pending.node.separate = true;
  if (!program_->shape_env) program_->shape_env = Ref::share(session_.shape_env());
  Ref number = record(pending, [&] { return make_torch_symbol(program_->shape_env, /*is_float=*/false).release(); });
  program_->nodes.back().effects |= kRandom;  // it takes effect, whether the result is used or not
  return number;
}

void Recorder::note(Pending& pending, Ref result, uint8_t effects) {
  Node& node = pending.node;
  pending.watch();
  // The result was made for these sizes and numbers.
  if (pending.varies() && on_fixed_sizes && result.get() != Py_None && !is_generator(result)) on_fixed_sizes(node);
  node.state = state_number();
  locate(node);
  (void)bind(result, node);
  node.traits = named_callees_.of(node.function()).traits;
  node.effects = effects;
  seen_ = session_.counts();
  pending.keep();
  program_->nodes.push_back(std::move(node));
}
bool Recorder::on_own_thread() {
  if (PyThread_get_thread_ident() == thread_) [[likely]]
    return true;
  foreign_thread_ = true;
  return false;
}

// ---- results

bool Recorder::bind(Ref& result, Node& node) {
  const uint32_t position = static_cast<uint32_t>(program_->nodes.size());
  node.elements = static_cast<uint32_t>(program_->elements.size());
  bool any = false;
  from_torch_.clear();
  if (records_numbers() && is_torch_symbol(result)) [[unlikely]] {
    const bool is_float = result.type() == torch_types().sym_float;
    // x - x is 0, unless x is infinite.
    Ref number = is_float ? Ref() : known_number(result);
    if (number) {
      result = std::move(number);
    } else {
      Ref symbol = fake::make_symbol(class_of_torch_symbol(result));
      node.result = add_symbol(symbol, std::move(result), Origin::Result, position);
      result = std::move(symbol);
      any = true;
    }
  } else if (program_->has_arrays && is_of_numpy(result)) {
    if (symbols_.count(result.get()) == 0) {
      node.result = add_symbol(result, {}, Origin::Result, position);
      any = true;
    }
  } else if (is_generator(result)) {
    node.result = add_symbol(result, {}, Origin::Result, position);
    any = true;
  } else if (is_tensor(result)) {
    const at::Tensor& tensor = as_tensor(result);
    if (known_.count(tensor.unsafeGetTensorImpl()) == 0) {
      check_made_here(tensor);
      node.result = add_tensor(tensor, Origin::Result, position);
      note_class(result.type());
      any = true;
    }
  } else {
    any = bind_items(result, position, kWhole);
    if (records_numbers()) result = from_torch(result);
    if (!any) program_->elements.resize(node.elements);
  }
  node.element_count = static_cast<uint32_t>(program_->elements.size()) - node.elements;
  return any;
}

// The tensors inside of a tuple, list or dict. Containers without new tensors create no elements.
bool Recorder::bind_items(Borrowed container, uint32_t position, uint32_t parent) {
  bool any = false;
  auto item = [&](Borrowed object, auto&& key) {
    const uint32_t element = static_cast<uint32_t>(program_->elements.size());
    if (is_tensor(object)) {
      const at::Tensor& tensor = as_tensor(object);
      if (known_.count(tensor.unsafeGetTensorImpl()) != 0) return;
      check_made_here(tensor);
      program_->elements.push_back({position, parent, key()});
      program_->elements[element].tensor = add_tensor(tensor, Origin::Element, element);
      note_class(object.type());
      any = true;
    } else if (program_->has_arrays && is_array(object)) {
      if (symbols_.count(object.get()) != 0) return;
      program_->elements.push_back({position, parent, key()});
      program_->elements[element].tensor = add_symbol(object, {}, Origin::Element, element);
      any = true;
    } else if (records_numbers() && is_torch_symbol(object)) {
      const bool is_float = object.type() == torch_types().sym_float;
      if (!is_float && known_number(object)) return;
      program_->elements.push_back({position, parent, key()});
      Ref symbol = fake::make_symbol(class_of_torch_symbol(object));
      program_->elements[element].tensor = add_symbol(symbol, Ref::share(object), Origin::Element, element);
      from_torch_.emplace_back(object.get(), std::move(symbol));
      any = true;
    } else if (PyTuple_Check(object.get()) || PyList_Check(object.get()) || PyDict_Check(object.get())) {
      program_->elements.push_back({position, parent, key()});
      if (bind_items(object, position, element)) {
        any = true;
      } else {
        program_->elements.resize(element);
      }
    }
  };
  PyObject* raw = container.get();
  if (PyTuple_Check(raw)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(raw); ++i)
      item(PyTuple_GET_ITEM(raw, i), [&] { return checked(PyLong_FromSsize_t(i)); });
  } else if (PyList_Check(raw)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(raw); ++i)
      item(PyList_GET_ITEM(raw, i), [&] { return checked(PyLong_FromSsize_t(i)); });
  } else if (PyDict_Check(raw)) {
    PyObject *name, *value;
    for (Py_ssize_t i = 0; PyDict_Next(raw, &i, &name, &value);) item(value, [&] { return Ref::share(name); });
  }
  return any;
}

void Recorder::note_class(PyTypeObject* type) {
  if (type == torch_types().tensor || type == torch_types().parameter) return;
  program_->makes_subclasses = true;
  for (Part* around = part_; around != nullptr; around = around->outer_) around->program_->makes_subclasses = true;
}

// A real tensor returned by a recorded call has no place in the program: fail at once.
void Recorder::check_made_here(const at::Tensor& tensor) {
  if (!fake::is_fake(tensor) && !fake::is_wrapped(tensor))
    record_error("a torch call of the recording returned a real tensor");
}

}  // namespace alternator::graph
