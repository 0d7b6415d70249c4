#include "graph/record/named_callable.h"

#include "fake/python_tensor.h"
#include "graph/record/torch_types.h"
#include "py/lasting.h"

#include <structmember.h>

#include <string>
#include <utility>

namespace alternator::graph {
namespace {

struct NamedCallable {
  PyObject_HEAD PyObject* callable;
  PyObject* name;
  PyObject* module;
};

PyObject* call(PyObject* self, PyObject* arguments, PyObject* keywords) noexcept {
  return PyObject_Call(reinterpret_cast<NamedCallable*>(self)->callable, arguments, keywords);
}

int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  auto* named = reinterpret_cast<NamedCallable*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(named->callable);
  return 0;
}

int clear(PyObject* self) noexcept {
  auto* named = reinterpret_cast<NamedCallable*>(self);
  Ref callable = Ref::steal(std::exchange(named->callable, nullptr));
  return 0;
}

void dealloc(PyObject* self) noexcept {
  PyObject_GC_UnTrack(self);
  auto* named = reinterpret_cast<NamedCallable*>(self);
  Ref callable = Ref::steal(named->callable), name = Ref::steal(named->name), module = Ref::steal(named->module);
  Ref type = Ref::steal(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  type.as<PyTypeObject>()->tp_free(self);
}

PyObject* repr(PyObject* self) noexcept {
  return PyUnicode_FromFormat("<%U>", reinterpret_cast<NamedCallable*>(self)->name);
}

PyMemberDef members[] = {{"__name__", T_OBJECT_EX, offsetof(NamedCallable, name), READONLY, nullptr},
                         {"__qualname__", T_OBJECT_EX, offsetof(NamedCallable, name), READONLY, nullptr},
                         {"__module__", T_OBJECT_EX, offsetof(NamedCallable, module), READONLY, nullptr},
                         {"__wrapped__", T_OBJECT_EX, offsetof(NamedCallable, callable), READONLY, nullptr},
                         {}};

PyTypeObject* named_callable_type() {
  static constinit Lasting<Ref> type;
  return type
      .get([] {
        PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(call)},
                               {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear)},
                               {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                               {Py_tp_repr, reinterpret_cast<void*>(repr)},
                               {Py_tp_members, members},
                               {}};
        PyType_Spec spec = {"alternator._C.graph.NamedCallable", sizeof(NamedCallable), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
        return checked(PyType_FromSpec(&spec));
      })
      .as<PyTypeObject>();
}

std::string text_attribute(Borrowed object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object.get(), name));
  if (value && PyUnicode_Check(value.get()))
    if (const char* text = PyUnicode_AsUTF8(value.get())) return text;
  PyErr_Clear();
  return {};
}

}  // namespace

// FX emits `module.name` for objects of torch and assumes that it evaluates to the same object. All others it binds to
// a global of the generated code, for which any name will do.
bool can_be_named(Borrowed callable) {
  const std::string name = text_attribute(callable, "__name__");
  if (name.empty() || name == "<lambda>") return false;
  // Of the method descriptors, FX knows those of torch.Tensor; TensorBase has others that torch.Tensor hides.
  if (Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) || Py_IS_TYPE(callable.get(), &PyWrapperDescr_Type)) {
    Ref found = Ref::steal(PyObject_GetAttrString(THPVariableClass, name.c_str()));
    if (!found) PyErr_Clear();
    return found.get() == callable.get();
  }
  // A function without a __module__ is looked up in these.
  if (PyCFunction_Check(callable.get()) && text_attribute(callable, "__module__").empty()) {
    for (const char* place : {"torch", "torch.nn.functional"}) {
      PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), place);  // borrowed
      Ref found = module != nullptr ? Ref::steal(PyObject_GetAttrString(module, name.c_str())) : Ref();
      if (found.get() == callable.get()) return true;
      PyErr_Clear();
    }
    return false;
  }
  if (!PyFunction_Check(callable.get()) && !PyMethod_Check(callable.get())) return true;
  const std::string module_name = text_attribute(callable, "__module__");
  if (!is_of_torch(module_name)) return true;
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), module_name.c_str());  // borrowed
  if (module == nullptr) return false;
  Ref found = Ref::steal(PyObject_GetAttrString(module, name.c_str()));
  if (!found) PyErr_Clear();
  return found.get() == callable.get();
}

Ref make_named_callable(Borrowed callable) {
  std::string name;
  if (PyMethod_Check(callable.get())) {
    // MyFunction.apply: the class is more informative than the method.
    PyObject* self = PyMethod_GET_SELF(callable.get());
    PyObject* owner = PyType_Check(self) ? self : reinterpret_cast<PyObject*>(Py_TYPE(self));
    name = text_attribute(owner, "__name__") + "_" + text_attribute(callable, "__name__");
  } else {
    name = text_attribute(callable, "__name__");
    if (name.empty()) name = text_attribute(Borrowed(reinterpret_cast<PyObject*>(Py_TYPE(callable.get()))), "__name__");
  }
  PyTypeObject* type = named_callable_type();
  Ref result = checked(type->tp_alloc(type, 0));
  auto* named = result.as<NamedCallable>();
  named->callable = Ref::share(callable).release();
  named->name = checked(PyUnicode_FromString(name.c_str())).release();
  named->module = checked(PyUnicode_InternFromString("alternator_graph")).release();
  return result;
}

}  // namespace alternator::graph
