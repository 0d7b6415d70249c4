// What native code does with its arguments: iterates over them, converts them to strings, calls them. The gate in
// call_dispatch.cpp checks a call's own arguments; this checks what the callee itself does with them.
#include "trace/calls/native_callbacks.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/raised_exceptions.h"

#include "lift/lifting/classes.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"
#include "trace/soundness/value_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace alternator::trace {

static void check_shown(Tracer& t, PyObject* const* arguments, size_t count);

namespace {

using namespace std::string_view_literals;

template <size_t kCount>
bool among(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The method's own name, and the type that it belongs to (null: it is no method).
std::string_view method_of(Borrowed callable, PyTypeObject** owner, PyObject** self) {
  *owner = nullptr;
  *self = nullptr;
  PyTypeObject* kind = callable.type();
  if (PyCFunction_Check(callable.get())) {
    *self = PyCFunction_GET_SELF(callable.get());
    if (*self != nullptr && !PyModule_Check(*self)) *owner = PyType_Check(*self) ? nullptr : Py_TYPE(*self);
    return callable.as<PyCFunctionObject>()->m_ml->ml_name;
  }
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type) {
    auto* descriptor = reinterpret_cast<PyDescrObject*>(callable.get());
    *owner = descriptor->d_type;
    const char* text = PyUnicode_AsUTF8(descriptor->d_name);
    return text != nullptr ? text : "";
  }
  if (kind == &_PyMethodWrapper_Type) {  // bound: the wrapper keeps all of this alive
    auto field = [&](const char* name) { return checked(PyObject_GetAttrString(callable.get(), name)); };
    *self = field("__self__").get();
    *owner = field("__objclass__").as<PyTypeObject>();
    const char* text = PyUnicode_AsUTF8(field("__name__").get());
    return text != nullptr ? text : "";
  }
  return {};
}

bool is_set_type(PyTypeObject* type) {
  return type != nullptr && (PyType_IsSubtype(type, &PySet_Type) || PyType_IsSubtype(type, &PyFrozenSet_Type));
}

// Container methods that only store or compare a value.
constexpr std::array kKeeping = {"append"sv, "appendleft"sv,  "insert"sv,      "get"sv,          "setdefault"sv,
                                 "index"sv,  "count"sv,       "remove"sv,      "__contains__"sv, "__eq__"sv,
                                 "__ne__"sv, "__setitem__"sv, "__getitem__"sv, "__init__"sv};
// Set methods that iterate over the set in an observable order.
constexpr std::array kOrdered = {"pop"sv, "__iter__"sv, "__repr__"sv, "__str__"sv, "__reduce__"sv, "__reduce_ex__"sv};
// Functions that inspect no element, or all of them in no particular order.
constexpr std::array kUnordered = {"isinstance"sv, "issubclass"sv, "callable"sv, "len"sv, "hash"sv, "id"sv};
constexpr std::array kShowing = {"repr"sv,     "ascii"sv,    "format"sv,  "format_map"sv, "__mod__"sv,
                                 "__rmod__"sv, "__repr__"sv, "__str__"sv, "__format__"sv};
// CPython's own encoding error handlers: others are user code, and may be registered again.
constexpr std::array kErrorHandlers = {
    "strict"sv,           "ignore"sv,      "replace"sv,         "xmlcharrefreplace"sv,
    "backslashreplace"sv, "namereplace"sv, "surrogateescape"sv, "surrogatepass"sv};
constexpr std::array kCallers = {"sorted"sv, "max"sv,        "min"sv,  "reduce"sv,
                                 "iter"sv,   "cmp_to_key"sv, "sort"sv, "__new__"sv};
// Functions that read objects by name, or depend on addresses.
constexpr std::array kReflective = {"getattr"sv,
                                    "setattr"sv,
                                    "hasattr"sv,
                                    "delattr"sv,
                                    "vars"sv,
                                    "id"sv,
                                    "hash"sv,
                                    "isinstance"sv,
                                    "issubclass"sv,
                                    "__build_class__"sv,
                                    "dir"sv,
                                    "__getattribute__"sv,
                                    "__setattr__"sv,
                                    "__delattr__"sv,
                                    "__hash__"sv,
                                    "__reduce__"sv,
                                    "__reduce_ex__"sv,
                                    "__getstate__"sv,
                                    "__sizeof__"sv,
                                    "__init_subclass__"sv,
                                    "__subclasshook__"sv,
                                    "__instancecheck__"sv};

// The arguments of an encoding or decoding call, starting with the encoding.
void check_error_handler(PyObject* const* arguments, size_t count) {
  for (size_t i = 1; i < count; i++) {
    const char* name = PyUnicode_Check(arguments[i]) ? PyUnicode_AsUTF8(arguments[i]) : nullptr;
    PyErr_Clear();
    if (name != nullptr && !among(kErrorHandlers, name))
      stop(report::Reason::native_call, std::string("an encoding with the error handler ") + name);
  }
}

bool is_partial(Borrowed object) { return object.type() == lift::known_types().partial; }

// Types whose instances call their constructor arguments.
bool calls_arguments(PyTypeObject* type) {
  if (type == &PyMap_Type || type == &PyFilter_Type) return true;
  for (const char* name : {"itertools.accumulate", "itertools.dropwhile", "itertools.takewhile",
                           "itertools.filterfalse", "itertools.groupby", "itertools.starmap", "functools.partial"}) {
    if (strcmp(type->tp_name, name) == 0) return true;
  }
  return PyType_IsSubtype(type, lift::known_types().default_dict) != 0;
}

// Immutable elements whose hashes depend on their values, not on addresses. The hash of a NaN is an address.
bool hashes_by_value(PyObject* elements) {
  if (!PyTuple_CheckExact(elements)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(elements); i++) {
    PyObject* element = PyTuple_GET_ITEM(elements, i);
    const bool by_value = PyLong_CheckExact(element) || PyFloat_CheckExact(element) || PyComplex_CheckExact(element) ||
                          PyBool_Check(element) || PyUnicode_CheckExact(element) || PyBytes_CheckExact(element);
    if (!by_value || lift::is_nan(element)) return false;
  }
  return true;
}

}  // namespace

// Native code converts the elements to strings one by one.
static void check_shown(Tracer& t, PyObject* const* arguments, size_t count) {
  for (size_t i = 0; i < count; i++) {
    PyObject* value = arguments[i];
    if (lift::is_plain(value) || PyList_Check(value) || PyTuple_Check(value) || PyAnySet_Check(value) ||
        PyDict_Check(value)) {
      check_text(t, value);
    } else if (!PyCallable_Check(value)) {
      stop(report::Reason::identity_text, std::string("the elements of ") + Py_TYPE(value)->tp_name);
    }
  }
}

// A callable that native code itself calls, past the gate.
void check_callback(Tracer& t, Borrowed callback, PyObject* const* arguments, size_t count) {
  PyObject* c = callback.get();
  if (c == Py_None || PyFunction_Check(c)) return;
  if (PyMethod_Check(c)) return check_callback(t, PyMethod_GET_FUNCTION(c), arguments, count);
  if (is_partial(callback)) {
    return check_callback(t, checked(PyObject_GetAttrString(c, "func")), arguments, count);
  }
  const Natives& natives = Natives::table();
  if (natives.recorded(callback)) stop(report::Reason::native_call, native_name(callback) + " called by native code");
  if (natives.torch(callback)) return;
  if (callback.type() == lift::known_types().key_wrapper) return;  // cmp_to_key() has checked its function
  if (PyType_Check(c)) {
    auto* type = callback.as<PyTypeObject>();
    if (type == &PyUnicode_Type || type == &PyBytes_Type) return check_shown(t, arguments, count);
    if (type == &PyType_Type || PyType_IsSubtype(type, &PySuper_Type)) {
      if (type != &PyType_Type || count > 2) stop(report::Reason::native_call, "a class is made by native code");
      return;
    }
    (void)check_class_call(t, type);
    return;
  }
  PyTypeObject* owner = nullptr;
  PyObject* self = nullptr;
  const std::string_view name = method_of(callback, &owner, &self);
  if (self != nullptr && !PyModule_Check(self)) t.lifter.escape(self);
  if (owner == &PyUnicode_Type && is_formatter(name) && (self == nullptr || has_field_path(self)))
    stop(report::Reason::native_call, native_name(callback) + " called by native code");
  if (natives.function(callback) && !name.empty() && !among(kReflective, name)) {
    if (among(kShowing, name)) check_shown(t, arguments, count);
    return;
  }
  // map(hash, values)
  if (callback == Borrowed(natives.hash) && std::all_of(arguments, arguments + count, [&](PyObject* argument) {
        return argument == c || hashes_by_value(argument);
      })) {
    return;
  }
  // A method of a container: d.__getitem__ as a key.
  if (Py_IS_TYPE(c, &_PyMethodWrapper_Type)) {
    Ref bound = checked(PyObject_GetAttrString(c, "__self__"));
    if (PyList_Check(bound.get()) || PyDict_Check(bound.get()) || PyTuple_Check(bound.get()) ||
        PyAnySet_Check(bound.get()) || lift::is_plain(bound.get())) {
      Ref method = checked(PyObject_GetAttrString(c, "__name__"));
      const char* text = PyUnicode_AsUTF8(method.get());
      t.lifter.escape(bound);
      if (text != nullptr && !among(kReflective, text) && !among(kShowing, text)) return;
    }
  } else if ((callback.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !natives.type(callback.type())) {
    Borrowed call = t.lifter.classes->attribute(callback.type(), checked(PyUnicode_InternFromString("__call__")));
    if (call && PyFunction_Check(call.get())) return;  // traced
  } else if (natives.function(callback) && name.empty() && !PyCFunction_Check(c)) {
    return;  // an itemgetter
  }
  stop(report::Reason::native_call, native_name(callback) + " called by native code");
}

// A Python function of the program, not native code.
static bool is_user_function(PyObject* callable) {
  return PyFunction_Check(callable) || (PyMethod_Check(callable) && PyFunction_Check(PyMethod_GET_FUNCTION(callable)));
}

// Whether native code receives elements that user code computes.
static bool gets_elements(PyObject* const* arguments, size_t count) {
  return !std::all_of(arguments, arguments + count, [](PyObject* argument) {
    return PyCallable_Check(argument) || PyList_CheckExact(argument) || PyTuple_CheckExact(argument) ||
           lift::is_plain(argument);
  });
}

// The same for an iterator, which passes them on to a native function, or adds or compares them.
static bool reads_elements(PyTypeObject* type, PyObject* const* arguments, size_t count) {
  if (type == lift::known_types().partial) return false;
  if (strcmp(type->tp_name, "itertools.groupby") == 0) return true;  // it compares the results of the key function
  return std::none_of(arguments, arguments + count, is_user_function) && gets_elements(arguments, count);
}

void check_native_use(Tracer& t, Borrowed callable, PyObject* const* arguments, size_t count) {
  PyTypeObject* owner = nullptr;
  PyObject* self = nullptr;
  const std::string_view name = method_of(callable, &owner, &self);
  const bool bound = self != nullptr && owner != nullptr;
  // The methods of exceptions access the fields of the object itself, not those of the trace's private view.
  if (owner != nullptr && PyType_IsSubtype(owner, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0) {
    Borrowed exception = bound ? self : count > 0 ? arguments[0] : nullptr;
    const lift::Known* known = exception ? t.lifter.known(exception) : nullptr;
    if (known != nullptr && known->instance)
      stop(report::Reason::native_call, std::string(name) + " of a pre-existing exception");
    if (name == "split" || name == "subgroup") t.exceptions->check_group(exception);
  }
  if (owner != nullptr && (name == "encode" || name == "decode")) {
    const size_t skipped = bound ? 0 : 1;
    if (count > skipped) check_error_handler(arguments + skipped, count - skipped);
  }
  if (is_set_type(owner)) {
    if (!among(kOrdered, name)) return;
    if (bound) check_order(t, self, "a set's method");
  }
  if (among(kShowing, name)) {
    if (bound && !PyUnicode_Check(self)) check_text(t, self);
    // object.__repr__ shows the address, whatever the class defines.
    if (owner == &PyBaseObject_Type && name == "__repr__") stop(report::Reason::identity_text, "object.__repr__");
    const bool formats = bound && PyUnicode_Check(self) && name == "format";
    const bool is_builtin = owner == nullptr && name == "format";
    for (size_t i = 0; i < count; i++) {
      if (formats)
        check_field_text(t, self, arguments[i]);
      else if (is_builtin)
        check_own_text(t, arguments[i], OwnText::kFormat);
      else
        check_text(t, arguments[i]);
    }
  }
  if (among(kCallers, name)) {
    for (size_t i = 0; i < count; i++) {
      if (PyCallable_Check(arguments[i])) check_callback(t, arguments[i], arguments, count);
    }
  }
  const bool passes_on = name == "from_iterable" || (name == "reduce" && count > 0 && !is_user_function(arguments[0]));
  if (passes_on && gets_elements(arguments, count)) Reading::later() = true;
  const bool keeps = (owner != nullptr && among(kKeeping, name)) || (owner == nullptr && among(kUnordered, name));
  for (size_t i = 0; i < count && !keeps; i++) check_order(t, arguments[i], "a native call");
}

void check_type_use(Tracer& t, PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count) {
  const bool encodes = base == &PyUnicode_Type || base == &PyBytes_Type || base == &PyByteArray_Type;
  if (encodes && count > 2) check_error_handler(arguments + 1, count - 1);
  if (calls_arguments(type)) {
    if (reads_elements(type, arguments, count)) Reading::later() = true;
    for (size_t i = 0; i < count; i++) {
      if (PyCallable_Check(arguments[i])) check_callback(t, arguments[i], arguments, count);
    }
  }
  const bool keeps = base == &PyBaseObject_Type || type == &PyBool_Type || is_set_type(base) ||
                     PyType_IsSubtype(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0;
  for (size_t i = 0; i < count && !keeps; i++) check_order(t, arguments[i], type->tp_name);
}

}  // namespace alternator::trace
