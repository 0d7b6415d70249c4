#include "py/error.h"

#include <cxxabi.h>
#include <unistd.h>

#include <exception>
#include <new>

namespace alternator {

void internal_error(const char* condition, const char* file, int line, const std::string& message) {
  std::string text = "alternator: internal error: ";
  text += message.empty() ? condition : message + " (" + condition + ")";
  throw InternalError(text + " at " + file + ":" + std::to_string(line));
}

namespace {

// Sets a SystemError of our own. An exception that is already set becomes its cause.
void set_system_error(const char* message) {
  PyObject *type, *cause, *traceback;
  PyErr_Fetch(&type, &cause, &traceback);
  if (type != nullptr) {
    PyErr_NormalizeException(&type, &cause, &traceback);
    if (traceback != nullptr) PyException_SetTraceback(cause, traceback);
  }
  Ref owned_type = Ref::steal(type), owned_traceback = Ref::steal(traceback), owned_cause = Ref::steal(cause);

  PyErr_SetString(PyExc_SystemError, message);
  if (!owned_cause) return;
  PyObject* error;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  PyException_SetContext(error, Ref::share(owned_cause).release());
  PyException_SetCause(error, owned_cause.release());
  PyErr_Restore(type, error, traceback);
}

}  // namespace

// A forced unwind carries no exception object: the caught reference is null, and is never dereferenced.
[[gnu::no_sanitize("null")]] void set_python_error() noexcept {
  try {
    throw;
  } catch (const PyError&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "alternator: error without an exception");
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    set_system_error(error.what());
  } catch (const abi::__forced_unwind&) {
    // The interpreter is shutting down and unwinds this daemon thread, which no longer holds the GIL. The unwinding
    // cannot pass through a C slot, and no Python API may be called: wait for the process to exit.
    for (;;) pause();
  } catch (...) {
    set_system_error("alternator: an unknown C++ exception");
  }
}

}  // namespace alternator
