#include "cpython/version.h"

#include "lift/sources/finalization.h"

#include "cpython/frame_objects.h"
#include "cpython/objects.h"
#include "lift/sources/plain.h"
#include "lift/sources/tensor_spec.h"
#include "py/names.h"

#include <frameobject.h>

#include <string_view>
#include <unordered_set>

namespace alternator::lift {

namespace {

constexpr int kDeep = 2;        // depth of the search through objects that have other owners
constexpr int kMost = 1 << 13;  // visited objects; beyond it, no more are searched
constexpr int kDeepest = 1000;  // nesting of uniquely owned objects

bool is_suspended_in_a_block(PyObject* object) {
  if (!PyGen_CheckExact(object) && !PyCoro_CheckExact(object)) return false;
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  return cpython::is_suspended(generator) &&
         PyBytes_GET_SIZE(cpython::code_of(cpython::frame_of_generator(generator))->co_exceptiontable) > 0;
}

// The function that a callback finally calls, as far as it can be found without running code.
Ref called_by(PyObject* callback) {
  Ref called = Ref::share(callback);
  const auto function_of = [](PyObject* object) {
    PyObject* function = PyObject_GetAttr(object, names::func);
    if (function == nullptr) PyErr_Clear();
    return function != nullptr ? Ref::steal(function) : Ref::share(object);
  };
  if (Py_IS_TYPE(callback, known_types().finalize)) {
    PyObject* registry = _PyType_Lookup(known_types().finalize, names::_registry);
    if (registry == nullptr || !PyDict_CheckExact(registry)) return called;
    PyObject* info = PyDict_GetItemWithError(registry, callback);
    if (info == nullptr) return called;  // it has been called, or it was made in the trace
    called = function_of(info);
  }
  if (Py_IS_TYPE(called.get(), known_types().partial)) called = function_of(called.get());
  if (PyMethod_Check(called.get())) called = Ref::share(PyMethod_GET_FUNCTION(called.get()));
  return called;
}

// Torch's own callbacks only drop caches for dead objects. A callback of the program may be a torch function too, but
// not a private one.
bool is_torch_cleanup(PyObject* callback) {
  Ref called = called_by(callback);
  if (!PyFunction_Check(called.get())) return false;
  PyObject* module = called.as<PyFunctionObject>()->func_module;
  const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  if (name == nullptr) return PyErr_Clear(), false;
  return std::string_view(name).starts_with(called.get() == callback ? "torch." : "torch._");
}

// Objects that live as long as the process.
bool is_lasting(PyObject* object) {
  return PyType_Check(object) || PyModule_Check(object) || PyCode_Check(object) || PyCFunction_Check(object) ||
         is_plain(object);
}

// Only for objects that are not is_lasting().
bool has_watcher(PyObject* object) {
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) == 0) return false;
  auto* reference = *reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; reference != nullptr; reference = reference->wr_next) {
    if (reference->wr_callback != nullptr && !is_torch_cleanup(reference->wr_callback)) return true;
  }
  return false;
}

class Search {
 public:
  explicit Search(const std::function<bool(PyObject*)>& is_shared) : is_shared_(is_shared) {}

  // `ends`: the path to here has no other known owner.
  bool finds(PyObject* object, int depth, bool ends) {
    if (object == nullptr || is_lasting(object)) return false;
    if (is_observably_finalized_itself(object)) return true;
    ends = ends && has_one_holder(object);
    if ((depth <= 0 && !ends) || --left_ <= 0 || nested_ > kDeepest) return false;
    if (is_shared_ && !seen_.insert(object).second) return false;  // paths of reference count 1 have no cycles
    nested_++;
    const bool found = finds_inside(object, depth - 1, ends);
    nested_--;
    return found;
  }

 private:
  bool has_one_holder(PyObject* object) const { return is_shared_ ? !is_shared_(object) : Py_REFCNT(object) == 1; }

  bool finds_inside(PyObject* object, int depth, bool ends) {
    if (is_tensor(object)) return false;
    if (PyExceptionInstance_Check(object)) return is_kept_by(object);
    if (PyFunction_Check(object)) return ends && is_bound_by(reinterpret_cast<PyFunctionObject*>(object));
    if (!is_looked_into(object)) return false;
    struct Visit {
      Search* search;
      int depth;
      bool ends;
    } visit{this, depth, ends};
    return Py_TYPE(object)->tp_traverse(
               object,
               [](PyObject* part, void* state) {
                 auto* visit = static_cast<Visit*>(state);
                 return visit->search->finds(part, visit->depth, visit->ends) ? 1 : 0;
               },
               &visit) != 0;
  }

  static bool is_looked_into(PyObject* object) {
    if (PyObject_IS_GC(object) == 0) return false;
    if ((Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return true;
    return PyList_Check(object) || PyTuple_Check(object) || PyDict_Check(object) || PyAnySet_Check(object) ||
           PyMethod_Check(object) || PyCell_Check(object) || PyGen_CheckExact(object) || PyCoro_CheckExact(object) ||
           Py_IS_TYPE(object, known_types().deque) || Py_IS_TYPE(object, known_types().default_dict);
  }

  // An exception keeps the locals of unwound frames alive. Its handler holds a reference too, but drops it soon.
  bool is_kept_by(PyObject* exception) {
    auto* e = reinterpret_cast<PyBaseExceptionObject*>(exception);
    if (finds(e->context, 0, true) || finds(e->cause, 0, true)) return true;
    // `except*` splits one group into several.
    if (PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup)) &&
        finds(reinterpret_cast<PyBaseExceptionGroupObject*>(exception)->excs, kDeep, true))
      return true;
    PyObject* traceback = e->traceback;
    if (traceback == nullptr || !PyTraceBack_Check(traceback)) return false;
    auto* entry = reinterpret_cast<PyTracebackObject*>(traceback);
    for (; entry != nullptr; entry = entry->tb_next) {
      // ... and of their callers.
      PyFrameObject* frame = entry->tb_frame;
      for (bool ends = true; ends; frame = cpython::back_of(frame)) {
        for (PyObject* local : cpython::locals_of(frame)) {
          if (finds(local, 0, true)) return true;
        }
        PyFrameObject* back = cpython::back_of(frame);
        ends = back != nullptr && cpython::is_over(back) && Py_REFCNT(back) == 1;
      }
    }
    return false;
  }

  // Not its globals, which stay alive.
  bool is_bound_by(PyFunctionObject* function) {
    return finds(function->func_closure, 0, true) || finds(function->func_defaults, 0, true) ||
           finds(function->func_kwdefaults, 0, true) || finds(function->func_dict, 0, true);
  }

  const std::function<bool(PyObject*)>& is_shared_;
  int left_ = kMost, nested_ = 0;
  std::unordered_set<PyObject*> seen_;
};

}  // namespace

bool is_observably_finalized_itself(PyObject* object) {
  if (object == nullptr || is_lasting(object)) return false;
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
      _PyType_Lookup(type, names::__del__) != nullptr)
    return true;
  return is_suspended_in_a_block(object) || has_watcher(object);
}

bool is_watched(PyObject* object) { return !is_lasting(object) && has_watcher(object); }

bool is_observably_finalized(PyObject* object) {
  const std::function<bool(PyObject*)> counted;
  return Search(counted).finds(object, kDeep, false);
}

bool is_finalization_observable(PyObject* object, const std::function<bool(PyObject*)>& is_shared) {
  return Search(is_shared).finds(object, kDeep, true);
}

}  // namespace alternator::lift
