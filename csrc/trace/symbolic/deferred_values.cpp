#include "trace/symbolic/deferred_values.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/torch_function_modes.h"

#include "cpython/objects.h"
#include "cpython/version.h"
#include "fake/numpy_scalar_input.h"
#include "graph/record/torch_types.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/handlers.h"
#include "trace/core/error_text.h"
#include "trace/core/refuse_value.h"
#include "trace/core/tracer.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>
#include <cmath>
#include <tuple>

namespace alternator::trace {

// Not a float subclass: native code reads a float's value directly, without calling a slot.
PyTypeObject deferred_random_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

static PyObject* refuse_deferred_random() { return refuse(report::Reason::random_number, "a deferred random value"); }

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
  deferred_random_type.tp_basicsize = sizeof(fake::NumpyScalarInput);  // numpy scalar inputs refuse the same operations
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
static std::atomic<size_t> strings_alive = 0;

static PyObject* refuse_deferred_string() { return refuse(report::Reason::tensor_text, "a deferred string"); }

static int init_deferred_strings() {
  static PyNumberMethods numbers;
  static PySequenceMethods sequence;
  static PyMappingMethods mapping;
  auto one = [](PyObject*) { return refuse_deferred_string(); };
  auto two = [](PyObject*, PyObject*) { return refuse_deferred_string(); };
  numbers.nb_remainder = numbers.nb_add = numbers.nb_multiply = two;
  numbers.nb_bool = [](PyObject*) -> int { return refuse_deferred_string(), -1; };
  sequence.sq_length = mapping.mp_length = [](PyObject*) -> Py_ssize_t { return refuse_deferred_string(), -1; };
  sequence.sq_item = [](PyObject*, Py_ssize_t) { return refuse_deferred_string(); };
  sequence.sq_contains = [](PyObject*, PyObject*) -> int { return refuse_deferred_string(), -1; };
  mapping.mp_subscript = two;
  deferred_string_type.tp_name = "str";
  deferred_string_type.tp_basicsize = sizeof(PyObject);
  deferred_string_type.tp_dealloc = [](PyObject* object) {
    strings_alive--;
    Py_TYPE(object)->tp_free(object);
  };
  deferred_string_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  deferred_string_type.tp_as_number = &numbers;
  deferred_string_type.tp_as_sequence = &sequence;
  deferred_string_type.tp_as_mapping = &mapping;
  deferred_string_type.tp_hash = [](PyObject*) -> Py_hash_t { return refuse_deferred_string(), -1; };
  deferred_string_type.tp_richcompare = [](PyObject*, PyObject*, int) { return refuse_deferred_string(); };
  deferred_string_type.tp_getattro = two;
  deferred_string_type.tp_iter = one;
  deferred_string_type.tp_repr = one;
  deferred_string_type.tp_str = one;
  return PyType_Ready(&deferred_string_type);
}

size_t deferred_strings() { return strings_alive; }

Ref make_deferred_string() {
  note_unbacked_symbol();
  Ref text = checked(deferred_string_type.tp_alloc(&deferred_string_type, 0));
  strings_alive++;
  return text;
}

// Whether the string that an f-string shows for it may be deferred. Formatting must not be able to fail, so a format
// specification needs the value.
bool DeferredValues::may_show_later(Borrowed value, Borrowed format) const {
  if (format && !(PyUnicode_CheckExact(format.get()) && PyUnicode_GET_LENGTH(format.get()) == 0)) return false;
  if (t.is_transformed() || t.recorder.is_silent() || at::impl::PythonTorchFunctionTLS::stack_len() != 1) return false;
  if (is_deferred_string(value) || (fake::is_symbol(value) && !t.backed->is_backed(value))) return true;
  return value.type() == reinterpret_cast<PyTypeObject*>(THPVariableClass) && fake::is_fake(fake::unpack(value.get()));
}

Ref DeferredValues::show_later() {
  if (points.empty()) {
    points = t.points_here();
    event = t.event_here(report::Reason::tensor_text, {});
  }
  return make_deferred_string();
}

static Ref make_deferred_random() {
  note_unbacked_symbol();
  return checked(deferred_random_type.tp_alloc(&deferred_random_type, 0));
}

// _random.Random.random, of the generator implemented in C.
static Borrowed native_draw() {
  static constinit Lasting<PyObject*> lasting;
  return lasting.get([] {
    Ref type = checked(PyObject_GetAttrString(import_module("_random").get(), "Random"));
    return checked(PyObject_GetAttrString(type.get(), "random")).release();
  });
}

Ref DeferredValues::random_method(Borrowed owner, Borrowed name) {
  PyTypeObject* type = owner.type();
  Borrowed draw = native_draw();
  if (!PyUnicode_Check(name.get()) || PyUnicode_CompareWithASCIIString(name.get(), "random") != 0 ||
      PyType_IsSubtype(type, reinterpret_cast<PyDescrObject*>(draw.get())->d_type) == 0 ||
      type->tp_getattro != PyObject_GenericGetAttr || Borrowed(t.lifter.classes->attribute(type, name)) != draw) {
    return {};
  }
  if (lift::Shadow* attributes = t.lifter.namespaces->attributes(owner); attributes != nullptr) {
    if (t.lifter.containers->dict_contains(*attributes, name)) return {};
  }
  return checked(PyCFunction_NewEx(draw.as<PyMethodDescrObject>()->d_method, owner.get(), nullptr));
}

Ref DeferredValues::draw(Borrowed method, Borrowed generator) {
  const lift::Known* known = t.lifter.known(generator);
  // What is run eagerly by a node would draw a second time.
  if (known == nullptr || known->source == nullptr || t.recorder.is_silent()) return {};
  if (points.empty()) {
    points = t.points_here();
    event = t.event_here(report::Reason::random_number, {});
  }
  t.lifter.write_log->add_effect({Ref::share(method), checked(PyTuple_New(0)), {}});
  return make_deferred_random();
}

bool register_random_draws(Handlers& handlers) {
  handlers.add(native_draw(), [](Tracer& t, const Call& call) {
    if (!call.has_positional(0) || !PyCFunction_Check(call.callable.get())) return Ref();
    return t.deferred->draw(call.callable, PyCFunction_GET_SELF(call.callable.get()));
  });
  return true;
}

// Operators on a numpy scalar input: none whose result's class, dtype or shape depends on the value. With a tensor, the
// first four.
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

static bool is_numpy_scalar(Borrowed object) {
  return lift::is_numpy_number(object.get()) && lift::numpy_kind(object.get()) != lift::NumpyKind::kBool;
}

// An operator on a numpy scalar input and another scalar or a tensor: a node that calls numpy, or torch, on the scalar
// itself. While tracing, the same call runs on an example value of its class, which shows what the result looks like.
static Ref combine_numpy_scalar_input(Tracer& tracer, binaryfunc operation, Borrowed left, Borrowed right) {
  using fake::is_numpy_scalar_input;
  const auto refuse = [](const char* what) { stop(report::Reason::unbacked_value, what); };
  Borrowed tensor = graph::is_tensor(left) ? left : graph::is_tensor(right) ? right : Borrowed();
  const char* name = name_of_arithmetic(operation, static_cast<bool>(tensor));
  const auto fits = [](Borrowed operand) {
    return is_numpy_scalar_input(operand) || PyLong_CheckExact(operand.get()) || PyFloat_CheckExact(operand.get()) ||
           is_numpy_scalar(operand);
  };
  if (name == nullptr || (!tensor && (!fits(left) || !fits(right)))) refuse("an operator on a numpy scalar");
  if (tensor) {
    const at::Tensor& fake = fake::unpack(tensor.get());
    if (!is_torchs_operation(tensor, {}) || !fake::is_fake(fake) || fake::is_wrapped(fake) ||
        tracer.session.known_value(fake))
      refuse("an operator on a numpy scalar and a tensor that is constant or of a subclass");
  }
  const auto example = [&](Borrowed operand) {
    if (!is_numpy_scalar_input(operand)) return Ref::share(operand);
    Borrowed number = fake::example_of(operand);
    return tensor ? lift::python_number(number) : Ref::share(number);
  };
  Ref function = graph::torch_name("operator", name);
  Ref example_left = example(left), example_right = example(right), result;
  {
    const Paused paused(tracer);
    const graph::Recorder::Silent silent(tracer.recorder);
    const lift::WarningsRaise warnings;
    const lift::NumpyErrorsSet ignored(lift::NumpyErrorsSet::Kind::kIgnored);
    result = Ref::steal(PyObject_CallFunctionObjArgs(function.get(), example_left.get(), example_right.get(), nullptr));
  }
  if (!result) stop(report::Reason::native_call, std::string("operator.") + name + ": " + take_error_text());
  if (!tensor) {
    if (!is_numpy_scalar(result))
      refuse("an operator on a numpy scalar that returns something other than a numpy scalar");
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

Ref DeferredValues::combine(binaryfunc operation, Borrowed left, Borrowed right) {
  if (fake::is_numpy_scalar_input(left) || fake::is_numpy_scalar_input(right)) {
    if (t.is_transformed() || t.recorder.is_silent() || t.recorder.is_checkpointed() || t.function_modes->is_active() ||
        at::impl::PythonTorchFunctionTLS::stack_len() != 1)
      stop(report::Reason::unbacked_value, "a numpy scalar under a mode or inside a transform");
    return combine_numpy_scalar_input(t, operation, left, right);
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
