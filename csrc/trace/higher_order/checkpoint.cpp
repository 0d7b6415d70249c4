// torch.utils.checkpoint.checkpoint: the function is inlined and its nodes are marked, so that a backend recomputes
// them in the backward pass. Eagerly, the function itself runs again then: any side effect would happen twice, so it is
// a break.
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/autograd_functions.h"
#include "trace/torch/torch_function_modes.h"

#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/write_log.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/soundness/reachable.h"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace alternator::trace {

namespace {

uint32_t version_of(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->is_inference() ? 0 : impl->version_counter().current_version();
}

// Fakes have no data pointers to compare.
bool share_storage(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

// Whether a tensor is one of the first `older` ones or an input, or shares its storage with one. With `counted`: those
// whose version counters show the write need not be found.
bool is_preexisting(const graph::Program& program, uint32_t number, size_t older, bool counted) {
  auto is_older = [&](size_t n) { return n < older || program.tensors[n].origin == graph::Origin::Input; };
  const at::Tensor& tensor = program.tensors[number].fake;
  if (is_older(number)) return !counted || tensor.is_inference();
  for (size_t n = 0; n < program.tensors.size(); n++) {
    if (!program.tensors[n].is_symbol() && is_older(n) && share_storage(tensor, program.tensors[n].fake)) return true;
  }
  return false;
}

// The devices of the tensors in a value, collected as torch does.
void collect_devices(Borrowed value, std::vector<c10::Device>* devices, bool* has_inference_tensor) {
  PyObject* raw = value.get();
  if (graph::is_tensor(value)) {
    const at::Tensor& tensor = fake::unpack(raw);
    devices->push_back(tensor.device());
    *has_inference_tensor = *has_inference_tensor || tensor.is_inference();
  } else if (PyTuple_Check(raw) || PyList_Check(raw)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(raw); i++)
      collect_devices(PySequence_Fast_GET_ITEM(raw, i), devices, has_inference_tensor);
  } else if (PyDict_Check(raw)) {
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Next(raw, &at, &key, &item);) collect_devices(item, devices, has_inference_tensor);
  }
}

bool is_text(Borrowed value, const char* ascii) {
  return PyUnicode_Check(value.get()) && PyUnicode_CompareWithASCIIString(value.get(), ascii) == 0;
}

}  // namespace

// One parsed checkpoint() call.
struct CheckpointCall {
  Borrowed function;
  std::vector<PyObject*> given{nullptr};  // the function's arguments, behind a free slot for vectorcall
  size_t positional = 0;
  Ref keyword_names;
  bool reentrant = false, preserves_random_state = true;
  std::vector<c10::Device> devices;  // whose RNG states are restored
  bool has_inference_tensor = false;
  // The state before the function ran.
  std::vector<uint32_t> versions;  // of all tensors
  size_t autograd_queries = 0;

  Ref run(Tracer& t) const { return trace::call(t, {function, given.data() + 1, positional, keyword_names}); }
};

// Why a second call of the function would do anything besides its nodes. Null: it would not.
static const char* what_is_not_repeated(Tracer& t, const CheckpointCall& call, size_t first) {
  const graph::Program& program = t.recorder.program();
  auto each_result = [&](const graph::Node& node, auto&& visit) {
    if (node.result != graph::kNowhere && !program.tensors[node.result].is_symbol())
      visit(program.tensors[node.result]);
    for (uint32_t i = 0; i < node.element_count; i++) {
      const uint32_t tensor = program.elements[node.elements + i].tensor;
      if (tensor != graph::kNowhere && !program.tensors[tensor].is_symbol()) visit(program.tensors[tensor]);
    }
  };
  for (size_t i = 0; i < program.tensors.size(); i++) {
    const graph::TensorRecord& record = program.tensors[i];
    const bool is_older = i < call.versions.size();
    if (record.is_symbol() || (!is_older && record.origin != graph::Origin::Input)) continue;
    uint32_t before = is_older ? call.versions[i] : 0;
    if (!is_older) {
      const at::Tensor real = t.session.real_of(record.fake);
      before = real.defined() ? version_of(real) : version_of(record.fake);
    }
    if (version_of(record.fake) != before) return "it writes to a tensor that existed before it";
  }
  for (size_t n = first; n < program.nodes.size(); n++) {
    const graph::Node& node = program.nodes[n];
    if ((node.effects & (graph::kActs | graph::kChecks)) != 0) return "it has a side effect";
    if (node.separate) return "it uses a torch.Generator or a numpy array";
    if ((node.effects & graph::kMutates) != 0) {
      // In-place operators increment version counters, but not that of the tensor whose .data they write to. Others,
      // such as batch_norm, may write to any argument without incrementing one.
      bool writes_older = false;
      program.each_written(node, [&](uint32_t tensor) {
        if (program.tensors[tensor].is_symbol()) return;
        writes_older = writes_older || is_preexisting(program, tensor, call.versions.size(), node.writes_first_only());
      });
      if (writes_older) return "it may write to a tensor that existed before it";
    }
    if ((node.effects & graph::kRandom) != 0) {
      if (!call.preserves_random_state) return "it draws random numbers, with preserve_rng_state=False";
      bool known = true;
      each_result(node, [&](const graph::TensorRecord& record) {
        const c10::Device device = record.fake.device();
        known = known && (device.is_cpu() || std::ranges::find(call.devices, device) != call.devices.end());
      });
      if (!known) return "it draws random numbers from a generator whose state is not restored";
    }
  }
  return nullptr;
}

// With use_reentrant=True the function first runs without gradients, and its result is that of one operation whose
// inputs are the tensors among the arguments. Why that could be distinguished from an inlined call. Null: it could not.
static const char* what_differs_when_reentrant(Tracer& t, const CheckpointCall& call, size_t first, Borrowed result) {
  if (t.autograd_queries != call.autograd_queries) return "it queries the autograd state, with use_reentrant=True";
  const graph::Program& program = t.recorder.program();
  auto is_argument = [&](const at::Tensor& tensor) {
    return std::any_of(
        call.given.begin() + 1, call.given.begin() + 1 + static_cast<ptrdiff_t>(call.positional), [&](PyObject* given) {
          return graph::is_tensor(given) && fake::unpack(given).unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl();
        });
  };
  bool uses_other = false;
  for (size_t n = first; n < program.nodes.size(); n++) {
    program.each_tensor_argument(program.nodes[n], [&](uint32_t number) {
      const graph::TensorRecord& record = program.tensors[number];
      const bool is_older = number < call.versions.size() || record.origin == graph::Origin::Input;
      if (!is_older || record.is_symbol()) return;
      uses_other = uses_other || (record.fake.requires_grad() && !record.fake.is_leaf() && !is_argument(record.fake));
    });
  }
  if (uses_other) return "it uses a non-leaf tensor that is not an argument, with use_reentrant=True";

  std::vector<PyObject*> results;
  if (PyTuple_CheckExact(result.get())) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result.get()); i++)
      results.push_back(PyTuple_GET_ITEM(result.get(), i));
  } else {
    results.push_back(result.get());
  }
  for (size_t i = 0; i < results.size(); i++) {
    if (results[i] == Py_None || lift::is_plain(results[i])) continue;
    const char* const other = "it returns something other than new tensors, with use_reentrant=True";
    if (!graph::is_tensor(results[i])) return other;
    const at::Tensor& tensor = fake::unpack(results[i]);
    const bool is_differentiable = tensor.is_floating_point() || tensor.is_complex();
    if (is_differentiable && (!tensor.requires_grad() || tensor.is_leaf())) return other;
    if (std::ranges::count(results, results[i]) > 1) return other;
    for (size_t older = 0; older < program.tensors.size(); older++) {
      const graph::TensorRecord& record = program.tensors[older];
      if (record.is_symbol() || (older >= call.versions.size() && record.origin != graph::Origin::Input)) continue;
      if (share_storage(tensor, record.fake)) return other;
    }
  }
  return nullptr;
}

[[noreturn]] static void refuse(const char* why) { stop(report::Reason::checkpoint, why); }

// Takes the keywords that are checkpoint()'s own; the others are the function's.
static void take_keywords(CheckpointCall& checkpoint, const Call& call) {
  Ref own_names = checked(PyList_New(0));
  Borrowed reentrant = Py_None;
  for (size_t i = 0; i < call.keywords(); i++) {
    Borrowed name = PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i)),
             value = call.arguments[call.positional + i];
    if (is_text(name, "use_reentrant")) {
      reentrant = value;
    } else if (is_text(name, "preserve_rng_state")) {
      if (!PyBool_Check(value.get())) refuse("preserve_rng_state is not a bool");
      checkpoint.preserves_random_state = value.get() == Py_True;
    } else if (is_text(name, "context_fn")) {
      if (value.get() != Natives::table().no_context) refuse("context_fn is given");
    } else if (is_text(name, "determinism_check")) {
      if (!is_text(value, "default") && !is_text(value, "none"))
        refuse("determinism_check is neither default nor none");
    } else if (is_text(name, "debug")) {
      if (value.get() != Py_False) refuse("debug is on");
    } else if (!is_text(name, "early_stop")) {
      check_status(PyList_Append(own_names.get(), name.get()));
      checkpoint.given.push_back(value.get());
    }
  }
  if (PyList_GET_SIZE(own_names.get()) > 0) checkpoint.keyword_names = checked(PyList_AsTuple(own_names.get()));
  if (!PyBool_Check(reentrant.get())) refuse("use_reentrant is not given");
  checkpoint.reentrant = reentrant.get() == Py_True;
}

static CheckpointCall parse(Tracer& t, const Call& call) {
  escape_all(t, call);
  if (call.positional == 0) refuse("the function is passed by name");
  // It is recomputed when the mode is not active any more.
  t.function_modes->forbid("torch.utils.checkpoint");
  CheckpointCall checkpoint{call.arguments[0]};
  checkpoint.positional = call.positional - 1;
  checkpoint.given.insert(checkpoint.given.end(), call.arguments + 1, call.arguments + call.positional);
  take_keywords(checkpoint, call);
  if (checkpoint.reentrant) {
    if (checkpoint.keyword_names) refuse("keywords are given, with use_reentrant=True");
    if (!AutogradFunctions::wants_gradient(checkpoint.given.data() + 1, checkpoint.positional))
      refuse("no argument requires a gradient, with use_reentrant=True");
  }
  Ref debug = t.lifter.containers->dict_item(
      t.lifter.namespaces->of_globals(PyFunction_GET_GLOBALS(Natives::table().checkpoint)),
      checked(PyUnicode_InternFromString("_checkpoint_debug_enabled")));
  if (!debug || debug.get() != Py_None) refuse("set_checkpoint_debug_enabled() was called");
  for (size_t i = 0; i < checkpoint.positional; i++)
    collect_devices(checkpoint.given[i + 1], &checkpoint.devices, &checkpoint.has_inference_tensor);
  std::optional<c10::DeviceType> other;
  for (const c10::Device& device : checkpoint.devices) {
    if (device.is_cpu()) continue;
    if (other && *other != device.type()) refuse("its tensors are on devices of several types");
    other = device.type();
  }
  return checkpoint;
}

// All that the function can reach. False: some of it has state that cannot be seen.
static bool add_reachable(Reachable& reachable, const CheckpointCall& checkpoint, const lift::WriteMark& mark) {
  bool can_see = reachable.add(checkpoint.function);
  for (PyObject* value : checkpoint.given) can_see = can_see && (value == nullptr || reachable.add(value));
  for (const lift::VariableWrite& write : mark.variables)
    can_see = can_see && (!write.value || reachable.add(write.value));
  for (const std::vector<Ref>& shadow : mark.shadows) {
    for (const Ref& value : shadow) can_see = can_see && (!value || reachable.add(value));
  }
  return can_see;
}

static Ref call_checkpoint(Tracer& t, const Call& call) {
  CheckpointCall checkpoint = parse(t, call);
  // Nothing is saved for a backward pass, so nothing is recomputed.
  if (!c10::GradMode::is_enabled()) return checkpoint.run(t);
  if (checkpoint.has_inference_tensor) refuse("an argument is an inference tensor");

  graph::Program& program = t.recorder.program();
  const size_t first = program.nodes.size(), older = program.tensors.size();
  for (const graph::TensorRecord& record : program.tensors)
    checkpoint.versions.push_back(record.is_symbol() ? 0 : version_of(record.fake));
  const lift::WriteMark mark = t.lifter.write_log->mark();
  const graph::Ambient state = graph::Ambient::now();
  checkpoint.autograd_queries = t.autograd_queries;
  Reachable reachable(t.lifter);
  const bool can_see = add_reachable(reachable, checkpoint, mark);
  Ref result;
  {
    const graph::Recorder::Checkpoint scope(t.recorder);
    result = checkpoint.run(t);
  }
  const bool any_requires_grad =
      std::any_of(program.tensors.begin() + static_cast<ptrdiff_t>(older), program.tensors.end(),
                  [](const graph::TensorRecord& record) {
                    return record.origin != graph::Origin::Input && !record.is_symbol() && record.fake.requires_grad();
                  });
  if (checkpoint.reentrant) {
    if (const char* what = what_differs_when_reentrant(t, checkpoint, first, result)) refuse(what);
  }
  if (!any_requires_grad) return result;
  if (const char* what = what_is_not_repeated(t, checkpoint, first)) refuse(what);
  if (t.lifter.write_log->has_writes_since(mark))
    refuse("it writes to a pre-existing object, prints, or draws a random number from Python's random module");
  if (!can_see) refuse("it can reach an object whose state cannot be seen");
  if (!reachable.unchanged()) refuse("it writes to an object that was created before it");
  if (!(state == graph::Ambient::now())) refuse("it changes a torch mode");
  return result;
}

// The function that torch.utils.checkpoint.checkpoint shields from TorchDynamo.
bool register_checkpoint(Handlers& handlers) {
  handlers.add(Natives::table().checkpoint, call_checkpoint);
  return true;
}

}  // namespace alternator::trace
