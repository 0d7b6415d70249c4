// str() and repr(): what a native function may show of a value without exposing its data or its address.
#include "trace/soundness/value_text.h"
#include "trace/opcodes/items.h"

#include "cpython/objects.h"
#include "lift/sources/decimal_values.h"
#include "py/import.h"
#include "py/lasting.h"

#include <algorithm>
#include <cstring>

namespace alternator::trace {

static constexpr int kDeepestText = 20;

static bool is_python(PyTypeObject* type, const char* method) {
  PyObject* found = _PyType_Lookup(type, checked(PyUnicode_InternFromString(method)).get());
  return found != nullptr && PyFunction_Check(found);
}

// The string of a class shows its __qualname__ and __module__, which may be reassigned.
static void guard_name(Tracer& t, Borrowed cls) {
  auto* type = cls.as<PyTypeObject>();
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || t.lifter.made_here(cls)) return;
  for (const char* field : {"__qualname__", "__module__"}) {
    Ref name = checked(PyUnicode_InternFromString(field));
    Ref text = checked(PyObject_GetAttr(cls.get(), name.get()));
    if (!lift::is_plain(text.get())) stop(report::Reason::native_call, "a class without a name");
    (void)t.lifter.lift(text, t.tree->child(t.lifter.constant(cls), lift::Access::kField, name));
  }
}

// The strings of decimals, contexts and their signal dicts depend on their values only.
static bool shows_decimals(PyTypeObject* type) {
  const lift::DecimalTypes* types = lift::decimal_types();
  if (types == nullptr) return false;
  return PyType_IsSubtype(type, types->decimal) != 0 || PyType_IsSubtype(type, types->context) != 0 ||
         (type->tp_base != nullptr && cpython::is_native(type->tp_base, "decimal.SignalDictMixin"));
}

namespace {

struct ShownTypes {
  PyTypeObject *generic_alias, *union_type, *item_getter;
  std::vector<PyTypeObject*> by_value;  // their strings depend on their values only
};

const ShownTypes& shown_types() {
  static constinit Lasting<ShownTypes> lasting;
  return lasting.get([] {
    auto of = [](const char* module, const char* name) {
      return reinterpret_cast<PyTypeObject*>(
          checked(PyObject_GetAttrString(import_module(module).get(), name)).release());
    };
    ShownTypes found{of("types", "GenericAlias"), of("types", "UnionType"), of("operator", "itemgetter"), {}};
    found.by_value = {of("re", "Pattern"), of("re", "Match")};
    for (const char* name : {"date", "datetime", "time", "timedelta", "timezone", "tzinfo"})
      found.by_value.push_back(of("datetime", name));
    return found;
  });
}

}  // namespace

// Native objects whose string is composed of the strings of their parts.
static bool shows_parts(Tracer& t, Borrowed value, int depth) {
  auto show = [&](const Ref& part) { check_text(t, part, depth + 1); };
  auto show_field = [&](const char* name) { show(checked(PyObject_GetAttrString(value.get(), name))); };
  PyTypeObject* type = value.type();
  const ShownTypes& types = shown_types();
  if (type == &PyDictKeys_Type || type == &PyDictValues_Type || type == &PyDictItems_Type) {
    show(checked(PySequence_List(value.get())));
    return true;
  }
  if (type == types.generic_alias || type == types.union_type) {
    if (type == types.generic_alias) show_field("__origin__");
    show_field("__args__");
    return true;
  }
  if (type == types.item_getter) {
    show(checked(PyObject_CallMethod(value.get(), "__reduce__", nullptr)));
    return true;
  }
  if (type == &PySlice_Type) {
    for (const char* field : {"start", "stop", "step"}) show_field(field);
    return true;
  }
  if (PyMethod_Check(value.get())) {  // its string shows the function's qualified name and the object
    Ref function = Ref::share(PyMethod_GET_FUNCTION(value.get()));
    if (!PyFunction_Check(function.get()) || !t.lifter.made_here(function)) return false;
    show(Ref::share(PyMethod_GET_SELF(value.get())));
    return true;
  }
  if (shows_decimals(type)) return true;
  return std::find(types.by_value.begin(), types.by_value.end(), type) != types.by_value.end();
}

// A string must not show a tensor's data or an object's address, nor depend on anything that is not guarded.
void check_text(Tracer& t, Borrowed value, int depth) {
  PyObject* v = value.get();
  PyTypeObject* type = value.type();
  if (graph::is_tensor(value)) stop(report::Reason::tensor_text, {});
  // It depends on numpy's print options.
  if (lift::is_numpy_number(v)) stop(report::Reason::native_call, "the string of a numpy scalar");
  if (lift::is_array(v)) stop(report::Reason::native_call, "the string of an array");
  if (lift::is_plain(v)) return;
  if (depth > kDeepestText) stop(report::Reason::address_text, "a deeply nested object");
  t.lifter.escape(value);
  check_use(t, value, "text");
  if (PyList_Check(v) || PyTuple_Check(v) || PyAnySet_Check(v) || type == lift::known_types().deque) {
    check_order(t, value, "the text");
    Ref items = checked(PySequence_Tuple(v));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); i++)
      check_text(t, PyTuple_GET_ITEM(items.get(), i), depth + 1);
    return;
  }
  if (PyDict_Check(v)) {
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(v, &position, &key, &item);) {
      check_text(t, key, depth + 1);
      check_text(t, item, depth + 1);
    }
    if (PyType_IsSubtype(type, lift::known_types().default_dict))
      check_text(t, checked(PyObject_GetAttrString(v, "default_factory")), depth + 1);
    return;
  }
  if (is_python(type, "__repr__")) return;  // its frame is traced
  if (PyExceptionInstance_Check(v)) {
    if (is_python(type, "__str__")) return;
    // Native code reads its arguments.
    if (t.lifter.known(value) != nullptr) stop(report::Reason::native_call, "the string of a pre-existing exception");
    return check_text(t, checked(PyObject_GetAttrString(v, "args")), depth + 1);
  }
  if (PyType_Check(v)) return guard_name(t, value);
  if (PyModule_Check(v) || PyUnicode_Check(v) || PyLong_Check(v) || PyFloat_Check(v) || PyBytes_Check(v) ||
      PyComplex_Check(v) || PyByteArray_Check(v)) {
    return;
  }
  if (shows_parts(t, value, depth)) return;
  if (PyCFunction_Check(v) && PyCFunction_GET_SELF(v) != nullptr && PyModule_Check(PyCFunction_GET_SELF(v))) return;
  stop(report::Reason::address_text, type->tp_name);
}

void check_own_text(Tracer& t, Borrowed value, OwnText how) {
  PyTypeObject* type = value.type();
  bool is_own = is_python(type, how == OwnText::kStr ? "__str__" : "__format__");
  if (how == OwnText::kFormat && !is_own) {
    const Ref name = checked(PyUnicode_InternFromString("__format__"));
    const bool is_plain = _PyType_Lookup(type, name.get()) == _PyType_Lookup(&PyBaseObject_Type, name.get());
    is_own = is_plain && is_python(type, "__str__");  // which object.__format__ calls
  }
  if (!is_own || graph::is_tensor(value) || lift::is_plain(value.get())) return check_text(t, value);
  t.lifter.escape(value);
  check_use(t, value, "text");
}

// Whether a %-format uses repr(): %r and %a.
static bool percent_uses_repr(Borrowed format) {
  if (!PyUnicode_Check(format.get())) return true;
  const Py_ssize_t length = PyUnicode_GET_LENGTH(format.get());
  for (Py_ssize_t i = 0; i < length; i++) {
    if (PyUnicode_READ_CHAR(format.get(), i) != '%') continue;
    if (++i < length && PyUnicode_READ_CHAR(format.get(), i) == '(') return true;  // values come from a dict
    auto is_option = [&](Py_UCS4 c) {
      return c != 0 && c < 128 && std::strchr("#0- +*.123456789hlL", static_cast<int>(c)) != nullptr;
    };
    while (i < length && is_option(PyUnicode_READ_CHAR(format.get(), i))) i++;
    const Py_UCS4 c = i < length ? PyUnicode_READ_CHAR(format.get(), i) : 'r';
    if (c == 'r' || c == 'a') return true;
  }
  return false;
}

void check_percent_text(Tracer& t, Borrowed format, Borrowed value) {
  if (percent_uses_repr(format)) return check_text(t, value);
  if (!PyTuple_CheckExact(value.get())) return check_own_text(t, value);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value.get()); i++) check_own_text(t, PyTuple_GET_ITEM(value.get(), i));
}

void check_field_text(Tracer& t, Borrowed format, Borrowed value) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(format.get());
  const bool converts = PyUnicode_FindChar(format.get(), '!', 0, length, 1) != -1;  // {!r}
  if (converts) return check_text(t, value);
  check_own_text(t, value, OwnText::kFormat);
}

// Checks sets in a list or tuple too: native code may iterate over them in turn.
void check_order(Tracer& t, Borrowed value, const char* what) {
  auto check = [&](Borrowed one) {
    if (PyAnySet_Check(one.get()) && iterates_by_address(t.lifter, one)) stop(report::Reason::address_order, what);
  };
  check(value);
  if (!PyList_CheckExact(value.get()) && !PyTuple_CheckExact(value.get())) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value.get()); i++)
    check(PySequence_Fast_GET_ITEM(value.get(), i));
}

}  // namespace alternator::trace
