#include "dispatch/shape_specs.h"

#include "shapes/python_objects.h"

namespace alternator::dispatch {

using Reads = fake::BackedSymbols::Reads;

Ref spec_of(const backend::Backend& backend) {
  if (!backend.callable) return {};
  Ref spec = Ref::steal(PyObject_GetAttrString(backend.callable.get(), "shapes_spec"));
  if (!spec) PyErr_Clear();
  return spec && spec.get() != Py_None ? std::move(spec) : Ref();
}

void check_spec(const Compilation& compilation, const std::vector<Ref>& slots) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(compilation.function.get()));
  Ref values = checked(PyDict_New());
  for (size_t i = 0; i < slots.size(); i++) {
    if (!slots[i]) continue;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, static_cast<Py_ssize_t>(i));
    check_status(PyDict_SetItem(values.get(), name, slots[i].get()));
  }
  (void)checked(PyObject_CallMethod(compilation.shapes_spec.get(), "check", "O", values.get()));
}

static int64_t bound(PyObject* object, int64_t otherwise) {
  if (object == Py_None) return otherwise;
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PyError();
  return value;
}

void add_spec(const Compilation& compilation, lift::Dynamism* dynamism) {
  Ref rows = checked(PyObject_CallMethod(compilation.shapes_spec.get(), "symbols", nullptr));
  Ref items = checked(PySequence_Fast(rows.get(), "the symbols of a shapes_spec are a sequence"));
  auto& specified = dynamism->specified.emplace();
  dynamism->all = false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); i++) {
    const char* text;
    int dimension;
    PyObject *low, *high;
    if (PyArg_ParseTuple(PySequence_Fast_GET_ITEM(items.get(), i), "siOO", &text, &dimension, &low, &high) == 0)
      throw PyError();
    specified[text].push_back({dimension, {bound(low, shapes::kLowest), bound(high, shapes::kHighest)}});
  }
}

std::vector<backend::Assumption> spec_conditions(Borrowed spec, const Entry& entry) {
  const std::shared_ptr<fake::BackedSymbols> backed = entry.graph.program().backed;
  if (backed == nullptr || entry.guards->sizes() == nullptr) return {};
  Ref environment = shapes::python_environment({backed, &backed->environment});
  Ref rows = checked(PyList_New(0));
  for (size_t i = 0; i < entry.symbols.size() && i < backed->count(); i++) {
    const lift::SymbolFate& symbol = entry.symbols[i];
    const int dimension = symbol.reads == Reads::kSize ? symbol.dimension : -1;
    Ref expression = shapes::python_expression(environment, backed->environment.symbol(i));
    Ref row = checked(Py_BuildValue("(siO)", symbol.source.c_str(), dimension, expression.get()));
    check_status(PyList_Append(rows.get(), row.get()));
  }
  Ref made = checked(PyObject_CallMethod(spec.get(), "conditions", "OO", environment.get(), rows.get()));
  Ref items = checked(PySequence_Fast(made.get(), "the conditions of a shapes_spec are a sequence"));
  std::vector<backend::Assumption> conditions;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); i++)
    conditions.push_back({shapes::expression_of(environment, PySequence_Fast_GET_ITEM(items.get(), i)), "shapes_spec"});
  return conditions;
}

}  // namespace alternator::dispatch
