#include "lift/sources/python_twins.h"

#include "py/lasting.h"

namespace alternator::lift {

// A Python function that makes such functions.
static Borrowed factory() {
  static constinit Lasting<PyObject*> made;
  return made.get([] {
    Ref globals = checked(PyDict_New());
    check_status(PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins()));
    const char* text = "lambda function: lambda *elements: function(*elements)";
    Ref code = checked(Py_CompileString(text, "<key>", Py_eval_input));
    return checked(PyEval_EvalCode(code.get(), globals.get(), globals.get())).release();
  });
}

static Borrowed code_of_stand_ins() {
  static constinit Lasting<PyObject*> code;
  return code.get([] { return Py_NewRef(PyFunction_GET_CODE(stand_in_for(Py_None).get())); });
}

Ref stand_in_for(Borrowed callable) { return checked(PyObject_CallOneArg(factory().get(), callable.get())); }

bool is_stand_in(Borrowed code) { return code == code_of_stand_ins(); }

Borrowed stands_in_for(Borrowed function) {
  if (!PyFunction_Check(function.get()) || !is_stand_in(PyFunction_GET_CODE(function.get()))) return {};
  return PyCell_GET(PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(function.get()), 0));
}

}  // namespace alternator::lift
