#include "backend/graph_runner.h"

#include "backend/graph_scopes.h"
#include "cpython/operations.h"
#include "fake/python_tensor.h"
#include "fake/saved_hooks.h"
#include "fake/thread_state.h"
#include "graph/record/ambient_state.h"
#include "graph/record/torch_types.h"
#include "lift/sources/numpy_types.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>
#include <optional>

namespace alternator::backend {

// A Ref is layout-compatible with a pointer.
static_assert(sizeof(Ref) == sizeof(PyObject*) && std::is_standard_layout_v<Ref>);
PyObject* const* GraphOutputs::begin() const {
  return compiled ? PySequence_Fast_ITEMS(compiled.get()) : reinterpret_cast<PyObject* const*>(recorded.data());
}

GraphRunner::GraphRunner(std::shared_ptr<graph::Program> program, Py_ssize_t output_count, bool without_modes)
    : program_(std::move(program)), without_modes_(without_modes), output_count_(output_count), facts_(*program_) {}

void GraphRunner::set_inputs(std::vector<size_t> positions, std::vector<const lift::Source*> sources) {
  inputs_ = std::move(positions);
  input_sources_ = std::move(sources);
  contiguous_ = !inputs_.empty() && std::adjacent_find(inputs_.begin(), inputs_.end(), [](size_t one, size_t next) {
                                      return next != one + 1;
                                    }) == inputs_.end();
}

void GraphRunner::set_symbols(lift::SourceTree& tree, const std::vector<lift::Source*>& needed) {
  if (program_->backed != nullptr && graph::has_symbolic_inputs(*program_))
    symbolic_ = std::make_unique<const SymbolicInputs>(*program_, tree, needed);
  // All were specialized on.
  if (symbolic_ != nullptr && !symbolic_->any()) symbolic_.reset();
}

// A float is handed over as a tensor, and is no symbol of a ShapeEnv.
static bool varies_in_sizes(const SymbolicInputs& symbolic) {
  return std::ranges::any_of(symbolic.inputs, [](const graph::ExportedInput& input) {
    return !input.sizes.empty() || (input.number != nullptr && input.number->sort() != shapes::Sort::kFloat);
  });
}

// Symbols that no backend may see in this graph.
std::vector<uint32_t> GraphRunner::constants_before(const RunnerChoice& choice, const std::vector<Ref>& values) const {
  if (symbolic_ == nullptr || choice.runner == Runner::kRecorded) return {};
  const bool none = (facts_.has_unbacked_symbols && varies_in_sizes(*symbolic_)) || facts_.takes_subclass ||
                    facts_.takes_numpy_scalar || ((facts_.mutates || facts_.acts) && shares_memory(*symbolic_, values));
  return none ? symbolic_->symbols() : std::vector<uint32_t>();
}

void GraphRunner::run_recorded() { recorded_ = std::make_unique<graph::Replay>(*program_); }

Compilation GraphRunner::compile(const Backend& backend, const std::vector<Ref>& values, Borrowed code) {
  Ref examples = checked(PyList_New(static_cast<Py_ssize_t>(inputs_.size())));
  for (size_t i = 0; i < inputs_.size(); i++)
    PyList_SET_ITEM(examples.get(), static_cast<Py_ssize_t>(i), Py_NewRef(values[inputs_[i]].get()));
  std::optional<WithoutModes> without_modes;
  if (without_modes_) without_modes.emplace();
  facts_.look_at_inputs(*program_, examples, backend.traits.has_compiler);
  grad_around_ = program_->grad_around();
  is_torch_backend_ = backend.traits.is_torch_backend;
  const RunnerChoice choice = choose_runner(facts_, backend.traits);
  Compilation result{.specialize = constants_before(choice, values)};
  if (!result.is_done()) return result;
  Answer answer = leaving_transforms(facts_.transforms, [&] {
    const c10::AutoGradMode around(grad_around_);
    const fake::SavedHooksRest hooks_rest;
    const GraphRequest request(program_, {examples, input_sources_, symbolic_.get(), values}, code, facts_, choice);
    return hand_over(backend, request);
  });
  result.wants_numpy_constants = answer.wants_numpy_constants;
  result.specialize = std::move(answer.specialize);
  result.conditions = std::move(answer.conditions);
  if (!result.is_done()) return result;
  compiled_ = std::move(answer.callable);
  boxed_ = answer.boxed;
  if (!compiled_ || facts_.differentiates) run_recorded();
  // Other inputs might not share memory, and be compilable.
  const bool depends_on_sharing =
      compiled_ ? facts_.mutates || facts_.acts : facts_.writes_shared_inputs && is_torch_backend_;
  if (depends_on_sharing) sharing_ = std::make_unique<Sharing>(values, inputs_, facts_.has_arrays);
  return result;
}

// A backend's graph ignores tensor hooks on its inputs.
static bool has_hooks(const std::vector<Ref>& values, const std::vector<size_t>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](size_t position) {
    if (!graph::is_tensor(values[position])) return false;
    const at::Tensor& tensor = fake::unpack(values[position].get());
    const torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(tensor);
    return meta != nullptr && (!meta->hooks_.empty() || meta->retains_grad_);
  });
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

void GraphRunner::run(const std::vector<Ref>& values, GraphOutputs* outputs, graph::Failure* failure) const {
  std::optional<WithoutModes> without_modes;
  if (without_modes_) without_modes.emplace();
  std::optional<lift::NumpyErrorsSet> errors;
  if (raises_numpy_warnings_) errors.emplace(lift::NumpyErrorsSet::Kind::kRaised);
  const bool runs_recorded = recorded_ != nullptr && (!compiled_ || has_hooks(values, inputs_));
  if (symbolic_ != nullptr && !runs_recorded) {
    const std::vector<Ref> given = symbolic_->arguments(values);
    call_backend(reinterpret_cast<PyObject* const*>(given.data()), given.size(), 0, outputs);
    return;
  }
  c10::SmallVector<PyObject*, 16> copied;
  PyObject* const* arguments;
  size_t room = 0;
  if (contiguous_) {
    arguments = reinterpret_cast<PyObject* const*>(values.data() + inputs_[0]);
  } else {
    copied.resize_for_overwrite(inputs_.size() + 1);
    PyObject** argument = copied.data() + 1;
    arguments = argument;
    room = PY_VECTORCALL_ARGUMENTS_OFFSET;  // the slot before them
    for (const Ref* from = values.data(); size_t position : inputs_) *argument++ = from[position].get();
  }
  if (runs_recorded) {
    recorded_->run_each(arguments, inputs_.size(), &outputs->recorded, failure);
  } else {
    call_backend(arguments, inputs_.size(), room, outputs);
  }
}

void GraphRunner::call_backend(PyObject* const* arguments, size_t count, size_t flags, GraphOutputs* outputs) const {
  const StateAsBefore state(program_->states[0]);
  const c10::AutoGradMode around(grad_around_);
  Ref result;
  if (boxed_) {
    Ref list = checked(PyList_New(static_cast<Py_ssize_t>(count)));
    for (size_t i = 0; i < count; i++) PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
    result = checked(PyObject_CallOneArg(compiled_.get(), list.get()));
  } else {
    result = checked(PyObject_Vectorcall(compiled_.get(), arguments, count | flags, nullptr));
  }
  const bool is_sequence = PyTuple_Check(result.get()) || PyList_Check(result.get());
  if (!is_sequence || PySequence_Fast_GET_SIZE(result.get()) != output_count_) {
    PyErr_Format(PyExc_RuntimeError,
                 "alternator: what the backend made of the graph must return a tuple or list of %zd results, not %R",
                 output_count_, result.get());
    throw PyError();
  }
  outputs->compiled = std::move(result);
}

bool GraphRunner::has_raised_itself() const {
  // With symbols, a call may raise because of its sizes.
  if (!compiled_ || is_torch_backend_ || facts_.has_arrays || program_->backed) return true;
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

std::vector<uint32_t> GraphRunner::versions(const std::vector<Ref>& values) const {
  std::vector<uint32_t> found;
  for (size_t position : inputs_) {
    if (PyLong_CheckExact(values[position].get()) || PyFloat_CheckExact(values[position].get())) continue;
    if (!graph::is_tensor(values[position])) return {};
    const at::Tensor& tensor = fake::unpack(values[position].get());
    if (tensor.is_inference()) return {};
    found.push_back(tensor.unsafeGetTensorImpl()->version_counter().current_version());
  }
  return found;
}

}  // namespace alternator::backend
