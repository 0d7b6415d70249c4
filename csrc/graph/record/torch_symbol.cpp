#include "graph/record/torch_symbol.h"

#include "graph/record/torch_types.h"
#include "graph/record/without_torch_functions.h"

#include "fake/fake.h"
#include "py/lasting.h"

#include <c10/core/impl/PythonDispatcherTLS.h>
#include <torch/csrc/PyInterpreter.h>

namespace alternator::graph {

namespace {

// Torch calls in its scope are not the program's: no mode and no session sees them.
struct Untraced {
  fake::Inactive inactive;
  WithoutTorchFunctions unseen;
};

Ref call_method(Borrowed object, const char* name) { return checked(PyObject_CallMethod(object.get(), name, nullptr)); }

}  // namespace

bool is_unbacked_scalar(const fake::Session& session, Borrowed object) {
  if (!is_tensor(object)) return false;
  const at::Tensor& tensor = fake::unpack(object.get());
  const at::ScalarType dtype = tensor.scalar_type();
  const bool is_number =
      at::isFloatingType(dtype) || (at::isIntegralType(dtype, /*includeBool=*/false) && dtype != at::kUInt64);
  return fake::is_fake(tensor) && is_number && tensor.sym_numel() == 1 && !session.known_value(tensor);
}

Ref make_torch_symbol(Borrowed shape_env, bool is_float) {
  const Untraced untraced{};
  Ref symbol = call_method(shape_env, is_float ? "create_unbacked_symfloat" : "create_unbacked_symint");
  return symbol;
}

bool is_torch_symbol(Borrowed object) {
  const TorchTypes& torch = torch_types();
  PyTypeObject* type = object.type();
  return type == torch.sym_int || type == torch.sym_float || type == torch.sym_bool;
}

PyTypeObject* class_of_torch_symbol(Borrowed torch_symbol) {
  const TorchTypes& torch = torch_types();
  if (torch_symbol.type() == torch.sym_bool) return &PyBool_Type;
  return torch_symbol.type() == torch.sym_float ? &PyFloat_Type : &PyLong_Type;
}

Ref known_number(Borrowed torch_symbol) {
  Ref node = checked(PyObject_GetAttrString(torch_symbol.get(), "node"));
  const TorchTypes& torch = torch_types();
  const char* asks = torch_symbol.type() == torch.sym_int     ? "maybe_as_int"
                     : torch_symbol.type() == torch.sym_float ? "maybe_as_float"
                                                              : "maybe_as_bool";
  Ref number = call_method(node, asks);
  return number.get() == Py_None ? Ref() : std::move(number);
}

// The result as torch's tracer would have it. Containers need not keep their types: only positions matter.
static Ref with_fake_tensors(fake::Session& session, Borrowed result) {
  PyObject* r = result.get();
  if (is_tensor(r)) return session.as_fake_tensor(as_tensor(r));
  if (!PyTuple_Check(r) && !PyList_Check(r)) return Ref::share(result);
  Ref items = checked(PyTuple_New(PySequence_Fast_GET_SIZE(r)));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(r); i++)
    PyTuple_SET_ITEM(items.get(), i, with_fake_tensors(session, PySequence_Fast_GET_ITEM(r, i)).release());
  return items;
}

// The usual case, without FakeTensors: the symbol is a size of the result. Null: it is not.
static Ref binding_of_size(Borrowed symbol, Borrowed tensor) {
  static constinit Lasting<std::pair<Ref, Ref>> classes;
  const auto& [method, item] = classes.get([] {
    return std::pair(torch_name("torch.fx.experimental.symbolic_shapes", "CallMethodKey"),
                     torch_name("torch.utils._pytree", "SequenceKey"));
  });
  const auto sizes = as_tensor(tensor).sym_sizes();
  for (size_t d = 0; d < sizes.size(); d++) {
    if (!sizes[d].is_heap_allocated()) continue;
    Ref size = checked(PyObject_CallMethod(tensor.get(), "size", "n", static_cast<Py_ssize_t>(d)));
    Ref node = checked(PyObject_GetAttrString(size.get(), "node"));
    Ref expression = checked(PyObject_GetAttrString(node.get(), "_expr"));
    const int is_it = PyObject_RichCompareBool(expression.get(), symbol.get(), Py_EQ);
    check_status(is_it);
    if (is_it == 0) continue;
    Ref path =
        checked(Py_BuildValue("(NN)", checked(PyObject_CallFunction(method.get(), "s", "size")).release(),
                              checked(PyObject_CallFunction(item.get(), "n", static_cast<Py_ssize_t>(d))).release()));
    Ref bindings = checked(PyDict_New());
    check_status(PyDict_SetItem(bindings.get(), symbol.get(), path.get()));
    return bindings;
  }
  return {};
}

Ref new_bindings(fake::Session& session, Borrowed result) {
  Borrowed shape_env = session.shape_env();
  Ref pending = checked(PyObject_GetAttrString(shape_env.get(), "pending_fresh_unbacked_symbols"));
  const Py_ssize_t count = PyObject_Length(pending.get());
  if (count < 0) throw PyError();
  if (count == 0) return {};
  const Untraced untraced{};
  if (result.get() == Py_None) {  // x[i] = y: the symbols that the call created for itself are gone with it
    for (const char* names : {"pending_fresh_unbacked_symbols", "ignorable_fresh_unbacked_symbols"})
      call_method(checked(PyObject_GetAttrString(shape_env.get(), names)), "clear").reset();
    return {};
  }
  if (count == 1 && is_tensor(result)) {
    if (Ref binding = binding_of_size(PyList_GET_ITEM(pending.get(), 0), result)) {
      for (const char* names : {"pending_fresh_unbacked_symbols", "ignorable_fresh_unbacked_symbols"})
        call_method(checked(PyObject_GetAttrString(shape_env.get(), names)), "clear").reset();
      return binding;
    }
  }
  static constinit Lasting<Ref> function;
  const Ref& compute =
      function.get([] { return torch_name("torch.fx.experimental.symbolic_shapes", "compute_unbacked_bindings"); });
  Ref theirs = with_fake_tensors(session, result);
  Ref bindings = checked(PyObject_CallFunctionObjArgs(compute.get(), shape_env.get(), theirs.get(), nullptr));
  return bindings.get() == Py_None ? Ref() : std::move(bindings);
}

size_t assert_count(Borrowed shape_env) {
  Ref count = checked(PyObject_GetAttrString(shape_env.get(), "num_deferred_runtime_asserts"));
  return PyLong_AsSize_t(count.get());
}

using c10::impl::PythonDispatcherTLS;

SymbolicKernels::SymbolicKernels(bool symbolic) : before_(PythonDispatcherTLS::get_state()) {
  if (symbolic) PythonDispatcherTLS::set_state(getPyInterpreter());
}
SymbolicKernels::~SymbolicKernels() { PythonDispatcherTLS::set_state(before_); }

}  // namespace alternator::graph
