#include "lift/sources/decimal_values.h"

#include "cpython/decimal_layout.h"
#include "py/import.h"
#include "py/lasting.h"

namespace alternator::lift {

namespace {

const DecimalTypes* load() {
  try {
    Ref module = import_module("_decimal");
    auto named = [&](const char* name) { return checked(PyObject_GetAttrString(module.get(), name)).release(); };
    auto type = [&](const char* name) { return reinterpret_cast<PyTypeObject*>(named(name)); };
    // Otherwise the context is thread-local, and a trace could have none of its own.
    if (!truth(Ref::steal(named("HAVE_CONTEXTVAR"))).value()) return nullptr;
    auto* types = new DecimalTypes{
        type("Decimal"),       type("Context"),
        named("getcontext"),   named("setcontext"),
        named("localcontext"), {named("DefaultContext"), named("BasicContext"), named("ExtendedContext")}};
    return cpython::has_known_decimals(types->decimal, types->context) ? types : nullptr;
  } catch (const PyError&) {
    PyErr_Clear();  // built without it
    return nullptr;
  }
}

}  // namespace

const DecimalTypes* decimal_types() {
  static constinit Lasting<const DecimalTypes*> types;
  return types.get(load);
}

bool is_about_decimals(PyObject* object) {
  const DecimalTypes* types = decimal_types();
  if (types == nullptr) return false;
  PyTypeObject* type = PyType_Check(object) ? reinterpret_cast<PyTypeObject*>(object) : Py_TYPE(object);
  return type == types->decimal || type == types->context ||
         (PyType_Check(object) &&
          (PyType_IsSubtype(type, types->decimal) != 0 || PyType_IsSubtype(type, types->context) != 0));
}

Ref parts_of_context(Borrowed context) {
  Ref reduced = checked(PyObject_CallMethod(context.get(), "__reduce__", nullptr));
  PyObject* arguments = PyTuple_GET_ITEM(reduced.get(), 1);
  Ref parts = checked(PyTuple_New(kTrapsPart + 1));
  for (Py_ssize_t i = 0; i < kFlagsPart; i++)
    PyTuple_SET_ITEM(parts.get(), i, Ref::share(PyTuple_GET_ITEM(arguments, i)).release());
  const cpython::Signals signals = cpython::signals_of(context.get());
  PyTuple_SET_ITEM(parts.get(), kFlagsPart, checked(PyLong_FromUnsignedLong(signals.flags)).release());
  PyTuple_SET_ITEM(parts.get(), kTrapsPart, checked(PyLong_FromUnsignedLong(signals.traps)).release());
  return parts;
}

static PyObject* set_signals(PyObject*, PyObject* arguments) {
  PyObject* context;
  unsigned int flags, traps;
  if (PyArg_ParseTuple(arguments, "O!(II)", decimal_types()->context, &context, &flags, &traps) == 0) return nullptr;
  cpython::set_signals(context, {flags, traps});
  Py_RETURN_NONE;
}

PyObject* signal_setter() {
  static constinit Lasting<PyObject*> function;
  return function.get([] {
    static PyMethodDef method = {"set_signals", set_signals, METH_VARARGS, nullptr};
    return checked(PyCFunction_New(&method, nullptr)).release();
  });
}

}  // namespace alternator::lift
