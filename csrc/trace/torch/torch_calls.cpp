// torch calls that become nodes of the graph.
#include "trace/torch/torch_calls.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/backward.h"
#include "trace/numpy/array_conversions.h"
#include "trace/numpy/array_nodes.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/numpy/numpy_scalars.h"
#include "trace/opcodes/items.h"
#include "trace/soundness/value_text.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/symbol_tensors.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/flag_calls.h"
#include "trace/torch/legacy_tensors.h"
#include "trace/torch/random_generators.h"
#include "trace/torch/tensor_attributes.h"
#include "trace/torch/tensor_hooks.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"
#include "trace/torch/torch_runs.h"

#include "cpython/version.h"
#include "fake/item_request.h"
#include "fake/session.h"
#include "graph/record/record_error.h"
#include "graph/record/recording_mode.h"
#include "graph/record/torch_symbol.h"
#include "graph/record/torch_types.h"
#include "graph/record/without_torch_functions.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/core/error_text.h"
#include "trace/core/interrupts.h"
#include "trace/soundness/observable_failures.h"
#include "trace/symbolic/tensors_as_numbers.h"

#include <algorithm>

namespace alternator::trace {

namespace {

// What a torch call is compared with, besides methods of torch.Tensor.
struct Functions {
  Ref is_grad_enabled = graph::torch_name("torch", "is_grad_enabled");
  Ref run_engine = graph::torch_name("torch.autograd.graph", "_engine_run_backward");
  Ref engine = graph::torch_name("torch._C", "_ImperativeEngine");
  const void* run_backward = Handlers::key_of(checked(PyObject_GetAttrString(engine.get(), "run_backward")).release());
};
const Functions& functions() {
  static constinit Lasting<Functions> lasting;
  return lasting.get();
}

// The autograd engine itself, which a function that is allowed in the graph may be.
bool is_engine(Borrowed callable) {
  return callable == Borrowed(functions().run_engine) || Handlers::key_of(callable.get()) == functions().run_backward;
}

// While it lives, .item() gives an unbacked symbol, regardless of the settings.
class CapturingScalars {
 public:
  explicit CapturingScalars(Tracer& tracer)
      : recorder_(tracer.recorder), before_{recorder_.captures_scalars(), tracer.session.state().captures_sizes} {
    recorder_.capture_unbacked({.scalars = true, .sizes = before_.sizes});
  }
  ~CapturingScalars() { recorder_.capture_unbacked(before_); }
  CapturingScalars(const CapturingScalars&) = delete;
  CapturingScalars& operator=(const CapturingScalars&) = delete;

 private:
  graph::Recorder& recorder_;
  graph::Recorder::Captured before_;
};

}  // namespace

void load_torch_calls() {
  (void)functions();
  (void)method_flags(Py_None);
}

// x.new(2, 3) and x.new(size), the legacy form of x.new_empty(), which torch refuses for fakes: returns the method that
// takes the same arguments. Null: it is no such call.
static Ref modern_new(const Call& call, MemberFlags method) {
  if ((method & TensorMember::kNew) == 0 || call.keyword_names) return {};
  Borrowed owner;
  Call rest = call;
  if (PyCFunction_Check(call.callable.get())) {
    owner = PyCFunction_GET_SELF(call.callable.get());
    if (owner && !graph::is_tensor(owner)) owner = {};
  } else if (call.positional > 0 && graph::is_tensor(call.arguments[0])) {
    owner = call.callable.as<PyDescrObject>()->d_type;
    rest = call.without_first();
  }
  if (!owner || rest.positional == 0) return {};
  return are_sizes(rest.arguments, rest.positional) ? checked(PyObject_GetAttrString(owner.get(), "new_empty")) : Ref();
}

void stop_for_torch(Tracer& t, const std::string& what) {
  if (t.function_modes->is_unwinding()) throw PyError();  // out of a user's torch-function mode
  if (is_interrupt(t)) stop_for_interrupt(t, what);
  const fake::Failure* failure = t.session.failure();
  const bool data = failure != nullptr && failure->kind == fake::FailureKind::DataDependent;
  const std::string text = take_error_text();
  const bool number = text.starts_with("GuardOnDataDependentSymNode");
  stop(data || number ? report::Reason::data_dependent : report::Reason::torch_call, what + ": " + text);
}

// x.tolist() reads memory without the dispatcher, and a fake has none. Null: it is no such call.
static Ref list_of_values(Tracer& t, const Call& call, MemberFlags method) {
  if ((method & TensorMember::kToList) == 0) return {};
  Borrowed tensor = split_self(call).self;
  if (!tensor || !graph::is_tensor(tensor) || !fake::is_fake(fake::unpack(tensor.get()))) return {};
  const std::optional<at::Tensor> value = t.session.known_value(fake::unpack(tensor.get()));
  if (!value && t.recorder.captures_scalars() && graph::is_top_mode(t.recorder.mode()))
    return list_of_numbers(t, tensor);
  if (!value) stop(report::Reason::data_dependent, "Tensor.tolist: the result is the data of a tensor");
  const Paused paused(t);
  const fake::Inactive inactive;
  const fake::WithoutTransforms untransformed;
  const graph::WithoutTorchFunctions without_functions;
  return checked(PyObject_CallMethod(Ref::steal(THPVariable_Wrap(*value)).get(), "tolist", nullptr));
}

Ref number_in(Tracer& tracer, PyObject* tensor) {
  PyObject* item[] = {nullptr, tensor};
  const TorchRuns runs(tracer);
  return tracer.recorder.call(graph::torch_types().tensor_item, item + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, {});
}

// Replaces the tensors that `is_number` selects, alone or in tuples, lists and slices, by their unbacked symbols. Null:
// there are none.
template <class IsNumber>
static Ref with_numbers(Tracer& tracer, PyObject* value, const IsNumber& is_number, bool in_slice = false) {
  if (graph::is_tensor(value)) {
    // Its size is read only then: it may be an unbacked symbol.
    const bool wanted = is_number(value, in_slice) && graph::is_unbacked_scalar(tracer.session, value);
    return wanted ? number_in(tracer, value) : Ref();
  }
  if (PySlice_Check(value)) {
    auto* slice = reinterpret_cast<PySliceObject*>(value);
    Ref parts[] = {with_numbers(tracer, slice->start, is_number, true),
                   with_numbers(tracer, slice->stop, is_number, true),
                   with_numbers(tracer, slice->step, is_number, true)};
    if (!parts[0] && !parts[1] && !parts[2]) return {};
    auto part = [&](size_t i, PyObject* before) { return parts[i] ? parts[i].get() : before; };
    return checked(PySlice_New(part(0, slice->start), part(1, slice->stop), part(2, slice->step)));
  }
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return {};
  Ref copy;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
    Ref number = with_numbers(tracer, PySequence_Fast_GET_ITEM(value, i), is_number);
    if (!number) continue;
    if (!copy) copy = checked(PySequence_List(value));
    check_status(PyList_SetItem(copy.get(), i, number.release()));
  }
  return copy && PyTuple_CheckExact(value) ? checked(PyList_AsTuple(copy.get())) : std::move(copy);
}

Ref slices_with_numbers(Tracer& tracer, Borrowed key) {
  if (!tracer.recorder.captures_scalars() || !graph::is_top_mode(tracer.recorder.mode())) return {};
  if (!PySlice_Check(key.get()) && !PyTuple_CheckExact(key.get())) return {};
  return with_numbers(tracer, key.get(), [](PyObject*, bool in_slice) { return in_slice; });
}

// Torch has called .item() on a tensor argument where it wants a scalar: `value=`, `alpha=`, a size. Recorded as an
// unbacked symbol, its value need not be known. False: the failure was another one.
static bool numbers_for_tensors(Tracer& t, const Call& call, std::vector<PyObject*>* given, std::vector<Ref>* numbers) {
  const fake::Failure* failure = t.session.failure();
  if (failure == nullptr || failure->kind != fake::FailureKind::DataDependent || t.function_modes->is_unwinding() ||
      t.is_transformed() || t.function_modes->is_active() ||
      (failure->op != "aten::_local_scalar_dense" && failure->op != "aten::item")) {
    return false;
  }
  given->assign(1, nullptr);
  given->insert(given->end(), call.arguments, call.arguments + call.count());
  const SavedError failed;
  if (t.recorder.captures_scalars()) {
    const c10::TensorImpl* asked = fake::last_asked();
    for (size_t i = 0; i < call.count(); i++) {
      Ref number = with_numbers(t, call.arguments[i], [&](PyObject* tensor, bool) {
        return fake::unpack(tensor).unsafeGetTensorImpl() == asked;
      });
      if (!number) continue;
      (*given)[i + 1] = number.get();
      numbers->push_back(std::move(number));
    }
    if (!numbers->empty()) return true;
  }
  const CapturingScalars capturing(t);
  for (size_t i = call.positional; i < call.count(); i++) {
    PyObject* const value = call.arguments[i];
    if (!graph::is_tensor(value) || fake::unpack(value).dim() != 0) continue;
    if (!graph::is_unbacked_scalar(t.session, value)) continue;
    numbers->push_back(number_in(t, value));
    (*given)[i + 1] = numbers->back().get();
  }
  return !numbers->empty();
}

static bool holds_numpy_integer(PyObject* value) {
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value))
    return lift::numpy_kind(value) == lift::NumpyKind::kInteger;
  PyObject** items = PySequence_Fast_ITEMS(value);
  return std::any_of(items, items + PySequence_Fast_GET_SIZE(value), holds_numpy_integer);
}

static void use_arguments(Tracer& t, const Call& call) {
  escape_all(t, call);
  for (size_t i = 0; i < call.count(); i++) {
    Borrowed argument = call.arguments[i];
    if (graph::is_generator(argument)) {
      t.generators->use(argument);
      continue;
    }
    if (!fake::is_symbol(argument) && !t.array_nodes->is_symbolic_array(argument))
      check_use(t, argument, "a torch call");
    check_order(t, argument, "a torch call");
    if (holds_identity(argument)) stop(report::Reason::object_id, "a torch call");
  }
}

namespace {

// What a torch call is, besides its arguments.
struct TorchCallee {
  std::string name;
  MemberFlags method;  // of torch.Tensor
  bool moded;          // under a user's torch-function mode, which must see the call unmodified
};

}  // namespace

// Calls on numpy arrays. Null: it is none.
static Ref call_on_arrays(Tracer& t, const TorchCallee& callee, const Call& call) {
  if (call.positional > 0 && t.array_nodes->is_symbolic_array(call.arguments[0]))
    return tensor_of_symbolic(t, call, callee.name);
  if (Ref tensor = tensor_of_array(t, call, callee.name)) return tensor;
  if (callee.moded || call.positional == 0 || !lift::is_array(call.arguments[call.positional - 1])) return {};
  return new_from_data(t, call, callee.method);
}

// Calls that are not one node as they stand. Null: it is none.
static Ref call_specially(Tracer& t, const TorchCallee& callee, const Call& call) {
  const auto& [name, method, moded] = callee;
  if (Ref empty = moded ? Ref() : modern_new(call, method)) return call_torch(t, call.of(empty));
  if (Ref made = moded ? Ref() : tensor_of_symbols(t, call)) return made;
  if (Ref made = moded ? Ref() : new_from_data(t, call, method)) return made;
  if (is_backward(t, call.callable)) return call_backward(t, call, name);
  if (is_engine(call.callable)) stop(report::Reason::backward, name);
  // A backward pass inside a transform would run the hook on fakes.
  if (t.is_transformed() && (method & TensorMember::kHook) != 0)
    stop(report::Reason::torch_call, name + " inside a transform");
  if (Ref handle = call.keyword_names ? Ref() : t.hooks->call(call)) return handle;
  check_tensor_method(t, call, method, name);
  if (Ref values = moded ? Ref() : list_of_values(t, call, method)) return values;
  return numpy_of_tensor(t, call);
}

// `as_given`: the call before numbers were replaced. `for_class`: see TorchFunctionMethods.
static Ref record_call(Tracer& t, const TorchCallee& callee, const Call& call, const Call& as_given,
                       Borrowed for_class) {
  t.session.clear_failure();
  try {
    const TorchRuns runs(t);
    if (!for_class) {
      return t.recorder.call(call.callable, call.arguments, call.positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                             call.keyword_names);
    }
    Ref result =
        t.recorder.call_for_class(for_class, call.callable, call.arguments, call.positional, call.keyword_names);
    t.torch_functions->for_class = for_class.get();  // reports to the caller that it was used
    return result;
  } catch (const PyError&) {
    if (!t.function_modes->is_unwinding() && is_interrupt(t)) stop_for_interrupt(t, callee.name);
    std::vector<PyObject*> again;
    std::vector<Ref> asked;
    if (!for_class && numbers_for_tensors(t, as_given, &again, &asked)) {
      PyErr_Clear();
      return call_torch(t, call.with(again.data() + 1));
    }
    stop_for_torch(t, callee.name);
  } catch (const std::exception& error) {
    PyErr_Clear();
    stop(report::Reason::torch_call, callee.name + ": " + error.what());
  }
}

Ref call_torch(Tracer& t, const Call& call) {
  Borrowed for_class = std::exchange(t.torch_functions->for_class, nullptr);
  use_arguments(t, call);
  if (t.torch_functions->is_overridden_call(call)) return t.torch_functions->call_overridden(call);
  const TorchCallee callee{native_name(call.callable), method_flags(call.callable), t.function_modes->is_active()};
  if (call.callable == Borrowed(functions().is_grad_enabled)) t.autograd_queries++;
  t.flags->use_for(callee.name);
  if (Ref made = call_on_arrays(t, callee, call)) return made;
  PyObject* const* const end = call.arguments + call.count();
  if (std::any_of(call.arguments, end, [&](PyObject* argument) {
        return fake::is_symbol(argument) && !t.backed->is_backed(argument) && t.lifter.known(argument) != nullptr;
      }))
    stop(report::Reason::unbacked_value, callee.name + " with an unspecialized scalar");
  std::vector<PyObject*> given;
  std::vector<Ref> numbers;
  Call recorded = call;
  if (use_numbers(t, call.arguments, call.count(), callee.name, &given, &numbers)) {
    // A Python function may test the types of its arguments.
    if (PyFunction_Check(call.callable.get()) && std::any_of(call.arguments, end, holds_numpy_integer))
      stop(report::Reason::native_call, callee.name + " with a numpy integer");
    recorded = call.with(given.data() + 1);
  }
  if (Ref made = call_specially(t, callee, recorded)) return made;
  return record_call(t, callee, recorded, call, for_class);
}

}  // namespace alternator::trace
