// What native code does with its arguments: iterates over them, converts them to strings, calls them. The gate in
// call_dispatch.cpp checks a call's own arguments; this checks what the callee itself does with them.
#include "trace/calls/native_callbacks.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/raised_exceptions.h"

#include "cpython/method_wrappers.h"
#include "lift/lifting/classes.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"
#include "trace/soundness/value_text.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace alternator::trace {

namespace {

using namespace std::string_view_literals;

// The type that a method belongs to (null: it is no method of an instance), and what it is bound to.
struct Receiver {
  PyTypeObject* owner = nullptr;
  PyObject* self = nullptr;

  bool is_bound() const { return self != nullptr && owner != nullptr; }
};
Receiver receiver_of(Borrowed callable) {
  PyTypeObject* kind = callable.type();
  if (PyCFunction_Check(callable.get())) {
    PyObject* self = PyCFunction_GET_SELF(callable.get());
    const bool is_method = self != nullptr && !PyModule_Check(self) && !PyType_Check(self);
    return {is_method ? Py_TYPE(self) : nullptr, self};
  }
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type)
    return {reinterpret_cast<PyDescrObject*>(callable.get())->d_type, nullptr};
  if (const cpython::MethodWrapper* wrapper = cpython::as_method_wrapper(callable.get()))
    return {reinterpret_cast<PyDescrObject*>(wrapper->slot)->d_type, wrapper->self};
  return {};
}

bool is_set_type(PyTypeObject* type) {
  return type != nullptr && (PyType_IsSubtype(type, &PySet_Type) || PyType_IsSubtype(type, &PyFrozenSet_Type));
}

// CPython's own encoding error handlers: others are user code, and may be registered again.
constexpr std::array kErrorHandlers = {
    "strict"sv,           "ignore"sv,      "replace"sv,         "xmlcharrefreplace"sv,
    "backslashreplace"sv, "namereplace"sv, "surrogateescape"sv, "surrogatepass"sv};

// The arguments of an encoding or decoding call, starting with the encoding.
void check_error_handler(PyObject* const* arguments, size_t count) {
  for (size_t i = 1; i < count; i++) {
    const char* name = PyUnicode_Check(arguments[i]) ? PyUnicode_AsUTF8(arguments[i]) : nullptr;
    PyErr_Clear();
    if (name != nullptr && std::ranges::find(kErrorHandlers, name) == kErrorHandlers.end())
      stop(report::Reason::native_call, std::string("an encoding with the error handler ") + name);
  }
}

bool is_partial(Borrowed object) { return object.type() == lift::known_types().partial; }

// Whether an instance of the type calls the arguments of its constructor.
bool calls_arguments(PyTypeObject* type) {
  return Natives::table().flags_of_type(type).has(native::kCallsArguments) ||
         PyType_IsSubtype(type, lift::known_types().default_dict) != 0;
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
      stop(report::Reason::address_text, std::string("the elements of ") + Py_TYPE(value)->tp_name);
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
  const NativeFlags flags = natives.flags(callback);
  const bool is_named = !defined_name(callback).empty();  // a builtin function, a method or a slot
  PyObject* const self = receiver_of(callback).self;
  if (self != nullptr && !PyModule_Check(self)) t.lifter.escape(self);
  if (flags.has(native::kFormats) && (self == nullptr || has_field_path(self)))
    stop(report::Reason::native_call, native_name(callback) + " called by native code");
  const bool may_run = natives.function(callback);
  if (may_run && is_named && !flags.has(native::kReflects)) {
    if (flags.has(native::kShows)) check_shown(t, arguments, count);
    return;
  }
  // map(hash, values)
  if (callback == Borrowed(natives.hash) && std::all_of(arguments, arguments + count, [&](PyObject* argument) {
        return argument == c || hashes_by_value(argument);
      })) {
    return;
  }
  // A method of a container: d.__getitem__ as a key.
  if (cpython::as_method_wrapper(c) != nullptr) {
    if (PyList_Check(self) || PyDict_Check(self) || PyTuple_Check(self) || PyAnySet_Check(self) ||
        lift::is_plain(self)) {
      t.lifter.escape(self);
      if (!flags.has(native::kReflects | native::kShows)) return;
    }
  } else if ((callback.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !natives.type(callback.type())) {
    Borrowed call = t.lifter.classes->attribute(callback.type(), checked(PyUnicode_InternFromString("__call__")));
    if (call && PyFunction_Check(call.get())) return;  // traced
  } else if (may_run && !is_named) {
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
  if (Natives::table().flags_of_type(type).has(native::kComparesResults)) return true;
  return std::none_of(arguments, arguments + count, is_user_function) && gets_elements(arguments, count);
}

// The arguments, or `self`, that are converted to strings.
static void check_text_of(Tracer& t, Borrowed callable, NativeFlags flags, const Receiver& receiver,
                          PyObject* const* arguments, size_t count) {
  const Natives& natives = Natives::table();
  const bool of_string = receiver.is_bound() && PyUnicode_Check(receiver.self);
  if (receiver.is_bound() && !of_string) check_text(t, receiver.self);
  // It shows the address whatever the class defines.
  if (flags.has(native::kShowsAddress)) stop(report::Reason::address_text, "object.__repr__");
  const bool formats = of_string && is_same_builtin(callable, natives.str_format);
  for (size_t i = 0; i < count; i++) {
    if (formats)
      check_field_text(t, receiver.self, arguments[i]);
    else if (callable == Borrowed(natives.format))
      check_own_text(t, arguments[i], OwnText::kFormat);
    else
      check_text(t, arguments[i]);
  }
}

// The methods of exceptions access the fields of the object itself, not those of the trace's private view.
static void check_exception_method(Tracer& t, Borrowed callable, NativeFlags flags, Borrowed exception) {
  const lift::Known* known = exception ? t.lifter.known(exception) : nullptr;
  if (known != nullptr && known->instance)
    stop(report::Reason::native_call, std::string(defined_name(callable)) + " of a pre-existing exception");
  if (flags.has(native::kSplitsGroup)) t.exceptions->check_group(exception);
}

void check_native_use(Tracer& t, Borrowed callable, NativeFlags flags, PyObject* const* arguments, size_t count) {
  const Receiver receiver = receiver_of(callable);
  const bool bound = receiver.is_bound();
  if (receiver.owner != nullptr &&
      PyType_IsSubtype(receiver.owner, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) != 0)
    check_exception_method(t, callable, flags, bound ? receiver.self : count > 0 ? arguments[0] : nullptr);
  if (flags.has(native::kEncodes)) {
    const size_t skipped = bound ? 0 : 1;
    if (count > skipped) check_error_handler(arguments + skipped, count - skipped);
  }
  if (is_set_type(receiver.owner)) {
    if (!flags.has(native::kOrdered)) return;
    if (bound) check_order(t, receiver.self, "a set's method");
  }
  if (flags.has(native::kShows)) check_text_of(t, callable, flags, receiver, arguments, count);
  if (flags.has(native::kCallsArguments)) {
    for (size_t i = 0; i < count; i++) {
      if (PyCallable_Check(arguments[i])) check_callback(t, arguments[i], arguments, count);
    }
  }
  const bool passes_on =
      flags.has(native::kPassesOn) || (flags.has(native::kFolds) && count > 0 && !is_user_function(arguments[0]));
  if (passes_on && gets_elements(arguments, count)) Reading::later() = true;
  for (size_t i = 0; i < count && !flags.has(native::kUnordered); i++) check_order(t, arguments[i], "a native call");
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
