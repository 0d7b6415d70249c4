#include "backend/handoff.h"

#include "shapes/python_objects.h"

namespace alternator::backend {

Backend::Backend(Borrowed given) : callable(Ref::share(given)) {
  Ref asked = Ref::steal(PyObject_GetAttrString(given.get(), "traits"));
  if (!asked) {
    PyErr_Clear();  // any callable
    return;
  }
  int compiles = 0, is_torch = 0, whole = 0, last = 0;
  if (PyArg_ParseTuple(asked.get(), "pppp", &compiles, &is_torch, &whole, &last) == 0) throw PyError();
  traits = {compiles != 0, is_torch != 0, whole != 0, last != 0};
}

bool Backend::takes_numpy_scalars() const {
  if (!callable) return true;
  Ref takes = Ref::steal(PyObject_GetAttrString(callable.get(), "takes_numpy_scalars"));
  if (!takes) PyErr_Clear();
  return takes.get() == Py_True;
}

static Assumption assumption_of(const GraphRequest& request, PyObject* pair) {
  PyObject* condition;
  const char* origin;
  if (PyArg_ParseTuple(pair, "Os", &condition, &origin) == 0) throw PyError();
  return {shapes::expression_of(request.environment(), condition), origin};
}

Answer hand_over(const Backend& backend, const GraphRequest& request) {
  Ref result = checked(PyObject_CallOneArg(backend.callable.get(), request.object().get()));
  if (result.get() == Py_None) return {};
  if (result.get() == Py_NotImplemented) return {.wants_numpy_constants = true};
  Answer answer;
  if (PyList_Check(result.get())) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(result.get()); i++) {
      const unsigned long number = PyLong_AsUnsignedLong(PyList_GET_ITEM(result.get(), i));
      if (PyErr_Occurred()) throw PyError();
      answer.specialize.push_back(static_cast<uint32_t>(number));
    }
    return answer;
  }
  PyObject* callable = nullptr;
  PyObject* conditions = nullptr;
  int boxed = 0;
  if (PyArg_ParseTuple(result.get(), "Op|O", &callable, &boxed, &conditions) == 0) throw PyError();
  answer.callable = Ref::share(callable);
  answer.boxed = boxed != 0;
  if (conditions == nullptr) return answer;
  Ref items = checked(PySequence_Fast(conditions, "the conditions of a graph are a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); i++)
    answer.conditions.push_back(assumption_of(request, PySequence_Fast_GET_ITEM(items.get(), i)));
  return answer;
}

}  // namespace alternator::backend
