// torch.compiler.assume_constant_result: a function's result is the one that it returned while tracing.
#include "trace/calls/constant_functions.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/record/recording_mode.h"
#include "lift/sources/numpy_types.h"

#include <algorithm>

namespace alternator::trace {

namespace {

using Given = std::vector<PyObject*>;

// An argument that is part of the result keeps the value that it had then, not that of a later call. A tensor that
// requires grad stays itself.
Ref snapshot(Borrowed value, const Given& arguments);

Ref snapshot_tensor(Borrowed value, const Given& arguments) {
  const at::Tensor& tensor = fake::unpack(value.get());
  const bool given = std::find(arguments.begin(), arguments.end(), value.get()) != arguments.end();
  if (!given || value.type() != reinterpret_cast<PyTypeObject*>(THPVariableClass) || tensor.requires_grad())
    return Ref::share(value);
  return checked(THPVariable_Wrap(tensor.clone()));
}

Ref snapshot_tuple(Borrowed value, const Given& arguments) {
  PyObject* tuple = value.get();
  Ref copy = checked(PyTuple_New(PyTuple_GET_SIZE(tuple)));
  bool same = true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    PyTuple_SET_ITEM(copy.get(), i, snapshot(PyTuple_GET_ITEM(tuple, i), arguments).release());
    same = same && PyTuple_GET_ITEM(copy.get(), i) == PyTuple_GET_ITEM(tuple, i);
  }
  return same ? Ref::share(value) : std::move(copy);
}

Ref snapshot_list(Borrowed value, const Given& arguments) {
  Ref elements = checked(PyList_AsTuple(value.get()));
  Ref now = snapshot_tuple(elements, arguments);
  return now == elements ? Ref::share(value) : checked(PySequence_List(now.get()));
}

Ref snapshot_dict(Borrowed value, const Given& arguments) {
  Ref copy = checked(PyDict_Copy(value.get()));
  bool same = true;
  PyObject *key, *held;
  for (Py_ssize_t position = 0; PyDict_Next(value.get(), &position, &key, &held);) {
    Ref now = snapshot(held, arguments);
    same = same && now.get() == held;
    check_status(PyDict_SetItem(copy.get(), key, now.get()));
  }
  return same ? Ref::share(value) : std::move(copy);
}

Ref snapshot(Borrowed value, const Given& arguments) {
  if (graph::is_tensor(value)) return snapshot_tensor(value, arguments);
  if (PyTuple_CheckExact(value.get())) return snapshot_tuple(value, arguments);
  if (PyList_CheckExact(value.get())) return snapshot_list(value, arguments);
  if (PyDict_CheckExact(value.get())) return snapshot_dict(value, arguments);
  return Ref::share(value);
}

}  // namespace

// It runs once, now, on the real arguments: pre-existing objects, and what the call has computed so far.
Ref call_constant(Tracer& t, const Call& call) {
  if (t.functorch->transformed) stop(report::Reason::native_call, "a constant function inside of a transform");
  t.function_modes->forbid("a constant function");
  // It sees the values of this call only, and is not to run again for others.
  if (t.backed->any()) t.recorder.on_silence();
  Given real(call.count() + 1);
  std::vector<Ref> computed;
  Ref result;
  {
    const Paused paused(t);
    const lift::NumpyErrorsAsBefore as_before;
    const fake::Inactive real_tensors;
    const graph::WithoutTopMode unrecorded;
    for (size_t i = 0; i < call.count(); i++) {
      Borrowed argument = call.arguments[i];
      lift::Known* known = t.lifter.known(argument);
      real[i + 1] = known != nullptr ? known->original.get() : argument.get();
      if (graph::is_tensor(argument)) {
        try {
          computed.push_back(t.recorder.value_of(argument));
        } catch (const PyError&) {
          stop_for_torch(t, "the argument of a constant function");
        }
        if (!computed.back())
          stop(report::Reason::native_call, "a constant function after a mutation or a random number");
        real[i + 1] = computed.back().get();
      } else if (known == nullptr && !lift::is_plain(argument.get())) {
        stop(report::Reason::native_call, "a constant function on an object that the function makes");
      }
    }
    result = checked(call.with(real.data() + 1).run());
    result = snapshot(result, real);
  }
  // In a tuple that guards reference strongly: they reference tensors and objects weakly.
  Ref holder = checked(PyTuple_Pack(1, result.get()));
  return t.lifter.lift(result, t.tree->child(t.lifter.constant(holder), lift::Access::kIndex, {}, 0));
}

}  // namespace alternator::trace
