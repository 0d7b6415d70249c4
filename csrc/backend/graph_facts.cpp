#include "backend/graph_facts.h"

#include "backend/aot_compatibility.h"
#include "graph/record/torch_types.h"
#include "lift/sources/numpy_types.h"

#include <algorithm>

namespace alternator::backend {

namespace {

bool is_torch_module(Borrowed name) {
  return name && PyUnicode_Check(name.get()) && graph::is_of_torch(PyUnicode_AsUTF8(name.get()));
}

// Whether the node runs user or library code.
bool is_third_party(const graph::Node& node) {
  if (node.separate) return false;
  if (node.overridden || node.wrapped) return true;
  PyObject* callable = node.callable.get();
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type) || Py_IS_TYPE(callable, &PyWrapperDescr_Type) ||
      Py_IS_TYPE(callable, &_PyMethodWrapper_Type))
    return false;
  if (node.has(graph::kDifferentiates)) return true;  // tensor hooks run
  const SavedError outer;
  if (PyFunction_Check(callable))
    return !is_torch_module(PyDict_GetItemString(PyFunction_GET_GLOBALS(callable), "__name__"));
  if (!PyCFunction_Check(callable)) return true;
  PyObject* self = PyCFunction_GET_SELF(callable);
  return self != nullptr && PyType_Check(self) && !graph::is_native_of_torch(reinterpret_cast<PyTypeObject*>(self));
}

bool is_subclass(Borrowed value) {
  PyTypeObject* type = value.type();
  return type != graph::torch_types().tensor && PyType_IsSubtype(type, graph::torch_types().tensor) != 0 &&
         PyType_IsSubtype(type, graph::torch_types().parameter) == 0;
}

bool is_numpy_scalar(Borrowed value) {
  const lift::NumpyKind kind = lift::numpy_kind(value.get());
  return kind != lift::NumpyKind::kNone && kind != lift::NumpyKind::kBool;
}

}  // namespace

GraphFacts::GraphFacts(const graph::Program& program)
    : writes_to_inputs(program.may_write_to_inputs()),
      has_arrays(program.has_arrays),
      has_separate_segments(program.has_separate_segments()),
      makes_subclasses(program.makes_subclasses),
      has_unbacked_symbols(static_cast<bool>(program.shape_env)),
      has_runtime_asserts(program.asserts != 0) {
  computes_double = std::ranges::any_of(program.tensors, [](const graph::TensorRecord& record) {
    return record.fake.defined() && c10::toRealValueType(record.fake.scalar_type()) == at::kDouble;
  });
  for (const graph::Node& node : program.nodes) {
    if (!node.live) continue;
    draws_random = draws_random || (node.effects & graph::kRandom) != 0;
    mutates = mutates || (node.effects & graph::kMutates) != 0;
    acts = acts || (node.effects & graph::kActs) != 0;
    transforms = transforms || (node.effects & graph::kTransforms) != 0;
    differentiates = differentiates || node.has(graph::kDifferentiates);
    calls_third_party = calls_third_party || is_third_party(node);
  }
}

void GraphFacts::look_at_inputs(const graph::Program& program, Borrowed inputs, bool may_compile) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs.get()); i++) {
    Borrowed value = PyList_GET_ITEM(inputs.get(), i);
    takes_subclass = takes_subclass || is_subclass(value);
    takes_numpy_scalar = takes_numpy_scalar || is_numpy_scalar(value);
    takes_generator = takes_generator || graph::is_generator(value);
  }
  writes_shared_inputs = writes_what_inputs_share(program, inputs);
  if (may_compile) aot_incompatible = aot_incompatibility(program, inputs, writes_shared_inputs);
}

}  // namespace alternator::backend
