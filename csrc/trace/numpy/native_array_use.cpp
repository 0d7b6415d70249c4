#include "trace/numpy/native_array_use.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/items.h"

#include "lift/lifting/layouts.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

#include <unordered_set>

namespace alternator::trace {

namespace {

// Modules and types whose native code treats an array as a sequence of scalars or as one scalar, not as a buffer.
const lift::PointerSet<PyObject>& sequence_users() {
  static constinit Lasting<lift::PointerSet<PyObject>> lasting;
  return lasting.get([] {
    lift::PointerSet<PyObject> users;
    for (const char* module : {"builtins", "_operator", "math", "itertools", "_functools"})
      users.insert(import_module(module).release());
    for (const char* name : {"deque", "OrderedDict", "defaultdict"})
      users.insert(checked(PyObject_GetAttrString(import_module("collections").get(), name)).release());
    for (PyTypeObject* type : {&PyList_Type, &PyDict_Type, &PySet_Type, &PyTuple_Type})
      users.insert(reinterpret_cast<PyObject*>(type));
    return users;
  });
}

// The module of a builtin function, the type of a builtin method; null: it is something else.
Ref owner_of(Borrowed callable) {
  PyObject* c = callable.get();
  if (Py_IS_TYPE(c, &PyMethodDescr_Type) || Py_IS_TYPE(c, &PyWrapperDescr_Type) ||
      Py_IS_TYPE(c, &PyClassMethodDescr_Type))
    return Ref::share(callable.as<PyDescrObject>()->d_type);
  Ref self;
  if (PyCFunction_Check(c)) {
    self = Ref::share(PyCFunction_GET_SELF(c));
  } else if (Py_IS_TYPE(c, &_PyMethodWrapper_Type)) {
    self = checked(PyObject_GetAttrString(c, "__self__"));
  }
  if (!self || PyModule_Check(self.get()) || PyType_Check(self.get())) return self;
  return Ref::share(self.type());
}

bool only_stores(PyTypeObject* base) {
  static constexpr PyTypeObject* kTypes[] = {&PyBaseObject_Type, &PyList_Type,   &PyTuple_Type,    &PySet_Type,
                                             &PyFrozenSet_Type,  &PyDict_Type,   &PyEnum_Type,     &PyZip_Type,
                                             &PyMap_Type,        &PyFilter_Type, &PyReversed_Type, &PySlice_Type};
  const lift::KnownTypes& known = lift::known_types();
  return std::find(std::begin(kTypes), std::end(kTypes), base) != std::end(kTypes) || base == known.deque ||
         base == known.partial || base == known.simple_namespace ||
         PyType_IsSubtype(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0;
}

}  // namespace

// Objects that native code iterates over and whose contents the garbage collector can traverse.
static bool may_be_iterated(Borrowed object) {
  PyObject* o = object.get();
  return PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) || PyIter_Check(o) ||
         PyDictKeys_Check(o) || PyDictValues_Check(o) || PyDictItems_Check(o) ||
         PyObject_TypeCheck(o, lift::known_types().deque);
}

// An opaque object that native code compares, computes with or iterates over wherever it finds it; or a namespace,
// whose attributes it compares.
static bool is_inspected_natively(const lift::Lifter& lifter, Borrowed object) {
  const lift::Known* known = lifter.known(object);
  PyTypeObject* type = object.type();
  if (known != nullptr && known->instance && lift::layout_base(type) == lift::known_types().simple_namespace)
    return true;
  if (known == nullptr || !known->opaque) return false;
  const PyNumberMethods* number = type->tp_as_number;
  const PySequenceMethods* sequence = type->tp_as_sequence;
  return type->tp_richcompare != PyBaseObject_Type.tp_richcompare || type->tp_iternext != nullptr ||
         (number != nullptr && (number->nb_add != nullptr || number->nb_bool != nullptr)) ||
         (sequence != nullptr && (sequence->sq_length != nullptr || sequence->sq_item != nullptr));
}

void check_arrays_within(Tracer& tracer, Borrowed value) {
  constexpr size_t kMost = 10'000;
  if ((!tracer.lifter.has_arrays() && tracer.lifter.symbolic_arrays.empty()) || !may_be_iterated(value)) return;
  std::vector<Ref> waiting;
  std::unordered_set<PyObject*> seen;
  waiting.push_back(Ref::share(value));
  while (!waiting.empty()) {
    Ref object = std::move(waiting.back());
    waiting.pop_back();
    if (lift::is_array(object.get()) || is_inspected_natively(tracer.lifter, object))
      check_use(tracer, object, "native code");
    if (!may_be_iterated(object) || !PyObject_IS_GC(object.get()) || !seen.insert(object.get()).second) continue;
    if (seen.size() > kMost)
      stop(report::Reason::native_call, "a large container, where there are pre-existing arrays or opaque objects");
    object.type()->tp_traverse(
        object.get(),
        [](PyObject* part, void* to) {
          static_cast<std::vector<Ref>*>(to)->push_back(Ref::share(part));
          return 0;
        },
        &waiting);
  }
}

bool check_array_arguments(Borrowed callable, PyObject* const* arguments, size_t count) {
  bool arrays = false, tensors = false;
  for (size_t i = 0; i < count; i++) {
    arrays = arrays || lift::is_array(arguments[i]);
    tensors = tensors || graph::is_tensor(arguments[i]);
  }
  if (!arrays) return false;
  if (tensors || sequence_users().count(owner_of(callable).get()) == 0)
    stop(report::Reason::native_call, native_name(callable) + " of an array");
  return true;
}

bool check_array_arguments(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count) {
  bool arrays = false;
  for (size_t i = 0; i < count; i++) {
    if (!lift::is_array(arguments[i])) continue;
    arrays = true;
    const bool is_number = PyType_IsSubtype(base, &PyFloat_Type) || PyType_IsSubtype(base, &PyLong_Type) ||
                           PyType_IsSubtype(base, &PyComplex_Type);
    if (is_number && base != &PyBool_Type && lift::fields_of(arguments[i]).dimensions > 0)
      stop(report::Reason::native_call, std::string(type->tp_name) + " of an array that is not 0-d");
    const bool reads_memory = !is_number && !only_stores(base);
    if (reads_memory) stop(report::Reason::native_call, std::string(type->tp_name) + " of an array");
  }
  return arrays;
}

}  // namespace alternator::trace
