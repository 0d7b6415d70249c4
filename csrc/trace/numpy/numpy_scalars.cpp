// numpy scalars, and objects with __index__: computed while tracing, like Python scalars.
#include "trace/numpy/numpy_scalars.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/items.h"

#include "graph/record/torch_symbol.h"
#include "trace/calls/natives.h"
#include "trace/opcodes/index_objects.h"

namespace alternator::trace {

namespace {

constexpr int kDeepest = 8;

bool is_number(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || lift::is_numpy_number(value);
}

// A user-defined object with __index__, which torch would call natively.
bool is_index_object(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && type->tp_as_number != nullptr &&
         type->tp_as_number->nb_index != nullptr && !PyLong_Check(value) && !graph::is_tensor(value) &&
         !fake::is_symbol(value) && !graph::is_torch_symbol(value) && !lift::is_numpy_number(value) &&
         !lift::is_array(value);
}

bool holds_numbers(PyObject* value, int depth = 0) {
  if (lift::is_numpy_number(value) || lift::is_array(value) || is_index_object(value)) return true;
  if (depth > kDeepest) return false;
  if (PyDict_CheckExact(value)) {
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(value, &position, &key, &item) != 0;) {
      if (holds_numbers(item, depth + 1)) return true;
    }
  }
  if (PySlice_Check(value)) {
    auto* slice = reinterpret_cast<PySliceObject*>(value);
    return holds_numbers(slice->start, depth + 1) || holds_numbers(slice->stop, depth + 1) ||
           holds_numbers(slice->step, depth + 1);
  }
  if (!PyList_Check(value) && !PyTuple_Check(value)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
    if (holds_numbers(PySequence_Fast_GET_ITEM(value, i), depth + 1)) return true;
  }
  return false;
}

bool holds_index_objects(PyObject* value, int depth = 0) {
  if (is_index_object(value)) return true;
  if (depth > kDeepest) return false;
  if (PySlice_Check(value)) {
    auto* slice = reinterpret_cast<PySliceObject*>(value);
    return is_index_object(slice->start) || is_index_object(slice->stop) || is_index_object(slice->step);
  }
  if (!PyList_Check(value) && !PyTuple_Check(value)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
    if (holds_index_objects(PySequence_Fast_GET_ITEM(value, i), depth + 1)) return true;
  }
  return false;
}

bool is_sequence(PyTypeObject* type) {
  return type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_item != nullptr;
}

// Compares the last component of its dotted name.
bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  const size_t dot = name.rfind('.');
  const std::string_view last = std::string_view(name).substr(dot == std::string::npos ? 0 : dot + 1);
  return std::find(names.begin(), names.end(), last) != names.end();
}

// Functions that make a tensor from data: there the scalar's dtype determines the tensor's.
bool takes_data(const std::string& name) {
  return is_one_of(name, {"tensor", "as_tensor", "asarray", "new_tensor", "from_numpy", "Tensor", "new"});
}

// Functions whose ints are all sizes: there torch calls __index__; where another scalar is possible, it mostly refuses
// such an object.
bool takes_sizes(const std::string& name) {
  return is_one_of(name, {"zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty", "repeat",
                          "tile", "view", "reshape", "expand"});
}

}  // namespace

Ref check_numbers(Tracer& /*t*/, Borrowed* left, Borrowed* right) {
  Borrowed* number = lift::is_numpy_number(left->get()) ? left : right;
  Borrowed* other = number == left ? right : left;
  if (is_number(other->get())) return {};
  if (!graph::is_tensor(*other)) stop(report::Reason::native_call, "an operator on a numpy scalar");
  if (lift::numpy_kind(number->get()) == lift::NumpyKind::kBool)
    stop(report::Reason::native_call, "an operator on a tensor and a numpy.bool");
  Ref plain = lift::python_number(*number);
  *number = plain;
  return plain;
}

void refuse_index_objects(PyObject* value) {
  if (holds_index_objects(value)) stop(report::Reason::native_call, "a torch call with an object that has __index__");
}

void check_slices(Tracer& tracer, Borrowed value, int depth) {
  PyObject* v = value.get();
  if (PySlice_Check(v)) {
    if (!lift::is_plain(v)) check_use(tracer, value, "an index");
  } else if ((PyTuple_Check(v) || PyList_Check(v)) && depth <= kDeepest) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++)
      check_slices(tracer, PySequence_Fast_GET_ITEM(v, i), depth + 1);
  }
}

// Converts index objects (in indices) and numpy scalars to Python scalars.
Ref number_for_torch(Tracer& t, Borrowed value, int depth) {
  PyObject* v = value.get();
  if (depth == 0) check_slices(t, value);
  if (is_index_object(v)) {
    if (is_sequence(value.type())) refuse_index_objects(v);
    Ref method = special_method(t, value, checked(PyUnicode_InternFromString("__index__")));
    PyObject* none[] = {nullptr};
    Ref number = method ? call(t, {method, none + 1, 0, {}}) : Ref();
    if (!number || !PyLong_CheckExact(number.get()))
      stop(report::Reason::native_call, std::string("a torch call with a ") + value.type()->tp_name);
    return number;
  }
  switch (lift::numpy_kind(v)) {
    case lift::NumpyKind::kInteger:
    case lift::NumpyKind::kDouble:
      return lift::python_number(value);
    case lift::NumpyKind::kBool:
    case lift::NumpyKind::kFloat:  // some torch calls accept them as scalars, others refuse them
      stop(report::Reason::native_call, std::string("a torch call with a ") + value.type()->tp_name);
    case lift::NumpyKind::kNone:
      break;
  }
  if (lift::is_array(v)) stop(report::Reason::native_call, "a torch call with a numpy array");
  if (!holds_numbers(v)) return {};
  if (PySlice_Check(v) && depth <= kDeepest) {
    auto* slice = value.as<PySliceObject>();
    Ref parts[3];
    PyObject* before[3] = {slice->start, slice->stop, slice->step};
    for (int i = 0; i < 3; i++) {
      parts[i] = number_for_torch(t, before[i], depth + 1);
      if (!parts[i]) parts[i] = Ref::share(before[i]);
    }
    return checked(PySlice_New(parts[0].get(), parts[1].get(), parts[2].get()));
  }
  if (depth > kDeepest || (!PyTuple_CheckExact(v) && !PyList_CheckExact(v)))
    stop(report::Reason::native_call,
         std::string("a torch call with numpy scalars or index objects in a ") + value.type()->tp_name);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(v);
  Ref copy = checked(PyTuple_CheckExact(v) ? PyTuple_New(count) : PyList_New(count));
  for (Py_ssize_t i = 0; i < count; i++) {
    Borrowed element = PySequence_Fast_GET_ITEM(v, i);
    Ref number = number_for_torch(t, element, depth + 1);
    PyObject* item = number ? number.release() : Ref::share(element).release();
    if (PyTuple_CheckExact(v)) {
      PyTuple_SET_ITEM(copy.get(), i, item);
    } else {
      PyList_SET_ITEM(copy.get(), i, item);
    }
  }
  return copy;
}

bool use_numbers(Tracer& t, PyObject* const* arguments, size_t count, const std::string& name,
                 std::vector<PyObject*>* given, std::vector<Ref>* numbers) {
  for (size_t i = 0; i < count; i++) {
    if (!takes_sizes(name)) refuse_index_objects(arguments[i]);
    Ref number = number_for_torch(t, arguments[i]);
    if (!number) continue;
    if (takes_data(name)) stop(report::Reason::native_call, name + " of numpy scalars or objects with __index__");
    if (given->empty()) {
      given->push_back(nullptr);
      given->insert(given->end(), arguments, arguments + count);
    }
    (*given)[i + 1] = number.get();
    numbers->push_back(std::move(number));
  }
  return !given->empty();
}

}  // namespace alternator::trace
