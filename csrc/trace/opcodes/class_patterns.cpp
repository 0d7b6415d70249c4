#include "trace/opcodes/class_patterns.h"
#include "trace/calls/call_dispatch.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/items.h"

#include "trace/calls/natives.h"

namespace alternator::trace {

namespace {

// Null: there is none.
Ref attribute_if_any(Tracer& tracer, Borrowed owner, Borrowed name) {
  try {
    return get_attribute(tracer, owner, name);
  } catch (const PyError&) {
    if (tracer.result.stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
    PyErr_Clear();
    return {};
  }
}

class ClassPattern {
 public:
  ClassPattern(Tracer& tracer, Borrowed subject, Borrowed type) : tracer_(tracer), subject_(subject), type_(type) {}

  bool is_instance() {
    PyObject* arguments[] = {nullptr, subject_.get(), type_.get()};
    Ref answer = call(tracer_, {Natives::table().isinstance, arguments + 1, 2, {}});
    return truth(tracer_, answer).value();
  }

  bool match_positional(Py_ssize_t count) {
    Ref names = attribute_if_any(tracer_, type_, checked(PyUnicode_InternFromString("__match_args__")));
    if (names && !PyTuple_CheckExact(names.get())) {
      PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", name(), names.type()->tp_name);
      throw PyError();
    }
    // Builtin classes whose only positional sub-pattern matches the subject itself.
    const bool itself = !names && PyType_HasFeature(type_.as<PyTypeObject>(), _Py_TPFLAGS_MATCH_SELF) != 0;
    const Py_ssize_t allowed = itself ? 1 : names ? PyTuple_GET_SIZE(names.get()) : 0;
    if (allowed < count) {
      PyErr_Format(PyExc_TypeError, "%s() accepts %d positional sub-pattern%s (%d given)", name(),
                   static_cast<int>(allowed), allowed == 1 ? "" : "s", static_cast<int>(count));
      throw PyError();
    }
    if (itself) {
      found_.push_back(Ref::share(subject_));
      return true;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
      Borrowed attribute = PyTuple_GET_ITEM(names.get(), i);
      if (!PyUnicode_CheckExact(attribute.get())) {
        PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", attribute.type()->tp_name);
        throw PyError();
      }
      if (!match_attribute(attribute)) return false;
    }
    return true;
  }

  bool match_attribute(Borrowed attribute) {
    for (const Ref& other : seen_) {
      if (PyUnicode_Compare(other.get(), attribute.get()) != 0) continue;
      PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R", name(), attribute.get());
      throw PyError();
    }
    seen_.push_back(Ref::share(attribute));
    Ref value = attribute_if_any(tracer_, subject_, attribute);
    if (!value) return false;
    found_.push_back(std::move(value));
    return true;
  }

  Ref found() {
    Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(found_.size())));
    for (size_t i = 0; i < found_.size(); i++)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), found_[i].release());
    return tuple;
  }

 private:
  const char* name() const { return type_.as<PyTypeObject>()->tp_name; }

  Tracer& tracer_;
  Borrowed subject_, type_;
  std::vector<Ref> seen_, found_;
};

}  // namespace

Ref match_class(Tracer& tracer, Borrowed subject, Borrowed type, Py_ssize_t positional, Borrowed keyword_names) {
  if (!PyType_Check(type.get())) {
    PyErr_Format(PyExc_TypeError, "called match pattern must be a type");
    throw PyError();
  }
  ClassPattern pattern(tracer, subject, type);
  if (!pattern.is_instance()) return {};
  if (positional > 0 && !pattern.match_positional(positional)) return {};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names.get()); i++) {
    if (!pattern.match_attribute(PyTuple_GET_ITEM(keyword_names.get(), i))) return {};
  }
  return pattern.found();
}

}  // namespace alternator::trace
