#include "backend/handoff.h"

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

Answer hand_over(const Backend& backend, const GraphRequest& request) {
  Ref result = checked(PyObject_CallOneArg(backend.callable.get(), request.object().get()));
  if (result.get() == Py_None) return {};
  if (result.get() == Py_NotImplemented) return {.wants_numpy_constants = true};
  PyObject* callable = nullptr;
  int boxed = 0;
  if (PyArg_ParseTuple(result.get(), "Op", &callable, &boxed) == 0) throw PyError();
  return {Ref::share(callable), boxed != 0};
}

}  // namespace alternator::backend
