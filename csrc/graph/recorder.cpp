#include "graph/recorder.h"

#include "cpython/objects.h"
#include "fake/symbolic.h"
#include "fake/transforms.h"
#include "graph/errors.h"
#include "graph/replay.h"
#include "graph/torch_symbol.h"
#include "graph/torch_types.h"
#include "py/lasting.h"

#include <c10/util/SmallVector.h>
#include <torch/csrc/Generator.h>

#include <algorithm>
#include <array>

namespace alternator::graph {
namespace {

constexpr const char* kUnseen = "a torch call that was not recorded wrote to a tensor or drew random numbers";

}  // namespace

Recorder::Recorder(fake::Session& session, std::unique_ptr<StackSource> stack)
    : session_(session), stack_(std::move(stack)), program_(std::make_unique<Program>()) {}

Recorder::~Recorder() {
  end();
  if (mode_) detach_mode(mode_);
}

void Recorder::begin() {
  ALT_CHECK(!recording(), "this recorder is at work already");
  ALT_CHECK(program_ != nullptr, "this recorder has given its program away");
  if (!mode_) mode_ = make_mode(*this);
  if (program_->states.empty()) program_->states.push_back(Ambient::now());
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
  ALT_CHECK(program_ != nullptr, "this recorder has given its program away");
  if (foreign_thread_) record_error("a torch call was made on another thread while recording");
  if (unseen_) record_error(kUnseen);
  program_->result = capture(program_->arena, result, *this);
  program_->finish(unused);
  known_.clear();
  symbols_.clear();
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
  // What a part reads of the world is an input of the whole.
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

uint32_t Recorder::object_id(Borrowed object) {
  if (!is_generator(object)) return kNone;
  const auto found = symbols_.find(object.get());
  if (found != symbols_.end()) return found->second;
  if (refuses_generators_) record_error("a generator reached a torch call unseen");
  return kNone;
}

uint32_t Recorder::tensor_id(Borrowed object) {
  if (!is_symbol(object)) [[likely]] {
    // Code of the program's own, which the call would run: while it is recorded, and again whenever the node runs. And
    // a node does not remember that no class was to be asked.
    if (for_argument_ && (has_own_torch_function(object.type()) || (subclasses_are_off() && is_asked(object.type()))))
      record_error(std::string(object.type()->tp_name) + " has a __torch_function__ that is not to be called");
    return tensor_id(as_tensor(object));
  }
  const auto found = symbols_.find(object.get());
  if (found == symbols_.end()) record_error("a number of another recording reached a torch call");
  return found->second;
}

uint32_t Recorder::tensor_id(const at::Tensor& tensor) {
  const auto found = known_.find(tensor.unsafeGetTensorImpl());
  if (found != known_.end()) [[likely]]
    return found->second;
  if (part_ != nullptr && part_->knows(tensor)) {
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

// Code that switches torch functions off, or that torch does not show to modes, may still write to our tensors.
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

// The arguments of a call on their way into a node.
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
    // It may have a method of its own under any name, now or later.
    PyTypeObject* type = argument.type();
    const bool is_torchs = type == torch_types().tensor || type == torch_types().parameter;
    node.overridden = node.overridden || (!is_torchs && is_tensor(argument));
    node.apart = node.apart || is_generator(argument);
  }
  // Before the call, with all arguments set.
  void watch() {
    for (size_t i = mark_.values; i < arena_.size(); ++i)
      if (arena_[static_cast<uint32_t>(i)].is_tensor()) {
        const TensorRecord& record = recorder_.program_->tensors[arena_[static_cast<uint32_t>(i)].index];
        if (record.is_symbol())
          symbolic_ = symbolic_ || record.torch_symbol;
        else
          watch_.watch(record.fake);
      }
  }
  uint8_t effects() const { return recorder_.named_effects_.of(node.function()) | watch_.effects(node.function()); }
  bool wrote_argument() const { return watch_.wrote_argument(); }
  bool symbolic() const { return symbolic_; }  // a number that only a run knows is among the arguments
  void keep() { kept_ = true; }

  Node node;

 private:
  Recorder& recorder_;
  Arena& arena_;
  Arena::Mark mark_;
  EffectWatch watch_;
  bool symbolic_ = false;
  bool kept_ = false;
};

template <class Call>
Ref Recorder::record(Pending& pending, Call&& call) {
  Node& node = pending.node;
  if (has_unseen_effects()) record_error(kUnseen);
  pending.watch();
  node.state = state_number();
  node.checkpoint = checkpoint_;
  locate(node);

  inside_ = true;
  Ref result;
  {
    const fake::UnknownNumbers unknown(session_, pending.symbolic());
    const SymbolicKernels kernels(pending.symbolic());
    result = Ref::steal(call());
  }
  inside_ = false;
  if (!result) {
    // A call that failed before it wrote anything has not happened.
    if (!pending.wrote_argument()) seen_ = session_.counts();
    throw PyError();
  }
  seen_ = session_.counts();

  if (!has_symbols() && session_.has_shape_env()) [[unlikely]]
    program_->shape_env = Ref::share(session_.shape_env());
  if (has_symbols()) node.bindings = new_bindings(session_, result);
  const bool makes_tensors = bind(result, node);
  node.effects = pending.effects();
  if (has_symbols()) {
    // What was found relies on facts about numbers, which a run has to check: at the latest here.
    const size_t asserts = assert_count(program_->shape_env);
    if (std::exchange(program_->asserts, asserts) != asserts) node.effects |= kChecks;
  }
  if (makes_tensors || node.effects != kPure) {
    pending.keep();
    program_->nodes.push_back(std::move(node));
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
    // A graph holds no tensor of the recording's.
    if (!is_value)
      arena.set(node.arguments + static_cast<uint32_t>(i), Value::of(ValueKind::Opaque, arena.keep(arguments[i])));
    else
      pending.set(i, arguments[i]);
  }
  note(pending, std::move(result), effects);
}

void Recorder::note_apart(Borrowed callable, PyObject* const* arguments, size_t count, Ref result) {
  if (has_unseen_effects()) record_error(kUnseen);
  Pending pending(*this, callable);
  pending.reserve(count, 0);
  for (size_t i = 0; i < count; ++i) pending.set(i, arguments[i]);
  pending.node.apart = true;
  // One that is made and never used is no loss.
  note(pending, std::move(result), is_generator(result) ? kPure : kRandom);
}

Ref Recorder::number_apart(Borrowed callable, PyObject* const* arguments, size_t count) {
  Pending pending(*this, callable);
  pending.reserve(count, 0);
  for (size_t i = 0; i < count; ++i) pending.set(i, arguments[i]);
  pending.node.apart = true;
  if (!program_->shape_env) program_->shape_env = Ref::share(session_.shape_env());
  Ref number = record(pending, [&] { return make_torch_symbol(program_->shape_env, /*is_float=*/false).release(); });
  program_->nodes.back().effects |= kRandom;  // it happens, whether anybody uses the number or not
  return number;
}

void Recorder::note(Pending& pending, Ref result, uint8_t effects) {
  Node& node = pending.node;
  node.state = state_number();
  locate(node);
  (void)bind(result, node);
  node.effects = effects;
  seen_ = session_.counts();
  pending.keep();
  program_->nodes.push_back(std::move(node));
}

namespace {

// x.add and Tensor.add with x as the first argument are one call: found here as the second.
struct Unbound {
  Ref function;
  Borrowed self;
};

// The descriptor that a bound method comes from: not what a class may have under the same name (`super().sum()`).
Ref descriptor_of(PyTypeObject* type, PyMethodDef* method) {
  Ref name = checked(PyUnicode_InternFromString(method->ml_name));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* found = PyDict_GetItemWithError(cpython::own_dict(base), name.get());
    if (found != nullptr && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
        reinterpret_cast<PyMethodDescrObject*>(found)->d_method == method)
      return Ref::share(found);
  }
  return checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name.get()));
}

Unbound unbind(Borrowed callable) {
  PyObject* raw = callable.get();
  if (PyCFunction_Check(raw)) {
    PyObject* self = PyCFunction_GET_SELF(raw);
    if (self == nullptr || !is_tensor(self)) return {};
    return {descriptor_of(Py_TYPE(self), reinterpret_cast<PyCFunctionObject*>(raw)->m_ml), self};
  }
  if (PyMethod_Check(raw) && is_tensor(PyMethod_GET_SELF(raw)))
    return {Ref::share(PyMethod_GET_FUNCTION(raw)), PyMethod_GET_SELF(raw)};
  return {};
}

}  // namespace

namespace {

// AOTAutograd cannot trace it: torch's FakeTensorMode wants the numbers of the fourth argument in memory.
bool needs_numbers_in_memory(Borrowed callable, PyObject* const* arguments, size_t count) {
  if (count < 4 || !is_tensor(arguments[3])) return false;
  static constinit Lasting<std::array<Ref, 4>> functions;
  const auto& known = functions.get([] {
    return std::array{torch_name("torch", "_foreach_addcdiv"), torch_name("torch", "_foreach_addcdiv_"),
                      torch_name("torch", "_foreach_addcmul"), torch_name("torch", "_foreach_addcmul_")};
  });
  return std::find(known.begin(), known.end(), callable) != known.end();
}

bool is_generator_class(PyTypeObject* type) { return type == reinterpret_cast<PyTypeObject*>(THPGeneratorClass); }

// The arguments of a call as a tuple and a dict.
struct Packed {
  Ref arguments, keywords = checked(PyDict_New());
  Packed(Borrowed self, PyObject* const* given, size_t positional, Borrowed names) {
    const Py_ssize_t extra = self ? 1 : 0;
    arguments = checked(PyTuple_New(static_cast<Py_ssize_t>(positional) + extra));
    if (self) PyTuple_SET_ITEM(arguments.get(), 0, Py_NewRef(self.get()));
    for (size_t i = 0; i < positional; ++i)
      PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i) + extra, Py_NewRef(given[i]));
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); ++i)
      check_status(PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names.get(), i), given[positional + i]));
  }
};

// The call is no torch call to the program: nobody's mode sees it.
class WithoutTorchFunctions {
 public:
  WithoutTorchFunctions() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~WithoutTorchFunctions() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  WithoutTorchFunctions(const WithoutTorchFunctions&) = delete;
  WithoutTorchFunctions& operator=(const WithoutTorchFunctions&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

}  // namespace

// Where no class is asked, or only torch.Tensor's own method runs: a node that is a call of what does that.
Ref Recorder::call_wrapped(Borrowed wrapper, Borrowed callable, Borrowed arguments, Borrowed keywords) {
  if (has_symbols()) record_error("a number that only a run knows meets a tensor of a subclass");
  Ref none = checked(PyTuple_New(0));
  Pending pending(*this, wrapper);
  pending.node.wrapped = Ref::share(callable);
  pending.reserve(4, 0);
  PyObject* given[] = {nullptr, callable.get(), none.get(), arguments.get(), keywords.get()};
  for (size_t i = 0; i < 4; ++i) pending.set(i, given[i + 1]);
  if (any_of_class(arguments, is_generator_class) || any_of_class(keywords, is_generator_class) ||
      needs_numbers_in_memory(callable, &PyTuple_GET_ITEM(arguments.get(), 0), PyTuple_GET_SIZE(arguments.get())))
    pending.node.apart = true;
  std::optional<WithoutTopMode> without;
  if (is_top_mode(mode_)) without.emplace();
  return record(pending, [&] {
    return PyObject_Vectorcall(wrapper.get(), given + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  });
}

Ref Recorder::call_for_class(Borrowed cls, Borrowed callable, PyObject* const* arguments, size_t positional,
                             Borrowed keyword_names) {
  if (inside_ || !recording() || !is_top_mode(mode_) || !on_own_thread())
    record_error("a method of torch.Tensor's is called where nothing is recorded");
  const Unbound unbound = unbind(callable);
  const Packed packed(unbound.self, arguments, positional, keyword_names);
  Ref method = checked(PyMethod_New(torch_types().torch_function.get(), cls.get()));
  return call_wrapped(method, unbound.function ? Borrowed(unbound.function) : callable, packed.arguments,
                      packed.keywords);
}

Ref Recorder::call(Borrowed callable, PyObject* const* arguments, size_t flagged_count, Borrowed keyword_names) {
  const auto plainly = [&] {
    return checked(PyObject_Vectorcall(callable.get(), arguments, flagged_count, keyword_names.get()));
  };
  if (inside_ || !recording() || !is_top_mode(mode_)) return plainly();
  if (!on_own_thread()) return plainly();

  const size_t positional = PyVectorcall_NARGS(flagged_count);
  const size_t keyword = keyword_names ? PyTuple_GET_SIZE(keyword_names.get()) : 0;
  if (callable == torch_types().tensor_iter && positional == 1 && keyword == 0) return iterate(arguments[0]);

  const Unbound unbound = unbind(callable);
  const size_t extra = unbound.function ? 1 : 0;
  if (subclasses_are_off()) [[unlikely]] {
    const auto asked = [](Borrowed argument) { return any_of_class(argument, is_asked); };
    if ((extra && asked(unbound.self)) || std::any_of(arguments, arguments + positional + keyword, asked)) {
      const Packed packed(unbound.self, arguments, positional, keyword_names);
      return call_wrapped(torch_types().without_subclasses, extra ? Borrowed(unbound.function) : callable,
                          packed.arguments, packed.keywords);
    }
  }
  Pending pending(*this, extra ? Borrowed(unbound.function) : callable);
  pending.reserve(positional + extra, keyword);
  if (extra) pending.set(0, unbound.self);
  for (size_t i = 0; i < positional + keyword; ++i) pending.set(i + extra, arguments[i]);
  if (keyword != 0) pending.node.keyword_names = Ref::share(keyword_names);
  if (needs_numbers_in_memory(callable, arguments, positional)) pending.node.apart = true;

  const WithoutTopMode without;
  if (captures_scalars_ && pending.node.callable == torch_types().tensor_item && positional + extra == 1) {
    Borrowed tensor = extra ? unbound.self : arguments[0];
    if (is_unknown_scalar(session_, tensor)) return item(pending, tensor);
  }
  if (has_symbols()) {
    std::vector<Ref> own;
    std::vector<PyObject*> raw{nullptr};
    for (size_t i = 0; i < positional + keyword; ++i) raw.push_back(own.emplace_back(to_torch(arguments[i])).get());
    return record(pending, [&] {
      return PyObject_Vectorcall(callable.get(), raw.data() + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 keyword_names.get());
    });
  }
  return record(pending,
                [&] { return PyObject_Vectorcall(callable.get(), arguments, flagged_count, keyword_names.get()); });
}

Ref Recorder::call_from_mode(Borrowed callable, Borrowed types, Borrowed arguments, Borrowed keywords) {
  const auto plainly = [&] { return checked(PyObject_Call(callable.get(), arguments.get(), keywords.get())); };
  if (inside_ || !recording() || !on_own_thread()) return plainly();
  // A getter names the class of the tensor to a mode also where torch would not ask it.
  const bool asks = subclasses_are_on() && PyTuple_Check(types.get());
  for (Py_ssize_t i = 0; asks && i < PyTuple_GET_SIZE(types.get()); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(types.get(), i));
    if (!PyType_Check(PyTuple_GET_ITEM(types.get(), i)) || !has_own_torch_function(type)) continue;
    if (!on_override) record_error(std::string(type->tp_name) + " has a __torch_function__ that is not to be called");
    on_override(types, arguments, keywords);
    return Ref::share(Py_NotImplemented);
  }

  const size_t positional = PyTuple_GET_SIZE(arguments.get());
  const size_t keyword = keywords ? PyDict_GET_SIZE(keywords.get()) : 0;
  if (subclasses_are_off() && (any_of_class(arguments, is_asked) || (keywords && any_of_class(keywords, is_asked)))) {
    Ref none = keywords ? Ref() : checked(PyDict_New());
    return call_wrapped(torch_types().without_subclasses, callable, arguments, keywords ? keywords : Borrowed(none));
  }
  if (callable == torch_types().tensor_iter && positional == 1 && keyword == 0)
    return iterate(PyTuple_GET_ITEM(arguments.get(), 0));

  Pending pending(*this, callable);
  pending.reserve(positional, keyword);
  for (size_t i = 0; i < positional; ++i) pending.set(i, PyTuple_GET_ITEM(arguments.get(), i));
  if (needs_numbers_in_memory(callable, &PyTuple_GET_ITEM(arguments.get(), 0), positional)) pending.node.apart = true;
  if (keyword != 0) {
    pending.node.keyword_names = checked(PyTuple_New(keyword));
    PyObject *name, *argument;
    Py_ssize_t position = 0;
    for (size_t i = 0; PyDict_Next(keywords.get(), &position, &name, &argument); ++i) {
      PyTuple_SET_ITEM(pending.node.keyword_names.get(), i, Ref::share(name).release());
      pending.set(positional + i, argument);
    }
  }
  if (captures_scalars_ && callable == torch_types().tensor_item && positional == 1 && keyword == 0) {
    Borrowed tensor = PyTuple_GET_ITEM(arguments.get(), 0);
    if (is_unknown_scalar(session_, tensor)) return item(pending, tensor);
  }
  Ref own_arguments = has_symbols() ? to_torch(arguments) : Ref::share(arguments);
  Ref own_keywords = has_symbols() && keywords ? to_torch(keywords) : Ref::share(keywords);
  return record(pending, [&] { return PyObject_Call(callable.get(), own_arguments.get(), own_keywords.get()); });
}

// ---- numbers that only a run knows

uint32_t Recorder::add_symbol(Borrowed symbol, Ref torch_symbol, Origin origin, uint32_t index) {
  const uint32_t id = static_cast<uint32_t>(program_->tensors.size());
  program_->tensors.push_back({at::Tensor(), origin, index, Ref::share(symbol), std::move(torch_symbol)});
  symbols_.emplace(symbol.get(), id);
  return id;
}

// Two reads of one value are one number. (AOTAutograd would take them for one as well, and miss the other.)
Ref Recorder::item(Pending& pending, Borrowed object) {
  const at::Tensor& tensor = as_tensor(object);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const uint64_t writes = fake::data_version(session_.state(), tensor);
  const auto before = items_.find(impl);
  if (before != items_.end() && before->second.writes == writes) {
    shares_symbols_ = true;
    return before->second.symbol;
  }
  if (!program_->shape_env) program_->shape_env = Ref::share(session_.shape_env());
  Ref number =
      record(pending, [&] { return make_torch_symbol(program_->shape_env, tensor.is_floating_point()).release(); });
  items_[impl] = {writes, number};
  return number;
}

Ref Recorder::torch_symbol(Borrowed symbol) const {
  const auto found = symbols_.find(symbol.get());
  if (found == symbols_.end()) record_error("a number of another recording is used");
  return program_->tensors[found->second].torch_symbol;
}

Ref Recorder::operate(Borrowed function, PyObject* const* arguments, size_t count) {
  if (!recording() || inside_ || !on_own_thread()) record_error("a number is used inside of a torch call");
  Pending pending(*this, function);
  pending.reserve(count, 0);
  std::vector<Ref> own;
  std::vector<PyObject*> raw;
  for (size_t i = 0; i < count; ++i) {
    pending.set(i, arguments[i]);
    raw.push_back(own.emplace_back(to_torch(arguments[i])).get());
  }
  const WithoutTorchFunctions without;
  return record(pending, [&] { return PyObject_Vectorcall(function.get(), raw.data(), count, nullptr); });
}

// A container that torch made, with our numbers in place of torch's.
Ref Recorder::from_torch(Borrowed value) {
  const bool is_tuple = PyTuple_Check(value.get());
  if (!is_tuple && !PyList_Check(value.get())) return Ref::share(value);
  Ref copy;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value.get()); ++i) {
    Borrowed before = PySequence_Fast_GET_ITEM(value.get(), i);
    Ref item;
    if (is_torch_symbol(before)) {
      for (const auto& [torchs, ours] : from_torch_)
        if (torchs == before.get()) item = ours;
      if (!item) item = known_number(before);
    } else {
      item = from_torch(before);
    }
    if (!copy && Borrowed(item) == before) continue;
    if (!copy) copy = checked(PySequence_List(value.get()));
    check_status(PyList_SetItem(copy.get(), i, item.release()));
  }
  if (!copy) return Ref::share(value);
  if (!is_tuple) return copy;
  Ref tuple = checked(PyList_AsTuple(copy.get()));
  if (PyTuple_CheckExact(value.get())) return tuple;
  if (value.type() != torch_types().size) record_error("numbers that only a run knows inside of a named result");
  return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(value.type()), tuple.get()));
}

Ref Recorder::to_torch(Borrowed value) const {
  PyObject* v = value.get();
  if (is_symbol(value)) return torch_symbol(value);
  const bool is_tuple = PyTuple_Check(v);
  if (is_tuple || PyList_Check(v)) {
    Ref copy;  // of what holds one
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i) {
      Borrowed before = PySequence_Fast_GET_ITEM(v, i);
      Ref item = to_torch(before);
      if (!copy && Borrowed(item) == before) continue;
      if (!copy) copy = checked(PySequence_List(v));
      check_status(PyList_SetItem(copy.get(), i, item.release()));
    }
    if (!copy) return Ref::share(value);
    if (!is_tuple) return copy;
    Ref tuple = checked(PyList_AsTuple(copy.get()));
    if (PyTuple_CheckExact(v)) return tuple;
    if (Py_TYPE(v) == torch_types().size) return tuple;
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(v));
    return checked(PyObject_Call(type, tuple.get(), nullptr));  // a namedtuple
  }
  if (PyDict_Check(v)) {
    Ref copy;
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(v, &position, &key, &item);) {
      Ref other = to_torch(item);
      if (Borrowed(other) == Borrowed(item)) continue;
      if (!copy) copy = checked(PyDict_Copy(v));
      check_status(PyDict_SetItem(copy.get(), key, other.get()));
    }
    return copy ? std::move(copy) : Ref::share(value);
  }
  if (PySlice_Check(v)) {
    auto* s = reinterpret_cast<PySliceObject*>(v);
    Ref start = to_torch(s->start), stop = to_torch(s->stop), step = to_torch(s->step);
    if (start.get() == s->start && stop.get() == s->stop && step.get() == s->step) return Ref::share(value);
    return checked(PySlice_New(start.get(), stop.get(), step.get()));
  }
  return Ref::share(value);
}

// Tensor.__iter__ gives an iterator, which no graph can hold: it is recorded as what it does.
Ref Recorder::iterate(Borrowed tensor) {
  const TorchTypes& torch = torch_types();
  Ref parts;
  if (as_tensor(tensor).dim() == 0) {
    // The error that eager raises.
    return checked(PyObject_CallOneArg(torch.tensor_iter.get(), tensor.get()));
  }
  Ref zero = checked(PyLong_FromLong(0));
  Pending pending(*this, torch.tensor_unbind);
  pending.reserve(2, 0);
  pending.set(0, tensor);
  pending.set(1, zero);
  PyObject* arguments[] = {tensor.get(), zero.get()};
  // Without our mode: through the mode stack it is off already, at a direct call it is still on.
  std::optional<WithoutTopMode> without;
  if (is_top_mode(mode_)) without.emplace();
  parts = record(pending, [&] { return PyObject_Vectorcall(torch.tensor_unbind.get(), arguments, 2, nullptr); });
  return checked(PyObject_GetIter(parts.get()));
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
  if (has_symbols() && is_torch_symbol(result)) [[unlikely]] {
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
    if (has_symbols()) result = from_torch(result);
    if (!any) program_->elements.resize(node.elements);
  }
  node.element_count = static_cast<uint32_t>(program_->elements.size()) - node.elements;
  return any;
}

// The tensors inside of a tuple, list or dict. Containers without new tensors leave no elements.
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
    } else if (has_symbols() && is_torch_symbol(object)) {
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

// A real tensor that comes out of a recorded call would be baked into nothing: say so at once.
void Recorder::check_made_here(const at::Tensor& tensor) {
  if (!fake::is_fake(tensor) && !fake::is_wrapped(tensor))
    record_error("a torch call of the recording returned a real tensor");
}

}  // namespace alternator::graph
