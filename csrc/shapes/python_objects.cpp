#include "shapes/python_objects.h"

#include "py/lasting.h"
#include "shapes/expression_text.h"

#include <new>

namespace alternator::shapes {

namespace {

struct ExpressionObject {
  PyObject_HEAD PyObject* owner;  // the EnvironmentObject, which owns the node
  Expression node;
};

PyTypeObject* environment_type;

Expression node_of(Borrowed self) { return self.as<ExpressionObject>()->node; }

Ref string(const std::string& text) {
  return checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

void expression_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_DECREF(reinterpret_cast<ExpressionObject*>(self)->owner);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* expression_repr(PyObject* self) {
  return guarded([&]() -> Ref { return string(text(node_of(self))); });
}

Py_hash_t expression_hash(PyObject* self) { return static_cast<Py_hash_t>(node_of(self)->id); }

PyObject* expression_compare(PyObject* self, PyObject* other, int operation) {
  if (Py_TYPE(other) != Py_TYPE(self) || (operation != Py_EQ && operation != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong(static_cast<long>((node_of(self) == node_of(other)) == (operation == Py_EQ)));
}

PyObject* expression_kind(PyObject* self, void*) { return PyUnicode_FromString(name(node_of(self)->kind)); }

PyObject* expression_sort(PyObject* self, void*) {
  const Sort sort = node_of(self)->sort();
  return PyUnicode_FromString(sort == Sort::kInteger ? "integer" : sort == Sort::kBoolean ? "boolean" : "float");
}

PyObject* expression_value(PyObject* self, void*) {
  const Node& node = *node_of(self);
  if (node.kind == Kind::kFloat) return PyFloat_FromDouble(node.real());
  return PyLong_FromLongLong(node.value);
}

PyObject* expression_hint(PyObject* self, void*) {
  const Node& node = *node_of(self);
  if (!node.has_hint) Py_RETURN_NONE;
  return guarded([&]() -> Ref { return python_number(node.sort(), node.hint); });
}

PyObject* expression_total(PyObject* self, void*) { return PyBool_FromLong(static_cast<long>(node_of(self)->total)); }

PyObject* expression_terms(PyObject* self, void*) {
  return guarded([&]() -> Ref {
    const Node& node = *node_of(self);
    Ref terms = checked(PyTuple_New(node.count));
    for (uint32_t index = 0; index < node.count; index++) {
      const Term& term = node.terms()[index];
      const Ref operand = python_expression(reinterpret_cast<ExpressionObject*>(self)->owner, term.node);
      PyTuple_SET_ITEM(terms.get(), index,
                       checked(Py_BuildValue("(OL)", operand.get(), static_cast<long long>(term.factor))).release());
    }
    return terms;
  });
}

PyObject* expression_text(PyObject* self, PyObject* names) {
  return guarded([&]() -> Ref {
    return string(text(node_of(self), [&](size_t symbol) {
      const Ref found = checked(PySequence_GetItem(names, static_cast<Py_ssize_t>(symbol)));
      const char* text = PyUnicode_AsUTF8(found.get());
      if (text == nullptr) throw PyError();
      return std::string(text);
    }));
  });
}

PyGetSetDef expression_getset[] = {
    {"kind", expression_kind, nullptr, "its kind, by name (csrc/shapes/kinds.def)", nullptr},
    {"sort", expression_sort, nullptr, "of its value: integer, boolean or float", nullptr},
    {"value", expression_value, nullptr, "of a constant; the number of a symbol; the constant part of a sum", nullptr},
    {"hint", expression_hint, nullptr, "its value while tracing, or None", nullptr},
    {"total", expression_total, nullptr, "whether it is defined for all values of its symbols", nullptr},
    {"terms", expression_terms, nullptr, "(operand, factor) of each", nullptr},
    {}};
PyMethodDef expression_methods[] = {
    {"text", expression_text, METH_O, "text(names): as Python code, with these names of the symbols"}, {}};
PyType_Slot expression_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(expression_dealloc)},
                                  {Py_tp_repr, reinterpret_cast<void*>(expression_repr)},
                                  {Py_tp_hash, reinterpret_cast<void*>(expression_hash)},
                                  {Py_tp_richcompare, reinterpret_cast<void*>(expression_compare)},
                                  {Py_tp_getset, expression_getset},
                                  {Py_tp_methods, expression_methods},
                                  {}};
PyType_Spec expression_spec = {"alternator.shapes.Expression", sizeof(ExpressionObject), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, expression_slots};

}  // namespace

PyTypeObject* python_expression_type() {
  static constinit Lasting<Ref> type;
  return type.get([] { return checked(PyType_FromSpec(&expression_spec)); }).as<PyTypeObject>();
}

void set_python_environment_type(PyTypeObject* type) { environment_type = type; }

Ref python_environment(std::shared_ptr<ShapeEnvironment> environment) {
  Ref object = checked(environment_type->tp_alloc(environment_type, 0));
  new (&object.as<EnvironmentObject>()->environment) std::shared_ptr<ShapeEnvironment>(std::move(environment));
  return object;
}

ShapeEnvironment& environment_of(Borrowed object) { return *object.as<EnvironmentObject>()->environment; }

Ref python_expression(Borrowed environment, Expression node) {
  if (node == nullptr) return Ref::share(Py_None);
  Ref object = checked(python_expression_type()->tp_alloc(python_expression_type(), 0));
  object.as<ExpressionObject>()->owner = Ref::share(environment).release();
  object.as<ExpressionObject>()->node = node;
  return object;
}

Expression expression_of(Borrowed environment, Borrowed object) {
  if (object.get() == Py_None) return nullptr;
  if (object.type() != python_expression_type() || object.as<ExpressionObject>()->owner != environment.get()) {
    PyErr_SetString(PyExc_TypeError, "an Expression of this Environment is wanted");
    throw PyError();
  }
  return node_of(object);
}

Ref python_number(Sort sort, Register value) {
  if (sort == Sort::kFloat) return checked(PyFloat_FromDouble(value.real));
  return checked(sort == Sort::kBoolean ? PyBool_FromLong(value.integer != 0) : PyLong_FromLongLong(value.integer));
}

}  // namespace alternator::shapes
