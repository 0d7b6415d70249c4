// Running an entry for a call.
#include "dispatch/entry.h"

#include "backend/graph_scopes.h"
#include "backend/handoff.h"
#include "dispatch/failure_recovery.h"
#include "fake/python_tensor.h"
#include "fake/thread_state.h"
#include "graph/record/node_effects.h"
#include "interpreter/frame_values.h"
#include "trace/core/tracer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>

namespace alternator::dispatch {

using at::impl::PythonTorchFunctionTLS;

// A backend's graph ignores tensor hooks on its inputs.
static bool has_hooks(const std::vector<Ref>& values, const std::vector<size_t>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](size_t position) {
    if (!graph::is_tensor(values[position])) return false;
    const at::Tensor& tensor = fake::unpack(values[position].get());
    const torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(tensor);
    return meta != nullptr && (!meta->hooks_.empty() || meta->retains_grad_);
  });
}

Entry::Entry() = default;
Entry::~Entry() = default;

bool Entry::admits(const guards::Roots& roots, std::vector<Ref>* values) const {
  return guards->check(roots, values) && residual.program().is_alive() &&
         (sharing == nullptr || sharing->holds(*values, inputs));
}

Ref Entry::guard_texts() const {
  Ref texts = checked(PyList_New(0));
  for (const std::string& text : guards->texts())
    check_status(PyList_Append(texts.get(), checked(PyUnicode_FromString(text.c_str())).get()));
  for (const Check& check : checks) {
    auto* code = check.code.as<PyCodeObject>();
    const int line = PyCode_Addr2Line(code, check.index * static_cast<int>(sizeof(_Py_CODEUNIT)));
    Ref text = checked(PyUnicode_FromFormat("the data of the call, after it: the check at %U:%d does not raise",
                                            code->co_filename, line));
    check_status(PyList_Append(texts.get(), text.get()));
  }
  return texts;
}

// A Ref is layout-compatible with a pointer.
static_assert(sizeof(Ref) == sizeof(PyObject*) && std::is_standard_layout_v<Ref>);
PyObject* const* Entry::Outputs::begin() const {
  return of_backend ? PySequence_Fast_ITEMS(of_backend.get()) : reinterpret_cast<PyObject* const*>(own.data());
}

namespace {

// A backend's graph may raise between setting thread state and restoring it: this restores it.
class StateAsBefore {
 public:
  explicit StateAsBefore(const graph::Ambient& state)
      : state_(state), nesting_(fake::autocast_nesting()), errors_(std::uncaught_exceptions()) {}
  ~StateAsBefore() {
    if (std::uncaught_exceptions() == errors_) return;
    state_.apply();
    fake::set_autocast_nesting(nesting_);
  }
  StateAsBefore(const StateAsBefore&) = delete;
  StateAsBefore& operator=(const StateAsBefore&) = delete;

 private:
  const graph::Ambient& state_;
  int nesting_, errors_;
};

}  // namespace

void Entry::run_graph(const std::vector<Ref>& values, Outputs* outputs, graph::Failure* failure) const {
  std::optional<backend::WithoutModes> without_modes;
  if (has_modes) without_modes.emplace();
  // If numpy would warn, the call runs eagerly, and warns where the program does. User code in the graph, which might
  // catch the error that is raised for that, sees the thread's own numpy error settings.
  std::optional<lift::NumpyErrorsSet> errors;
  if (has_arrays && (repeatable || !checks.empty()) && !calls_others)
    errors.emplace(lift::NumpyErrorsSet::Kind::kRaised);
  c10::SmallVector<PyObject*, 16> copied;
  PyObject* const* arguments;
  size_t room = 0;
  if (side_by_side) {
    arguments = reinterpret_cast<PyObject* const*>(values.data() + inputs[0]);
  } else {
    copied.resize_for_overwrite(inputs.size() + 1);
    PyObject** argument = copied.data() + 1;
    arguments = argument;
    room = PY_VECTORCALL_ARGUMENTS_OFFSET;  // the slot before them
    for (const Ref* from = values.data(); size_t position : inputs) *argument++ = from[position].get();
  }
  if (eager != nullptr && (!differentiates || has_hooks(values, inputs))) {
    eager->run_each(arguments, inputs.size(), &outputs->own, failure);
  } else {
    const StateAsBefore state(program->states[0]);
    const c10::AutoGradMode around(grad_around);
    Ref result;
    if (boxed) {
      Ref list = checked(PyList_New(static_cast<Py_ssize_t>(inputs.size())));
      for (size_t i = 0; i < inputs.size(); i++)
        PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
      result = checked(PyObject_CallOneArg(compiled.get(), list.get()));
    } else {
      result = checked(PyObject_Vectorcall(compiled.get(), arguments, inputs.size() | room, nullptr));
    }
    const bool is_sequence = PyTuple_Check(result.get()) || PyList_Check(result.get());
    if (!is_sequence || PySequence_Fast_GET_SIZE(result.get()) != output_count) {
      PyErr_Format(PyExc_RuntimeError,
                   "alternator: what the backend made of the graph must return a tuple or list of %zd results, not %R",
                   output_count, result.get());
      throw PyError();
    }
    outputs->of_backend = std::move(result);
  }
}

// Saves the default generators' state to restore it.
class SavedRngState {
 public:
  SavedRngState() {
    add(at::detail::getDefaultCPUGenerator());
    if (!at::globalContext().hasCUDA()) return;
    for (c10::DeviceIndex i = 0; i < static_cast<c10::DeviceIndex>(at::detail::getCUDAHooks().deviceCount()); i++) {
      if (at::detail::getCUDAHooks().hasPrimaryContext(i))
        add(at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, i)));
    }
  }
  void put_back() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void add(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Entries whose speculated check keeps failing are dropped.
void Entry::refute(size_t check) {
  static constexpr int kMostRefuted = 3;
  Check& failed = checks[check];
  if (++failed.refuted < kMostRefuted) return;
  is_refuted = true;
  trace::stop_speculating(failed.code, failed.index);
}

// False: a speculated check failed, or the graph raised, possibly for that reason.
bool Entry::run_and_check(const std::vector<Ref>& values, Outputs* outputs) {
  std::optional<SavedRngState> rng_state;
  if (draws) rng_state.emplace();
  try {
    run_graph(values, outputs);
  } catch (const PyError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;
    PyErr_Clear();
    if (rng_state) rng_state->put_back();
    return false;
  }
  for (size_t i = 0; i < checks.size(); i++) {
    Borrowed flag = outputs->begin()[i];
    if (truth(flag).value() == checks[i].expected) continue;
    refute(i);
    if (rng_state) rng_state->put_back();
    return false;
  }
  return true;
}

// Whether the exception comes from the graph. Errors in a custom backend must reach its author.
bool Entry::is_of_graph() const {
  if (!compiled || is_torch_backend || has_arrays) return true;
  Ref error = cpython::take_raised();
  bool found = false;
  Ref trace = Ref::steal(PyException_GetTraceback(error.get()));
  auto* first = trace && PyTraceBack_Check(trace.get()) ? trace.as<PyTracebackObject>() : nullptr;
  for (auto* at = first; at != nullptr && !found; at = at->tb_next) {
    Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at->tb_frame)));
    const char* file = PyUnicode_AsUTF8(code.as<PyCodeObject>()->co_filename);
    if (file == nullptr) PyErr_Clear();
    found = file != nullptr && std::string_view(file).starts_with("<eval_with_key>");  // code of a torch.fx.GraphModule
  }
  cpython::set_raised(std::move(error));
  return found;
}

// Version counters of the inputs; empty: an input has none.
static std::vector<uint32_t> versions_of(const std::vector<Ref>& values, const std::vector<size_t>& inputs) {
  std::vector<uint32_t> versions;
  for (size_t position : inputs) {
    if (!graph::is_tensor(values[position])) return {};
    const at::Tensor& tensor = fake::unpack(values[position].get());
    if (tensor.is_inference()) return {};
    versions.push_back(tensor.unsafeGetTensorImpl()->version_counter().current_version());
  }
  return versions;
}

// Autocast scopes that the call opens and leaves open: the graph closes its own ones, and the cached casts of weights
// are needed after the break.
class OpenScopes {
 public:
  explicit OpenScopes(int count) : count_(count) {
    if (count_ > 0) fake::set_autocast_nesting(fake::autocast_nesting() + count_);
  }
  ~OpenScopes() {
    if (count_ > 0) fake::set_autocast_nesting(fake::autocast_nesting() - count_);
  }
  OpenScopes(const OpenScopes&) = delete;
  OpenScopes& operator=(const OpenScopes&) = delete;
  void keep() { count_ = 0; }

 private:
  int count_;
};

Ref Entry::run(const std::vector<Ref>& values, Chain* chain, graph::Failure* failure) {
  Outputs outputs;
  if (clears_casts && fake::autocast_nesting() == 0) at::autocast::clear_cache();
  OpenScopes scopes(exit_nesting);
  std::optional<graph::WarningsKept> kept;
  if (!warnings.empty()) {
    if (graph::may_raise_warnings()) return {};  // run eagerly: nothing has happened yet
    kept.emplace(graph::WarningsKept::Kind::kRun);
  }
  if (checks.empty()) {
    const std::vector<uint32_t> versions = writes_last ? versions_of(values, inputs) : std::vector<uint32_t>();
    // AOTAutograd bumps the version of an input that is going to be mutated once beforehand; the write bumps it again.
    const auto is_unwritten = [&] {
      const std::vector<uint32_t> now = versions.empty() ? versions : versions_of(values, inputs);
      return !now.empty() && std::equal(now.begin(), now.end(), versions.begin(), versions.end(),
                                        [](uint32_t after, uint32_t before) { return after <= before + 1; });
    };
    std::optional<SavedRngState> rng_state;
    if (draws && (repeatable || !versions.empty())) rng_state.emplace();
    try {
      backend::leaving_transforms(transforms, [&] { run_graph(values, &outputs, repeatable ? nullptr : failure); });
    } catch (const PyError&) {
      const bool may_repeat = repeatable || is_unwritten();
      if (kept && !may_repeat) {
        const SavedError on_its_way;
        std::vector<graph::Warning> given = kept->take();
        kept.reset();
        graph::give(std::move(given), &warnings);
      }
      if (!may_repeat || !PyErr_ExceptionMatches(PyExc_Exception) || !is_of_graph()) throw;
      // Eager execution raises the right error at the right line, with the side effects up to there.
      PyErr_Clear();
      if (rng_state) rng_state->put_back();
      return {};
    }
  } else {
    if (!run_and_check(values, &outputs)) return {};
  }
  std::optional<graph::WarningsInTurn> in_turn;
  if (kept) {
    std::vector<graph::Warning> given = kept->take();
    kept.reset();
    if (shows) {
      in_turn.emplace(std::move(given), warnings);
    } else {
      graph::give(std::move(given), &warnings);
    }
  }
  return finish(values, outputs.begin(), outputs.size(), chain, scopes, in_turn ? &*in_turn : nullptr);
}

Ref Entry::finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain) {
  OpenScopes scopes(exit_nesting);
  return finish(values, outputs, count, chain, scopes, nullptr);
}

Ref Entry::finish(const std::vector<Ref>& values, PyObject* const* outputs, size_t count, Chain* chain,
                  OpenScopes& scopes, graph::WarningsInTurn* warned) {
  replay::Residual::Results results = residual.run_all(values, outputs, count);
  if (warned != nullptr) warned->give_rest();
  if (exit_state) exit_state->apply();
  if (exit_casts) exit_casts->apply();
  scopes.keep();
  if (exit_nesting < 0) fake::set_autocast_nesting(fake::autocast_nesting() + exit_nesting);
  for (size_t i = 0; i < exit_popped; i++) PythonTorchFunctionTLS::pop_stack();
  for (size_t i = results.size() - exit_pushed; i < results.size(); i++)
    PythonTorchFunctionTLS::push_onto_stack(
        std::make_shared<c10::SafePyObject>(results[i].release(), getPyInterpreter()));
  if (residual.program().raises) replay::raise_again(std::move(results[0]));
  if (stop.empty()) return std::move(results[0]);
  for (const FrameState& shape : stop) take_shape(&chain->emplace_back(), shape);
  size_t next = 0;
  each_value(*chain, [&](Ref& value) { value = std::move(results[next++]); });
  return {};
}

}  // namespace alternator::dispatch
