#include "trace/symbolic/deferred_values.h"

#include "cpython/objects.h"
#include "cpython/version.h"
#include "fake/numpy_scalar_input.h"
#include "graph/record/torch_types.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/core/error_text.h"
#include "trace/core/tracer.h"
#include "trace/symbolic/refuse_value.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>
#include <cmath>
#include <tuple>

namespace alternator::trace {

// No float: native code reads the number of one without asking.
PyTypeObject deferred_random_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

static PyObject* refuse_deferred_random() { return refuse(report::Reason::random_number, "a random number"); }

static int init_deferred_strings();

int init_deferred_random() {
  static PyNumberMethods numbers;
  auto one = [](PyObject*) { return refuse_deferred_random(); };
  auto two = [](PyObject*, PyObject*) { return refuse_deferred_random(); };
  auto three = [](PyObject*, PyObject*, PyObject*) { return refuse_deferred_random(); };
  numbers.nb_add = numbers.nb_subtract = numbers.nb_multiply = numbers.nb_remainder = numbers.nb_divmod = two;
  numbers.nb_floor_divide = numbers.nb_true_divide = two;
  numbers.nb_power = three;
  numbers.nb_negative = numbers.nb_positive = numbers.nb_absolute = one;
  numbers.nb_int = numbers.nb_float = numbers.nb_index = one;
  numbers.nb_bool = [](PyObject*) -> int { return refuse_deferred_random(), -1; };
  deferred_random_type.tp_name = "float";
  deferred_random_type.tp_basicsize = sizeof(fake::NumpyScalarInput);  // numbers of numpy's refuse the same
  deferred_random_type.tp_dealloc = [](PyObject* object) {
    Py_CLEAR(reinterpret_cast<fake::NumpyScalarInput*>(object)->example);
    Py_TYPE(object)->tp_free(object);
  };
  fake::numpy_scalar_input_type = &deferred_random_type;
  deferred_random_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  deferred_random_type.tp_as_number = &numbers;
  deferred_random_type.tp_hash = [](PyObject*) -> Py_hash_t { return refuse_deferred_random(), -1; };
  deferred_random_type.tp_richcompare = [](PyObject*, PyObject*, int) { return refuse_deferred_random(); };
  deferred_random_type.tp_getattro = two;
  deferred_random_type.tp_repr = one;
  deferred_random_type.tp_str = one;
  return PyType_Ready(&deferred_random_type) < 0 ? -1 : init_deferred_strings();
}

PyTypeObject deferred_string_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
static std::atomic<size_t> texts_alive = 0;

static PyObject* refuse_text() { return refuse(report::Reason::tensor_text, "a text"); }

static int init_deferred_strings() {
  static PyNumberMethods numbers;
  static PySequenceMethods sequence;
  static PyMappingMethods mapping;
  auto one = [](PyObject*) { return refuse_text(); };
  auto two = [](PyObject*, PyObject*) { return refuse_text(); };
  numbers.nb_remainder = numbers.nb_add = numbers.nb_multiply = two;
  numbers.nb_bool = [](PyObject*) -> int { return refuse_text(), -1; };
  sequence.sq_length = mapping.mp_length = [](PyObject*) -> Py_ssize_t { return refuse_text(), -1; };
  sequence.sq_item = [](PyObject*, Py_ssize_t) { return refuse_text(); };
  sequence.sq_contains = [](PyObject*, PyObject*) -> int { return refuse_text(), -1; };
  mapping.mp_subscript = two;
  deferred_string_type.tp_name = "str";
  deferred_string_type.tp_basicsize = sizeof(PyObject);
  deferred_string_type.tp_dealloc = [](PyObject* object) {
    texts_alive--;
    Py_TYPE(object)->tp_free(object);
  };
  deferred_string_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  deferred_string_type.tp_as_number = &numbers;
  deferred_string_type.tp_as_sequence = &sequence;
  deferred_string_type.tp_as_mapping = &mapping;
  deferred_string_type.tp_hash = [](PyObject*) -> Py_hash_t { return refuse_text(), -1; };
  deferred_string_type.tp_richcompare = [](PyObject*, PyObject*, int) { return refuse_text(); };
  deferred_string_type.tp_getattro = two;
  deferred_string_type.tp_iter = one;
  deferred_string_type.tp_repr = one;
  deferred_string_type.tp_str = one;
  return PyType_Ready(&deferred_string_type);
}

size_t deferred_strings() { return texts_alive; }

Ref make_deferred_string() {
  note_unbacked_symbol();
  Ref text = checked(deferred_string_type.tp_alloc(&deferred_string_type, 0));
  texts_alive++;
  return text;
}

// Whether what an f-string shows of it is left for later. Its text must not fail: a format is for those who know it.
bool Tracer::may_show_later(Borrowed value, Borrowed format) const {
  if (format && !(PyUnicode_CheckExact(format.get()) && PyUnicode_GET_LENGTH(format.get()) == 0)) return false;
  if (transformed_ || recorder.is_silent() || at::impl::PythonTorchFunctionTLS::stack_len() != 1) return false;
  if (is_deferred_string(value) || fake::is_symbol(value)) return true;
  return value.type() == reinterpret_cast<PyTypeObject*>(THPVariableClass) && fake::is_fake(fake::unpack(value.get()));
}

Ref Tracer::show_later() {
  if (deferred_points_.empty()) {
    deferred_points_ = points_here();
    deferred_event_ = event_here(report::Reason::tensor_text, {});
  }
  return make_deferred_string();
}

static Ref make_deferred_random() {
  note_unbacked_symbol();
  return checked(deferred_random_type.tp_alloc(&deferred_random_type, 0));
}

// _random.Random.random, the generator that is written in C.
static Borrowed native_draw() {
  static constinit Lasting<PyObject*> lasting;
  return lasting.get([] {
    Ref type = checked(PyObject_GetAttrString(import_module("_random").get(), "Random"));
    return checked(PyObject_GetAttrString(type.get(), "random")).release();
  });
}

Ref Tracer::random_method(Borrowed owner, Borrowed name) {
  PyTypeObject* type = owner.type();
  Borrowed draw = native_draw();
  if (!PyUnicode_Check(name.get()) || PyUnicode_CompareWithASCIIString(name.get(), "random") != 0 ||
      PyType_IsSubtype(type, reinterpret_cast<PyDescrObject*>(draw.get())->d_type) == 0 ||
      type->tp_getattro != PyObject_GenericGetAttr || Borrowed(lifter.type_attribute(type, name)) != draw) {
    return {};
  }
  if (lift::Shadow* attributes = lifter.attributes(owner); attributes != nullptr) {
    if (lifter.dict_contains(*attributes, name)) return {};
  }
  return checked(PyCFunction_NewEx(draw.as<PyMethodDescrObject>()->d_method, owner.get(), nullptr));
}

Ref Tracer::call_random(Borrowed callable, size_t count) {
  if (!PyCFunction_Check(callable.get()) || count != 0) return {};
  Borrowed draw = native_draw(), self = PyCFunction_GET_SELF(callable.get());
  if (!self || callable.as<PyCFunctionObject>()->m_ml != draw.as<PyMethodDescrObject>()->d_method) return {};
  const lift::Known* known = lifter.known(self);
  // What runs for real in the graph would draw once more.
  if (known == nullptr || known->source == nullptr || recorder.is_silent()) return {};
  if (deferred_points_.empty()) {
    deferred_points_ = points_here();
    deferred_event_ = event_here(report::Reason::random_number, {});
  }
  lifter.add_effect({Ref::share(callable), checked(PyTuple_New(0)), {}});
  return make_deferred_random();
}

// What may be done with a number of numpy's that only a run knows: nothing whose result has a class, a type or a shape
// that depends on the number. With a tensor, the first four.
static const char* name_of_arithmetic(binaryfunc operation, bool with_tensor) {
  const std::tuple<binaryfunc, binaryfunc, const char*> rows[] = {
      {PyNumber_Add, PyNumber_InPlaceAdd, "add"},
      {PyNumber_Subtract, PyNumber_InPlaceSubtract, "sub"},
      {PyNumber_Multiply, PyNumber_InPlaceMultiply, "mul"},
      {PyNumber_TrueDivide, PyNumber_InPlaceTrueDivide, "truediv"},
      {PyNumber_FloorDivide, PyNumber_InPlaceFloorDivide, "floordiv"},
      {PyNumber_Remainder, PyNumber_InPlaceRemainder, "mod"},
  };
  size_t usable = with_tensor ? 4 : std::size(rows);
  for (const auto& [plain, in_place, name] : rows) {
    if (usable-- == 0) break;
    if (operation == plain || (operation == in_place && !with_tensor)) return name;
  }
  return nullptr;
}

static bool is_numpys(Borrowed object) {
  return lift::is_numpy_number(object.get()) && lift::numpy_kind(object.get()) != lift::NumpyKind::kBool;
}

// An operator of such a number, and of another one or a tensor: a node that calls numpy, or torch, on the number
// itself. While tracing, the same is done with another number of its class, which says what the result looks like.
static Ref combine_numpy_scalar_input(Tracer& tracer, binaryfunc operation, Borrowed left, Borrowed right) {
  using fake::is_numpy_scalar_input;
  const auto refuse = [](const char* what) { stop(report::Reason::unknown_number, what); };
  Borrowed tensor = graph::is_tensor(left) ? left : graph::is_tensor(right) ? right : Borrowed();
  const char* name = name_of_arithmetic(operation, static_cast<bool>(tensor));
  const auto fits = [](Borrowed operand) {
    return is_numpy_scalar_input(operand) || PyLong_CheckExact(operand.get()) || PyFloat_CheckExact(operand.get()) ||
           is_numpys(operand);
  };
  if (name == nullptr || (!tensor && (!fits(left) || !fits(right)))) refuse("an operator of a number of numpy's");
  if (tensor) {
    const at::Tensor& fake = fake::unpack(tensor.get());
    if (!Tracer::is_torchs_operation(tensor, {}) || !fake::is_fake(fake) || fake::is_wrapped(fake) ||
        tracer.session.known_value(fake))
      refuse("an operator of a number of numpy's and a tensor that is known, or of a subclass");
  }
  const auto example = [&](Borrowed operand) {
    if (!is_numpy_scalar_input(operand)) return Ref::share(operand);
    Borrowed number = fake::example_of(operand);
    return tensor ? lift::python_number(number) : Ref::share(number);
  };
  Ref function = graph::torch_name("operator", name);
  Ref tried_left = example(left), tried_right = example(right), result;
  {
    const Paused paused(tracer);
    const graph::Recorder::Silent silent(tracer.recorder);
    const lift::WarningsRaise warnings;
    const lift::NumpyErrorsSet ignored(lift::NumpyErrorsSet::Kind::kIgnored);
    result = Ref::steal(PyObject_CallFunctionObjArgs(function.get(), tried_left.get(), tried_right.get(), nullptr));
  }
  if (!result) stop(report::Reason::native_call, std::string("operator.") + name + ": " + take_error_text());
  if (!tensor) {
    if (!is_numpys(result)) refuse("an operator of a number of numpy's that gives something else");
    result = fake::make_numpy_scalar_input(result);
    tracer.keep_alive.push_back(Ref(result));
  }
  for (Borrowed operand : {left, right}) {
    const lift::Known* known = is_numpy_scalar_input(operand) ? tracer.lifter.known(operand) : nullptr;
    if (known == nullptr) continue;
    Ref label = checked(PyUnicode_FromString(known->source->text().c_str()));
    tracer.recorder.declare_array(operand, label, checked(PyLong_FromUnsignedLong(known->source->id)));
  }
  PyObject* operands[] = {left.get(), right.get()};
  tracer.recorder.note_array_call(function, operands, 2, {}, Ref(result), /*writes=*/false);
  return result;
}

Ref Tracer::combine_deferred_random(binaryfunc operation, Borrowed left, Borrowed right) {
  if (fake::is_numpy_scalar_input(left) || fake::is_numpy_scalar_input(right)) {
    if (transformed_ || recorder.is_silent() || recorder.is_checkpointed() || is_under_modes() ||
        at::impl::PythonTorchFunctionTLS::stack_len() != 1)
      stop(report::Reason::unknown_number, "a number of numpy's under a mode or inside of a transform");
    return combine_numpy_scalar_input(*this, operation, left, right);
  }
  const bool divides = operation == PyNumber_TrueDivide || operation == PyNumber_InPlaceTrueDivide;
  const bool known = divides || operation == PyNumber_Add || operation == PyNumber_Subtract ||
                     operation == PyNumber_Multiply || operation == PyNumber_InPlaceAdd ||
                     operation == PyNumber_InPlaceSubtract || operation == PyNumber_InPlaceMultiply;
  auto fits = [&](Borrowed operand, bool as_divisor) {
    if (is_deferred_random(operand)) return !as_divisor;  // it may be zero
    if (!PyFloat_CheckExact(operand.get()) && !PyLong_CheckExact(operand.get())) return false;
    const double number = PyFloat_AsDouble(operand.get());
    if (number == -1.0 && PyErr_Occurred()) return PyErr_Clear(), false;  // too large for a float
    return !as_divisor || number != 0.0;
  };
  if (!known || !fits(left, false) || !fits(right, divides)) stop(report::Reason::random_number, "an operator");
  return make_deferred_random();
}

}  // namespace alternator::trace
