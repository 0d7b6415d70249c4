// Sources and values as a user would write them. Nothing here runs user code.
#include "cpython/objects.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/numpy_types.h"
#include "lift/sources/source.h"
#include "lift/sources/tensor_spec.h"
#include "py/names.h"

#include <cstring>

namespace alternator::lift {

namespace {

std::string cut(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) end--;  // not inside a UTF-8 sequence
  return text.substr(0, end) + "...";
}

std::string utf8(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return "?";
  Py_ssize_t length = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text, &length);
  if (bytes != nullptr) return {bytes, static_cast<size_t>(length)};
  PyErr_Clear();  // a lone surrogate
  Ref escaped = Ref::steal(PyUnicode_AsEncodedString(text, "ascii", "backslashreplace"));
  if (escaped) return PyBytes_AS_STRING(escaped.get());
  PyErr_Clear();
  return "?";
}

// Only for types whose repr is C code that depends on nothing but the value.
std::string native_repr(PyObject* object) {
  Ref text = Ref::steal(PyObject_Repr(object));
  if (text) return utf8(text.get());
  PyErr_Clear();  // an int beyond sys.get_int_max_str_digits()
  return std::string("a ") + Py_TYPE(object)->tp_name;
}

std::string text_of_attribute(PyObject* object, const char* name) {
  PyObject* dict = cpython::instance_dict(object);
  Ref key = Ref::steal(PyUnicode_InternFromString(name));
  if (!key) return PyErr_Clear(), "?";
  PyObject* value = nullptr;
  KeySafety safety = KeySafety::kUnasked;
  if (dict == nullptr) {
    value = cpython::inline_attribute(object, key.get());
  } else if (PyDict_Check(dict)) {
    find_item(dict, key.get(), &value, &safety);
  }
  return utf8(value);
}

std::string type_text(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return type->tp_name;
  return utf8(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
}

std::string code_text(PyCodeObject* code) {
  const std::string file = utf8(code->co_filename);
  return utf8(code->co_qualname) + " (" + file.substr(file.rfind('/') + 1) + ":" +
         std::to_string(code->co_firstlineno) + ")";
}

std::string show_at(PyObject* object, size_t limit, int depth);

template <class Each>
std::string list_text(const char* open, const char* close, size_t limit, Each&& each) {
  std::string text = open;
  bool first = true;
  each([&](const std::string& item) {
    if (text.size() > limit) return false;
    if (!first) text += ", ";
    first = false;
    text += item;
    return true;
  });
  return text + close;
}

std::string container_text(PyObject* object, size_t limit, int depth) {
  auto item = [&](PyObject* part) { return show_at(part, limit, depth + 1); };
  if (PyTuple_Check(object) || PyList_Check(object)) {
    const bool tuple = PyTuple_Check(object);
    return list_text(tuple ? "(" : "[", tuple ? (PyTuple_GET_SIZE(object) == 1 ? ",)" : ")") : "]", limit,
                     [&](auto add) {
                       for (Py_ssize_t i = 0; i < container_length(object); i++) {
                         if (!add(item(tuple ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i)))) return;
                       }
                     });
  }
  if (PyDict_Check(object)) {
    return list_text("{", "}", limit, [&](auto add) {
      Py_ssize_t position = 0;
      PyObject *key, *value;
      while (PyDict_Next(object, &position, &key, &value)) {
        if (!add(item(key) + ": " + item(value))) return;
      }
    });
  }
  return list_text("{", "}", limit, [&](auto add) {
    auto* set = reinterpret_cast<PySetObject*>(object);
    for (Py_ssize_t i = 0; i <= set->mask; i++) {
      if (set->table[i].key == nullptr || set->table[i].hash == -1) continue;
      if (!add(item(set->table[i].key))) return;
    }
  });
}

std::string show_at(PyObject* object, size_t limit, int depth) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_plain(object)) {
    if (PyUnicode_CheckExact(object) && PyUnicode_GET_LENGTH(object) > static_cast<Py_ssize_t>(limit)) {
      Ref start = Ref::steal(PyUnicode_Substring(object, 0, static_cast<Py_ssize_t>(limit)));
      if (start) return native_repr(start.get()) + "...";
      PyErr_Clear();
    }
    if (PyLong_CheckExact(object) && _PyLong_NumBits(object) > 1000) return "a large int";
    if (PyBytes_CheckExact(object) && PyBytes_GET_SIZE(object) > static_cast<Py_ssize_t>(limit))
      return "a bytes of length " + std::to_string(PyBytes_GET_SIZE(object));
    const bool is_enum = Py_TYPE(type) != &PyType_Type && PyType_IsSubtype(Py_TYPE(type), known_types().enum_type);
    if (is_enum) return type_text(type) + "." + text_of_attribute(object, "_name_");
    if (is_numpy_number(object)) {  // its repr depends on numpy's print options
      Ref number = Ref::steal(PyObject_CallMethod(object, "item", nullptr));
      if (!number) return PyErr_Clear(), type_text(type);
      return type_text(type) + "(" + native_repr(number.get()) + ")";
    }
    return native_repr(object);
  }
  if (is_decimal(object)) return native_repr(object);
  if (PyType_Check(object)) return type_text(reinterpret_cast<PyTypeObject*>(object));
  if (is_tensor(object)) return describe_tensor(object).text();
  if (PyFunction_Check(object))
    return "the function " + utf8(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  if (PyCode_Check(object)) return code_text(reinterpret_cast<PyCodeObject*>(object));
  if (PyCFunction_Check(object)) {
    return std::string("the builtin ") + reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name;
  }
  if (PyModule_Check(object)) return "the module " + text_of_attribute(object, "__name__");
  if (PyMethod_Check(object)) return "the method " + show_at(PyMethod_GET_FUNCTION(object), limit, depth + 1);
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object) || PyDict_CheckExact(object) ||
      PyAnySet_CheckExact(object)) {
    if (depth < 3) return container_text(object, limit, depth);
  }
  if (const Py_ssize_t length = container_length(object); length >= 0) {
    return "a " + type_text(type) + " of length " + std::to_string(length);
  }
  return "<" + type_text(type) + " object>";
}

// Deep chains (a linked list) are cut: they are unreadable, and each step recurses.
constexpr int kMaxSteps = 100;
std::string text_of(const Source& source, int steps);

bool is_text(const Source& source, const char* text) {
  return source.key && PyUnicode_Check(source.key.get()) &&
         PyUnicode_CompareWithASCIIString(source.key.get(), text) == 0;
}

// self.__dict__["_modules"]: the dict in which nn.Module.__getattr__ looks names up.
bool is_module_table(const Source& source) {
  return source.access == Access::kItem && source.parent->access == Access::kDict &&
         (is_text(source, "_modules") || is_text(source, "_parameters") || is_text(source, "_buffers"));
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::string attribute_text(const std::string& owner, const Source& source) {
  if (!source.key || !PyUnicode_CheckExact(source.key.get()))
    return owner + ".__dict__[" + show(source.key.get()) + "]";
  return owner + "." + utf8(source.key.get());
}

std::string constant_text(const Source& source) {
  PyObject* object = source.key.get();
  if (source.labeled) return utf8(object);
  if (PyModule_Check(object)) return text_of_attribute(object, "__name__");
  if (!PyDict_CheckExact(object)) return show(object);
  PyObject* name = nullptr;
  KeySafety safety = KeySafety::kUnasked;
  find_item(object, names::__name__, &name, &safety);
  return name != nullptr ? "the globals of " + utf8(name) : "a dict";
}

std::string item_text(const Source& source, int steps) {
  const Source& parent = *source.parent;
  if (parent.access == Access::kDict) return attribute_text(text_of(*parent.parent, steps), source);
  if (is_module_table(parent) && !source.labeled && PyUnicode_CheckExact(source.key.get())) {
    const std::string owner = text_of(*parent.parent->parent, steps), name = utf8(source.key.get());
    return is_number(name) ? owner + "[" + name + "]" : owner + "." + name;
  }
  if (parent.access == Access::kGlobals && PyUnicode_CheckExact(source.key.get())) return utf8(source.key.get());
  if (parent.access == Access::kConstant && !parent.labeled && PyDict_CheckExact(parent.key.get()) &&
      PyUnicode_CheckExact(source.key.get())) {
    const std::string owner = text_of(parent, steps), prefix = "the globals of ";
    return owner.starts_with(prefix) ? owner.substr(prefix.size()) + "." + utf8(source.key.get())
                                     : utf8(source.key.get());
  }
  return text_of(parent, steps) + "[" + (source.labeled ? utf8(source.key.get()) : show(source.key.get(), 40)) + "]";
}

const char* pattern_of(Access access) {
  static constexpr const char* kPatterns[] = {
#define ALT_ACCESSOR(kind, text, ...) text,
#include "lift/sources/accessors.def"
#undef ALT_ACCESSOR
  };
  return kPatterns[static_cast<size_t>(access)];
}

std::string text_of(const Source& source, int steps) {
  if (steps == 0) return "...";
  steps--;
  if (source.access == Access::kItem) return item_text(source, steps);
  if (source.access == Access::kConstant) return constant_text(source);
  const Source* parent = source.parent;
  // A free variable is shown by its name.
  if (source.access == Access::kContents && parent->access == Access::kCell && parent->key)
    return utf8(parent->key.get());
  std::string text;
  for (const char* c = pattern_of(source.access); *c != 0; c++) {
    if (*c != '%') {
      text += *c;
      continue;
    }
    PyObject* key = source.key.get();
    switch (*++c) {
      case 'p':
        text += text_of(*parent, steps);
        break;
      case 'k':
        text += key != nullptr && PyUnicode_Check(key) ? utf8(key) : show(key, 40);
        break;
      case 'i':
        text += std::to_string(source.index);
        break;
      default:
        text += *c;
    }
  }
  return text;
}

}  // namespace

std::string show(PyObject* object, size_t limit) {
  if (object == nullptr) return "nothing";
  return cut(show_at(object, limit, 0), limit);
}

std::string Source::text() const { return text_of(*this, kMaxSteps); }

}  // namespace alternator::lift
