#include "interpreter/suspended.h"

#include "interpreter/capture.h"
#include "py/error.h"

namespace alternator {

const char* describe_generator(Borrowed generator, Suspended* found) {
  auto* g = generator.as<PyGenObject>();
  PyCodeObject* code = cpython::code_of_generator(g);
  found->code = Ref::share(code);
  found->name = Ref::share(g->gi_name);
  found->qualified_name = Ref::share(g->gi_qualname);
  found->state = g->gi_frame_state;
  if (g->gi_frame_state == FRAME_CLEARED || g->gi_frame_state == FRAME_COMPLETED) return nullptr;
  if (g->gi_frame_state == FRAME_EXECUTING) return "it is running";
  if (g->gi_exc_state.exc_value != nullptr && g->gi_exc_state.exc_value != Py_None)
    return "it is handling an exception";
  cpython::Frame* frame = cpython::frame_of_generator(g);
  found->function = Ref::share(cpython::function_of(frame));
  found->next = static_cast<int>(cpython::next_instruction(frame) - cpython::first_instruction(code));
  for (int i = 0; i < code->co_nlocalsplus; i++) found->locals.push_back(Ref::share(frame->localsplus[i]));
  for (PyObject** value = cpython::stack_base(frame); value < cpython::stack_pointer(frame); value++)
    found->stack.push_back(Ref::share(*value));
  return nullptr;
}

Ref make_generator(Borrowed code, Borrowed name, Borrowed qualified_name) {
  // Any function with this code will do: its frame runs up to RETURN_GENERATOR only, and is then cleared.
  Ref globals = checked(PyDict_New());
  check_status(PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins()));
  Ref function = checked(PyFunction_New(code.get(), globals.get()));
  if (const int free_variables = code.as<PyCodeObject>()->co_nfreevars) {
    Ref closure = checked(PyTuple_New(free_variables));
    for (int i = 0; i < free_variables; i++) PyTuple_SET_ITEM(closure.get(), i, checked(PyCell_New(nullptr)).release());
    check_status(PyFunction_SetClosure(function.get(), closure.get()));
  }
  Ref generator = make_cleared_generator(function, code);
  auto* g = generator.as<PyGenObject>();
  Ref old_name = Ref::steal(std::exchange(g->gi_name, Py_NewRef(name.get())));
  Ref old_qualified_name = Ref::steal(std::exchange(g->gi_qualname, Py_NewRef(qualified_name.get())));
  return generator;
}

void fill_generator(Borrowed generator, Borrowed function, int next, int state, PyObject* const* values, size_t count) {
  auto* g = generator.as<PyGenObject>();
  PyCodeObject* code = cpython::code_of_generator(g);
  const bool revived =
      cpython::revive_generator(g, function.as<PyFunctionObject>(), cpython::first_instruction(code) + next);
  ALT_CHECK(revived, "a generator that is to be filled has not finished");
  cpython::Frame* frame = cpython::frame_of_generator(g);
  for (size_t i = 0; i < count; i++) frame->localsplus[i] = Py_XNewRef(values[i]);
  cpython::set_stack_pointer(frame, frame->localsplus + count);
  g->gi_frame_state = static_cast<int8_t>(state);
}

}  // namespace alternator
