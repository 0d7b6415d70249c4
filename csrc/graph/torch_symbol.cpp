#include "graph/torch_symbol.h"

#include "graph/torch_types.h"

#include "fake/fake.h"

namespace alternator::graph {

namespace {

// Modules that are loaded now make no fakes.
struct Outside {
  fake::Inactive inactive;
};

Ref call_method(Borrowed object, const char* name) {
  return checked(PyObject_CallMethod(object.get(), name, nullptr));
}

}  // namespace

Ref make_shape_env() {
  const Outside outside;
  Ref type = torch_name("torch.fx.experimental.symbolic_shapes", "ShapeEnv");
  return checked(PyObject_CallNoArgs(type.get()));
}

Ref make_torch_symbol(Borrowed shape_env, bool is_float) {
  const Outside outside;
  Ref symbol = call_method(shape_env, is_float ? "create_unbacked_symfloat" : "create_unbacked_symint");
  // Bound by the node that makes it, which we know.
  Ref pending = checked(PyObject_GetAttrString(shape_env.get(), "pending_fresh_unbacked_symbols"));
  (void)call_method(pending, "clear");
  return symbol;
}

bool is_torch_symbol(Borrowed object) {
  const TorchTypes& torch = torch_types();
  PyTypeObject* type = object.type();
  return type == torch.sym_int || type == torch.sym_float || type == torch.sym_bool;
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

Ref unbacked_binding(Borrowed torch_symbol) {
  Ref node = checked(PyObject_GetAttrString(torch_symbol.get(), "node"));
  Ref name = checked(PyObject_GetAttrString(node.get(), "_expr"));
  Ref binding = checked(PyDict_New());
  Ref path = checked(PyTuple_New(0));
  check_status(PyDict_SetItem(binding.get(), name.get(), path.get()));
  return binding;
}

}  // namespace alternator::graph
