#include "graph/record/value.h"

#include "graph/record/holds_tensor.h"
#include "graph/record/record_error.h"
#include "graph/record/torch_symbol.h"
#include "graph/record/torch_types.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>
#include "fake/python_tensor.h"

namespace alternator::graph {

void Arena::rewind(Mark mark) {
  values_.resize(mark.values);
  objects_.resize(mark.objects);
}

uint32_t Arena::reserve(size_t count) {
  if (count > kMostChildren)
    record_error("a container of " + std::to_string(count) + " elements is too large to record");
  const size_t first = values_.size();
  ALT_CHECK(first + count <= UINT32_MAX);
  values_.resize(first + count);
  return static_cast<uint32_t>(first);
}

uint32_t Arena::keep(Borrowed object) {
  objects_.push_back(Ref::share(object));
  return static_cast<uint32_t>(objects_.size() - 1);
}

namespace {

bool is_plain_constant(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (object == Py_None || object == Py_Ellipsis || object == Py_NotImplemented) return true;
  if (type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type || type == &PyUnicode_Type ||
      type == &PyComplex_Type || type == &PyBytes_Type || type == &PyRange_Type || type == &PyType_Type)
    return true;
  if (THPDtype_Check(object) || THPDevice_Check(object) || THPLayout_Check(object) || THPMemoryFormat_Check(object) ||
      THPQScheme_Check(object))
    return true;
  const TorchTypes& torch = torch_types();
  return type == torch.op_overload || type == torch.op_packet || PyType_IsSubtype(type, torch.enumeration);
}

class Capture {
 public:
  Capture(Arena& arena, TensorNames& names) : arena_(arena), names_(names) {}

  Value operator()(PyObject* object) {
    if (is_symbol(object)) names_.prepare(object);  // it may be a plain number from then on
    if (is_tensor(object) || is_symbol(object)) return Value::of(ValueKind::Tensor, names_.tensor_id(object));
    if (const uint32_t id = names_.object_id(object); id != TensorNames::kNone) return Value::of(ValueKind::Tensor, id);
    if (is_plain_constant(object)) return Value::of(ValueKind::Object, arena_.keep(object));
    if (PyTuple_Check(object)) return tuple(object);
    if (PyList_Check(object)) return list(object);
    if (PyDict_Check(object)) return dict(object);
    if (PySlice_Check(object)) return slice(object);
    const TorchTypes& torch = torch_types();
    PyTypeObject* type = Py_TYPE(object);
    if (type == torch.sym_int || type == torch.sym_float || type == torch.sym_bool)
      return Value::of(ValueKind::Symbol, arena_.keep(object));
    // A later write to the array would change the graph.
    if (is_array(object) && !names_.is_kept(object)) record_error("a numpy array cannot be recorded");
    if (holds_tensor(object))
      record_error(std::string("a tensor inside a ") + type->tp_name + " cannot be recorded as an argument");
    return Value::of(ValueKind::Opaque, arena_.keep(object));
  }

 private:
  // Recursion as deep as the user's nesting, and no deeper than CPython allows.
  struct Deeper {
    Deeper() {
      if (Py_EnterRecursiveCall(" while recording an argument")) throw PyError();
    }
    ~Deeper() { Py_LeaveRecursiveCall(); }
  };

  Value tuple(PyObject* object) {
    Deeper deeper;
    const Py_ssize_t size = PyTuple_GET_SIZE(object);
    const bool named = Py_TYPE(object) != &PyTuple_Type && Py_TYPE(object) != torch_types().size &&
                       PyObject_HasAttrString(object, "_fields");
    const uint32_t count = static_cast<uint32_t>(size + named);
    const uint32_t first = arena_.reserve(size + named);
    if (named) arena_.set(first, Value::of(ValueKind::Object, arena_.keep(Borrowed(Py_TYPE(object)))));
    for (Py_ssize_t i = 0; i < size; ++i) arena_.set(first + named + i, (*this)(PyTuple_GET_ITEM(object, i)));
    return Value::of(named ? ValueKind::Named : ValueKind::Tuple, first, count);
  }

  Value list(PyObject* object) {
    Deeper deeper;
    const Py_ssize_t size = PyList_GET_SIZE(object);
    const uint32_t first = arena_.reserve(size);
    for (Py_ssize_t i = 0; i < size; ++i) arena_.set(first + i, (*this)(PyList_GET_ITEM(object, i)));
    return Value::of(ValueKind::List, first, static_cast<uint32_t>(size));
  }

  Value dict(PyObject* object) {
    Deeper deeper;
    const Py_ssize_t size = PyDict_GET_SIZE(object);
    const uint32_t first = arena_.reserve(2 * size);
    uint32_t at = first;
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(object, &position, &key, &item); at += 2) {
      arena_.set(at, (*this)(key));
      arena_.set(at + 1, (*this)(item));
    }
    return Value::of(ValueKind::Dict, first, static_cast<uint32_t>(size));
  }

  Value slice(PyObject* object) {
    auto* s = reinterpret_cast<PySliceObject*>(object);
    const uint32_t first = arena_.reserve(3);
    arena_.set(first, (*this)(s->start));
    arena_.set(first + 1, (*this)(s->stop));
    arena_.set(first + 2, (*this)(s->step));
    return Value::of(ValueKind::Slice, first, 3);
  }

  Arena& arena_;
  TensorNames& names_;
};

}  // namespace

Value capture(Arena& arena, Borrowed object, TensorNames& names) { return Capture(arena, names)(object.get()); }

}  // namespace alternator::graph
