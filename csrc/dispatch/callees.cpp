#include "dispatch/callees.h"

#include "dispatch/compiled_call.h"
#include "graph/record/torch_types.h"
#include "trace/calls/markers.h"
#include "trace/core/user_lines.h"

#include <string_view>

namespace alternator::dispatch {

namespace {

constexpr size_t kMostCallees = 4096;
constexpr Py_ssize_t kMostElements = 16;

// The directory of a loaded module's file, with a trailing slash.
std::string directory_of(const char* module) {
  const SavedError outer;
  PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  Ref file = found != nullptr ? Ref::steal(PyObject_GetAttrString(found, "__file__")) : Ref();
  const char* text = file && PyUnicode_Check(file.get()) ? PyUnicode_AsUTF8(file.get()) : nullptr;
  const std::string path = text != nullptr ? text : "";
  const size_t slash = path.rfind('/');
  PyErr_Clear();
  return slash == std::string::npos ? "\n" : path.substr(0, slash + 1);
}

// Of torch's code, only nn modules and optimizers are worth compiling. Tracers and compilers must run their frames
// eagerly.
Callee::Kind kind_in_torch(std::string_view file) {
  for (std::string_view open : {"nn/modules/", "nn/functional.py", "optim/"}) {
    if (file.starts_with(open)) return Callee::Kind::kCompile;
  }
  if (file == "_dynamo/external_utils.py" || file == "_dynamo/decorators.py") return Callee::Kind::kSkip;
  for (std::string_view shut :
       {"_dynamo/", "_inductor/", "_functorch/", "_export/", "export/", "fx/", "jit/", "onnx/", "_higher_order_ops/",
        "_subclasses/", "_decomp/", "_refs/", "_prims/", "package/", "profiler/", "autograd/profiler"}) {
    if (file.starts_with(shut)) return Callee::Kind::kSkipAll;
  }
  return Callee::Kind::kSkip;
}

Callee::Kind kind_of(PyCodeObject* code) {
  static const std::string torch = directory_of("torch"), own = directory_of("alternator");
  const char* text = PyUnicode_AsUTF8(code->co_filename);
  if (text == nullptr) return PyErr_Clear(), Callee::Kind::kSkip;
  const std::string_view file = text;
  if (file.starts_with(torch)) return kind_in_torch(file.substr(torch.size()));
  if (file.starts_with("<frozen importlib")) return Callee::Kind::kSkipAll;  // module bodies run once, at import
  if (file.starts_with(own) || trace::is_librarys(code)) return Callee::Kind::kSkip;
  // A finalizer's result is discarded.
  return PyUnicode_CompareWithASCIIString(code->co_name, "__del__") == 0 ? Callee::Kind::kSkip : Callee::Kind::kCompile;
}

bool leads_to_tensor(PyObject* value, int depth) {
  if (value == nullptr) return false;
  if (graph::is_tensor(value)) return true;
  if (depth > 0 && PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < std::min(PyTuple_GET_SIZE(value), kMostElements); i++) {
      if (leads_to_tensor(PyTuple_GET_ITEM(value, i), depth - 1)) return true;
    }
    return false;
  }
  if (depth > 0 && PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < std::min(PyList_GET_SIZE(value), kMostElements); i++) {
      if (leads_to_tensor(PyList_GET_ITEM(value, i), depth - 1)) return true;
    }
    return false;
  }
  if (depth > 0 && PyDict_Check(value)) {
    PyObject *key, *held;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; i < kMostElements && PyDict_Next(value, &position, &key, &held); i++) {
      if (leads_to_tensor(held, depth - 1)) return true;
    }
    return false;
  }
  // Modules, and any object with attributes. Callees that turn out to be graphless are skipped after a few calls.
  PyTypeObject* type = Py_TYPE(value);
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !PyType_Check(value) && type->tp_dictoffset != 0;
}

bool names_torch(Borrowed function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  PyObject* globals = PyFunction_GET_GLOBALS(function.get());
  const SavedError outer;
  for (Py_ssize_t i = 0; PyDict_CheckExact(globals) && i < PyTuple_GET_SIZE(code->co_names); i++) {
    PyObject* value = PyDict_GetItemWithError(globals, PyTuple_GET_ITEM(code->co_names, i));
    PyErr_Clear();
    if (value == nullptr) continue;
    if (!PyModule_Check(value)) {
      if (leads_to_tensor(value, 1)) return true;
      continue;
    }
    const char* name = PyModule_GetName(value);
    PyErr_Clear();
    if (name != nullptr && graph::is_of_torch(name)) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<Callee> Family::callee(cpython::Frame* frame) {
  PyCodeObject* code = cpython::code_of(frame);
  if (auto found = callees.find(code); found != callees.end()) return found->second;
  if (callees.size() >= kMostCallees) return nullptr;
  auto made = std::make_shared<Callee>();
  made->code = Ref::share(code);
  made->kind = kind_of(code);
  made->uses_torch = made->kind == Callee::Kind::kCompile && names_torch(cpython::function_of(frame));
  callees[code] = made;
  return made;
}

bool is_plain_start(PyThreadState* ts, cpython::Frame* frame) {
  constexpr int kOthers = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
  constexpr int kFunction = CO_OPTIMIZED | CO_NEWLOCALS;
  PyCodeObject* code = cpython::code_of(frame);
  return (code->co_flags & (kOthers | kFunction)) == kFunction && !cpython::owned_by_generator(frame) &&
         cpython::next_instruction(frame) == cpython::first_instruction(code) && !cpython::is_micro(code) &&
         !cpython::tracing_active(ts) && ts->tracing == 0 && !cpython::stack_exhausted(ts);
}

bool may_reach_tensor(cpython::Frame* frame, const Callee& callee) {
  if (callee.uses_torch) return true;
  PyCodeObject* code = cpython::code_of(frame);
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    if (leads_to_tensor(frame->localsplus[i], 2)) return true;
  }
  PyObject* closure = PyFunction_GET_CLOSURE(reinterpret_cast<PyObject*>(cpython::function_of(frame)));
  for (Py_ssize_t i = 0; closure != nullptr && i < PyTuple_GET_SIZE(closure); i++) {
    if (leads_to_tensor(PyCell_GET(PyTuple_GET_ITEM(closure, i)), 2)) return true;
  }
  return false;
}

static PyObject* attribute(Borrowed function, const char* name) {
  PyObject* dict = function.as<PyFunctionObject>()->func_dict;
  const SavedError outer;
  PyObject* found = dict != nullptr ? PyDict_GetItemString(dict, name) : nullptr;
  PyErr_Clear();
  return found;
}

Disabled disabled_by(Borrowed function) {
  PyObject* dict = function.as<PyFunctionObject>()->func_dict;
  if (dict == nullptr || PyDict_GET_SIZE(dict) == 0) return Disabled::kNone;
  if (trace::mark_of(function) != trace::Mark::kDisabled) return Disabled::kNone;
  return attribute(function, "_torchdynamo_disable_recursive") == Py_True ? Disabled::kAll : Disabled::kItself;
}

PyCodeObject* code_behind(Borrowed function) {
  PyObject* behind = attribute(function, "_torchdynamo_orig_callable");
  if (behind != nullptr && PyMethod_Check(behind)) behind = PyMethod_GET_FUNCTION(behind);
  if (behind == nullptr || !PyFunction_Check(behind)) return nullptr;
  PyObject* code = PyFunction_GET_CODE(behind);
  return code != PyFunction_GET_CODE(function.get()) ? reinterpret_cast<PyCodeObject*>(code) : nullptr;
}

}  // namespace alternator::dispatch
