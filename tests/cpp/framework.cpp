// The module of the framework: tests() lists the registered tests, run(name) runs one.
#include "framework.h"

#include <string_view>

namespace alternator::testing {

std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

void fail(const char* file, int line, const std::string& message) {
  throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + message);
}

std::string take_python_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == nullptr) return "";
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref owned_type = Ref::steal(type), owned_value = Ref::steal(value), owned_traceback = Ref::steal(traceback);
  std::string text = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  Ref message = Ref::steal(PyObject_Str(value));
  const char* words = message ? PyUnicode_AsUTF8(message.get()) : nullptr;
  if (words == nullptr) {
    PyErr_Clear();
    words = "(no message)";
  }
  return text + ": " + words;
}

namespace {

// Empty if the test passed.
std::string run_body(const Test& test) {
  std::string what;
  try {
    test.body();
    what = take_python_error();
    if (!what.empty()) what = "the test left a Python exception set: " + what;
  } catch (const PyError&) {
    what = "an unexpected Python exception: " + take_python_error();
  } catch (const Failure& failure) {
    what = failure.what();
    PyErr_Clear();
  } catch (const std::exception& error) {
    what = std::string("an unexpected C++ exception: ") + error.what();
    PyErr_Clear();
  }
  return what;
}

PyObject* list_tests(PyObject*, PyObject*) {
  return guarded([]() -> Ref {
    Ref list = checked(PyList_New(0));
    for (const Test& test : registry()) {
      Ref entry = checked(Py_BuildValue("(ssi)", test.name, test.file, test.line));
      check_status(PyList_Append(list.get(), entry.get()));
    }
    return list;
  });
}

PyObject* run_test(PyObject*, PyObject* argument) {
  return guarded([&]() -> Ref {
    const char* name = PyUnicode_AsUTF8(argument);
    if (name == nullptr) throw PyError();
    for (const Test& test : registry()) {
      if (std::string_view(test.name) != name) continue;
      std::string what = run_body(test);
      return checked(PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace"));
    }
    PyErr_Format(PyExc_KeyError, "there is no test %R", argument);
    throw PyError();
  });
}

PyMethodDef methods[] = {
    {"tests", list_tests, METH_NOARGS, "The registered tests as (name, file, line)."},
    {"run", run_test, METH_O, "Runs one test; returns what failed, or an empty string."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, ALT_TEST_MODULE, "C++ unit tests.", -1, methods};

}  // namespace
}  // namespace alternator::testing

#define ALT_INIT_NAME_2(name) PyInit_##name
#define ALT_INIT_NAME(name) ALT_INIT_NAME_2(name)
PyMODINIT_FUNC ALT_INIT_NAME(ALT_TEST_MODULE_NAME)() { return PyModule_Create(&alternator::testing::module); }
