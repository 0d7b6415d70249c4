// Unbacked symbols (fake/unbacked_symbol.h): what a program may do with one.
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/core/tracer.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/speculated_checks.h"
#include "trace/torch/torch_calls.h"

#include "cpython/objects.h"
#include "graph/record/torch_types.h"
#include "interpreter/binary_operations.h"
#include "trace/calls/handlers.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"

#include <algorithm>
#include <cstring>

namespace alternator::trace {

using fake::is_symbol;

namespace {

constexpr const char* kOfSymbol = " of an unbacked symbol";
constexpr const char* kComparison = "a comparison of an unbacked symbol";

bool is_number(Borrowed object) {
  return PyLong_CheckExact(object.get()) || PyFloat_CheckExact(object.get()) ||
         (is_symbol(object) && !fake::is_truth_symbol(object));
}
bool is_integer(Borrowed object) {
  return PyLong_CheckExact(object.get()) || Py_IS_TYPE(object.get(), &fake::int_symbol_type);
}

// The active tracer, for a slot; null: an exception is set.
Tracer* active_tracer() {
  Tracer* tracer = Tracer::current();
  if (tracer != nullptr && !tracer->result.stopped) return tracer;
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_SystemError, "alternator: an unbacked symbol of a trace was used outside of it");
  return nullptr;
}

// Runs a slot's body; what it throws stops the trace.
template <class Body>
PyObject* in_slot(Body&& body) noexcept {
  Tracer* tracer = active_tracer();
  if (tracer == nullptr) return nullptr;
  try {
    return body(*tracer).release();
  } catch (const PyError&) {
    PyErr_Clear();
    tracer->stop_here(report::Reason::unbacked_value, "arithmetic");
  } catch (const Stop& stop) {
    tracer->stop_here(stop.reason, stop.context);
  } catch (const std::exception& error) {
    tracer->stop_here(report::Reason::internal, error.what());
  }
  return nullptr;
}

PyObject* operate_in_slot(const char* function, PyObject* left, PyObject* right) noexcept {
  return in_slot([&](Tracer& tracer) -> Ref {
    PyObject* operands[] = {left, right};
    if (tracer.backed->any()) {
      if (Ref number = tracer.backed->operate(function, left, right)) return number;
      if (!is_symbol(left) && (right == nullptr || !is_symbol(right)))
        return Ref::steal(PyObject_Vectorcall(graph::torch_name("operator", function).get(), operands,
                                              right != nullptr ? 2 : 1, nullptr));  // the program's own exception
    }
    if (std::strcmp(function, "abs") == 0) stop(report::Reason::unbacked_value, "abs() of an unbacked symbol");
    return operate(tracer, graph::torch_name("operator", function), operands, right != nullptr ? 2 : 1);
  });
}

PyObject* compute_in_slot(const char* function, PyObject* left, PyObject* right) noexcept {
  return in_slot([&](Tracer& tracer) { return tracer.backed->operate(function, left, right); });
}

PyObject* compare_in_slot(PyObject* left, PyObject* right, int operation) noexcept {
  return in_slot([&](Tracer& tracer) { return compare_numbers(tracer, left, right, operation); });
}

bool specialize_in_slot(PyObject* symbol) noexcept {
  Tracer* tracer = Tracer::current();
  if (tracer == nullptr || tracer->result.stopped || !tracer->backed->is_backed(symbol)) return false;
  try {
    tracer->backed->make_plain(symbol);
    return true;
  } catch (const std::exception& error) {
    tracer->stop_here(report::Reason::internal, error.what());
    return false;
  }
}

bool may_divide_in_slot(PyObject* divisor) noexcept {
  Tracer* tracer = Tracer::current();
  if (tracer == nullptr || tracer->result.stopped || !tracer->backed->is_backed(divisor)) return false;
  try {
    if (tracer->backed->is_nonzero(divisor)) return true;
    tracer->backed->make_plain(divisor);
    return true;
  } catch (const std::exception& error) {
    tracer->stop_here(report::Reason::internal, error.what());
    return false;
  }
}

void refuse_in_slot(const char* what) noexcept {
  if (Tracer* tracer = active_tracer())
    tracer->stop_here(report::Reason::unbacked_value, what + std::string(kOfSymbol));
}

// Of int and float alike.
PyObject* power_of_symbols(PyObject* base, PyObject* exponent) {
  return fake::int_symbol_type.tp_as_number->nb_power(base, exponent, Py_None);
}

// The slot that implements an opcode's operation.
binaryfunc slot_of(const PyNumberMethods& numbers, binaryfunc operation) {
  const std::pair<binaryfunc, binaryfunc> rows[] = {
      {PyNumber_Add, numbers.nb_add},
      {PyNumber_InPlaceAdd, numbers.nb_add},
      {PyNumber_Subtract, numbers.nb_subtract},
      {PyNumber_InPlaceSubtract, numbers.nb_subtract},
      {PyNumber_Multiply, numbers.nb_multiply},
      {PyNumber_InPlaceMultiply, numbers.nb_multiply},
      {PyNumber_FloorDivide, numbers.nb_floor_divide},
      {PyNumber_InPlaceFloorDivide, numbers.nb_floor_divide},
      {PyNumber_TrueDivide, numbers.nb_true_divide},
      {PyNumber_InPlaceTrueDivide, numbers.nb_true_divide},
      {PyNumber_Remainder, numbers.nb_remainder},
      {PyNumber_InPlaceRemainder, numbers.nb_remainder},
      {PyNumber_Divmod, numbers.nb_divmod},
      {power, power_of_symbols},
      {power_in_place, power_of_symbols},
  };
  for (const auto& [function, slot] : rows) {
    if (function == operation) return slot;
  }
  return nullptr;
}

bool is_container(Borrowed object) {
  PyObject* o = object.get();
  return PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) ||
         PyObject_TypeCheck(o, lift::known_types().deque);
}

// Whether a symbol may be found in it. An object that cannot be inspected may hold one.
bool may_hold(Borrowed value, int depth = 0) {
  constexpr int kDeepest = 20;
  PyObject* v = value.get();
  if (is_symbol(value) || is_deferred_string(value)) return true;
  if (PySlice_Check(v)) {
    auto* s = reinterpret_cast<PySliceObject*>(v);
    return may_hold(s->start, depth + 1) || may_hold(s->stop, depth + 1) || may_hold(s->step, depth + 1);
  }
  if (lift::is_plain(v) || graph::is_tensor(value) || PyType_Check(v) || PyModule_Check(v) || PyCFunction_Check(v))
    return false;
  if (depth > kDeepest) return true;
  if (PyList_CheckExact(v) || PyTuple_Check(v)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) {
      if (may_hold(PySequence_Fast_GET_ITEM(v, i), depth + 1)) return true;
    }
    return false;
  }
  if (PyDict_CheckExact(v)) {
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(v, &position, &key, &item);) {
      if (may_hold(item, depth + 1)) return true;  // a key was hashed, so it is not a symbol
    }
    return false;
  }
  return !PyAnySet_CheckExact(v);
}

}  // namespace

int init_symbol_hooks() {
  fake::symbol_hooks = {operate_in_slot, compute_in_slot,    compare_in_slot,
                        refuse_in_slot,  specialize_in_slot, may_divide_in_slot};
  return fake::init_symbols();
}

Ref operate(Tracer& t, Borrowed function, PyObject* const* arguments, size_t count) {
  const Paused paused(t);
  return t.recorder.operate(function, arguments, count);
}

// Two tuples, or lists, of as many integers; of a torch.Size and a tuple, too.
static bool are_rows_of_integers(Borrowed left, Borrowed right) {
  const auto is_tuple = [](Borrowed object) {
    return PyTuple_CheckExact(object.get()) || Borrowed(object.type()) == Borrowed(graph::torch_types().size);
  };
  const bool are_alike =
      (is_tuple(left) && is_tuple(right)) || (PyList_CheckExact(left.get()) && PyList_CheckExact(right.get()));
  if (!are_alike || PySequence_Fast_GET_SIZE(left.get()) != PySequence_Fast_GET_SIZE(right.get())) return false;
  for (const Borrowed row : {left, right}) {
    PyObject** items = PySequence_Fast_ITEMS(row.get());
    if (!std::all_of(items, items + PySequence_Fast_GET_SIZE(row.get()), is_integer)) return false;
  }
  return true;
}

// Whether they are equal is one condition: element by element, each that is compared would be a guard. Null: it cannot
// be expressed.
static Ref compare_rows(Tracer& t, Borrowed left, Borrowed right, int operation) {
  fake::BackedSymbols& symbols = *t.backed->symbols();
  const auto expression = [&](PyObject* number) -> shapes::Expression {
    if (is_symbol(number)) return symbols.expression_of(number);
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow == 0 ? symbols.environment.integer(value) : nullptr;
  };
  std::vector<shapes::Expression> equal;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(left.get()); i++) {
    const shapes::Expression a = expression(PySequence_Fast_GET_ITEM(left.get(), i)),
                             b = expression(PySequence_Fast_GET_ITEM(right.get(), i));
    equal.push_back(a != nullptr && b != nullptr ? symbols.environment.equal(a, b) : nullptr);
    if (equal.back() == nullptr || !equal.back()->has_hint) return {};
  }
  const shapes::Expression are_same = symbols.environment.all_of(equal);
  if (are_same == nullptr || !are_same->has_hint) return {};
  return checked(PyBool_FromLong(symbols.decide(are_same) == (operation == Py_EQ) ? 1 : 0));
}

constexpr const char* kComparisons[] = {"lt", "le", "eq", "ne", "gt", "ge"};

// The result is a bool where it follows from the symbols' ranges; otherwise it is an unbacked bool.
Ref compare_numbers(Tracer& t, Borrowed left, Borrowed right, int operation) {
  if (!is_number(left)) {
    Ref answer = operation == Py_EQ || operation == Py_NE ? compare_rows(t, left, right, operation) : Ref();
    return answer ? std::move(answer) : checked(PyObject_RichCompare(left.get(), right.get(), operation));
  }
  if (t.backed->any()) {
    if (Ref answer = t.backed->compare(left, right, operation)) return answer;
    if (!is_symbol(left) && !is_symbol(right)) return checked(PyObject_RichCompare(left.get(), right.get(), operation));
  }
  // Integers only: x - x == 0 fails for an infinite float, which torch's ranges do not account for.
  if (is_integer(left) && is_integer(right)) {
    const Paused paused(t);
    Ref torch_left = is_symbol(left) ? t.recorder.torch_symbol(left) : Ref::share(left);
    Ref torch_right = is_symbol(right) ? t.recorder.torch_symbol(right) : Ref::share(right);
    Ref answer = checked(PyObject_RichCompare(torch_left.get(), torch_right.get(), operation));
    const int truth = PyObject_IsTrue(answer.get());
    if (truth >= 0) return Ref::share(truth != 0 ? Py_True : Py_False);
    PyErr_Clear();
    PyObject* operands[] = {left.get(), right.get()};
    Ref symbol = t.recorder.operate(graph::torch_name("operator", kComparisons[operation]), operands, 2);
    if (fake::is_truth_symbol(symbol))
      t.checks->comparisons.push_back({Ref(symbol), Ref::share(left), Ref::share(right), operation});
    return symbol;
  }
  stop(report::Reason::data_dependent, kComparison);
}

// torch._check(n > 3) and its like: every run checks the condition, and it is known from here on.
bool expect(Tracer& t, Borrowed value) {
  if (!fake::is_truth_symbol(value)) return false;
  PyObject* arguments[] = {value.get()};
  (void)operate(t, graph::torch_name("torch", "_check"), arguments, 1);
  return true;
}

// A binary operator with an unbacked symbol on one side and no tensor on the other.
Ref operate(Tracer& t, binaryfunc operation, Borrowed left, Borrowed right) {
  const bool has_slot =
      is_number(left) && is_number(right) && slot_of(*fake::int_symbol_type.tp_as_number, operation) != nullptr;
  if (t.backed->any() && !has_slot && !is_unbacked(t, left) && !is_unbacked(t, right))
    return checked(operation(left.get(), right.get()));
  if (!is_number(left) || !is_number(right))
    stop(report::Reason::unbacked_value,
         std::string("an operator") + kOfSymbol + " and " + (is_symbol(left) ? right : left).type()->tp_name);
  // Not PyNumber_Add: a float on the left would read the symbol's value natively.
  Borrowed symbol = is_symbol(left) ? left : right;
  const binaryfunc slot = slot_of(*symbol.type()->tp_as_number, operation);
  if (slot == nullptr) stop(report::Reason::unbacked_value, std::string("an operator") + kOfSymbol);
  return checked(slot(left.get(), right.get()));
}

// int(x), float(x) of a symbol.
Ref convert_number(Tracer& t, PyTypeObject* type, Borrowed number) {
  if (type == fake::class_of_symbol(number)) return Ref::share(number);
  if (t.backed->is_backed(number)) {
    if (Ref made = t.backed->operate(type == &PyFloat_Type ? "float" : "int", number, {})) return made;
    return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), number.get()));
  }
  PyObject* arguments[] = {number.get()};
  return operate(t, graph::torch_name("torch", type == &PyFloat_Type ? "sym_float" : "sym_int"), arguments, 1);
}

// int(tensor), float(tensor); null: the value is known, or it is not an unbacked scalar.
Ref convert_tensor(Tracer& t, PyTypeObject* type, Borrowed tensor) {
  if (!t.recorder.captures_scalars() || (type != &PyLong_Type && type != &PyFloat_Type)) return {};
  const at::Tensor& fake = fake::unpack(tensor.get());
  if (fake.sym_numel() != 1 || fake.scalar_type() == at::kBool || t.session.known_value(fake)) return {};
  PyObject* arguments[] = {nullptr, tensor.get()};
  Ref number = call_torch(t, graph::torch_types().tensor_item, arguments + 1, 1, {});
  return is_symbol(number) ? convert_number(t, type, number) : Ref();
}

// x.tolist(): .item() of the elements, one by one.
Ref list_of_numbers(Tracer& t, Borrowed tensor) {
  constexpr int64_t kMost = 1024;
  const at::Tensor& fake = fake::unpack(tensor.get());
  PyObject* arguments[] = {nullptr, tensor.get()};
  if (fake.dim() == 0) return call_torch(t, graph::torch_types().tensor_item, arguments + 1, 1, {});
  if (fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || fake.numel() > kMost)
    stop(report::Reason::data_dependent, "Tensor.tolist: the result is the data of a tensor");
  Ref rows = call_torch(t, graph::torch_types().tensor_unbind, arguments + 1, 1, {});
  Ref list = checked(PyList_New(0));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows.get()); i++)
    check_status(PyList_Append(list.get(), list_of_numbers(t, PyTuple_GET_ITEM(rows.get(), i)).get()));
  return list;
}

bool may_hold_unbacked(Tracer& t, Borrowed value) {
  t.backed->make_plain(value);
  return (t.recorder.has_unbacked() || deferred_strings() > 0) && may_hold(value);
}

bool may_hold_symbol(const Tracer& t, Borrowed value) {
  return (t.recorder.has_symbols() || deferred_strings() > 0) && may_hold(value);
}

bool has_native_length(Borrowed object) {
  PyTypeObject* type = object.type();
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return true;
  PyObject* length = _PyType_Lookup(type, checked(PyUnicode_InternFromString("__len__")).get());
  return length == nullptr || !PyFunction_Check(length);
}

static bool holds_cells(Borrowed object) {
  if (PyCell_Check(object.get())) return true;
  if (!PyTuple_CheckExact(object.get()) && !PyList_CheckExact(object.get())) return false;
  PyObject** items = PySequence_Fast_ITEMS(object.get());
  return std::any_of(items, items + PySequence_Fast_GET_SIZE(object.get()),
                     [](PyObject* item) { return item != nullptr && PyCell_Check(item); });
}

// The elements of a list, a tuple or a torch.Size are all integers: with a float among them, native code would read the
// symbols' values.
static bool holds_integers_only(Borrowed sequence) {
  if (!PyList_CheckExact(sequence.get()) && !PyTuple_CheckExact(sequence.get()) &&
      sequence.type() != graph::torch_types().size)
    return false;
  PyObject** items = PySequence_Fast_ITEMS(sequence.get());
  return std::all_of(items, items + PySequence_Fast_GET_SIZE(sequence.get()), is_integer);
}

// A float on the left would compare natively with the value of a symbol on the right, in a container too.
void check_comparison(Tracer& t, Borrowed left, Borrowed right) {
  // Native code compares the cells' contents, and the traced program may have rebound them.
  if (left != right && (holds_cells(left) || holds_cells(right)))
    stop(report::Reason::native_call, "a comparison of cells");
  if (!t.recorder.has_symbols() || graph::is_tensor(left) || graph::is_tensor(right)) return;
  const bool numbers = is_number(left) && is_number(right);
  const bool are_backed =
      (!is_symbol(left) || t.backed->is_backed(left)) && (!is_symbol(right) || t.backed->is_backed(right));
  if (numbers && are_backed) return;
  if (numbers && (is_symbol(left) || is_symbol(right))) {
    if (!is_integer(left) || !is_integer(right)) stop(report::Reason::data_dependent, kComparison);
    return;
  }
  auto is_other = [](Borrowed object) { return object.get() == Py_None || PyUnicode_CheckExact(object.get()); };
  if (is_symbol(left) ? is_other(right) : is_symbol(right) && is_other(left)) return;
  auto holds = [&](Borrowed object) {
    const bool compares_items =
        is_container(object) || object.type() == &PyDictProxy_Type || PySlice_Check(object.get());
    return is_unbacked(t, object) || (compares_items && may_hold_unbacked(t, object));
  };
  // Elements of two tuples are compared by their slots, unless one is a float.
  if (!t.recorder.has_unbacked() && holds_integers_only(left) && holds_integers_only(right)) return;
  if (holds(left) || holds(right)) stop(report::Reason::data_dependent, kComparison);
}

bool compares_symbols(const Tracer& t, Borrowed left, Borrowed right) {
  if (!t.backed->any()) return false;
  if (is_number(left) && is_number(right)) return is_symbol(left) || is_symbol(right);
  if (t.recorder.has_unbacked() || !are_rows_of_integers(left, right)) return false;
  const auto has_symbol = [](Borrowed row) {
    PyObject** items = PySequence_Fast_ITEMS(row.get());
    return std::any_of(items, items + PySequence_Fast_GET_SIZE(row.get()),
                       [](PyObject* item) { return is_symbol(item); });
  };
  return has_symbol(left) || has_symbol(right);
}

bool is_torchs_operation(Borrowed left, Borrowed right) {
  auto is_torchs = [](Borrowed object) {
    return Borrowed(object.type()) == Borrowed(THPVariableClass) || Borrowed(object.type()) == Borrowed(ParameterClass);
  };
  auto is_plain = [&](Borrowed object) {
    return !object || is_torchs(object) || is_symbol(object) || lift::is_plain(object.get());
  };
  return is_plain(left) && is_plain(right) && (is_torchs(left) || (right && is_torchs(right)));
}

// Whether its row says that it moves its arguments. What a method of a builtin type says of itself does not go for a
// subclass, which may override what the method calls.
static bool moves_by_contract(Borrowed callable, NativeFlags flags) {
  if (!flags.has(native::kMoves)) return false;
  PyObject* self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  return self == nullptr || PyModule_Check(self) || PyType_Check(self) || PyUnicode_CheckExact(self) ||
         PyDict_CheckExact(self) || Py_IS_TYPE(self, &PyODict_Type);
}

// Whether the bound method of a container moves its arguments without reading their values.
static bool moves_in_container(Borrowed callable, NativeFlags flags) {
  if (!PyCFunction_Check(callable.get())) return false;
  PyObject* self = PyCFunction_GET_SELF(callable.get());
  // A mappingproxy forwards the call to its mapping, whose Python methods, if any, are traced.
  const bool holds_others = self != nullptr && (is_container(self) || Py_IS_TYPE(self, &PyDictProxy_Type));
  return holds_others && !flags.has(native::kReadsValues);
}

// A sum reads values only where it adds an int to a float, which the type of the result shows.
bool reads_digits(Borrowed callable, NativeFlags flags) {
  return !moves_by_contract(callable, flags) && callable != Borrowed(Natives::table().sum) &&
         !flags.has(native::kFolds) && !moves_in_container(callable, flags);
}
bool reads_digits(PyTypeObject* base) { return !Natives::table().flags_of_type(base).has(native::kMoves); }

static thread_local bool reading = false, adding = false;
Reading::Reading(bool reads, bool adds)
    : before_(std::exchange(reading, reads)), added_before_(std::exchange(adding, adds)) {}
Reading::~Reading() {
  reading = before_;
  adding = added_before_;
}
bool Reading::now() { return reading || later(); }
bool Reading::adds() { return adding; }
bool& Reading::later() {
  static thread_local bool later = false;
  return later;
}

size_t& integers_given() {
  static thread_local size_t count = 0;
  return count;
}

// To be called before native code receives a symbol whose value it might read.
void check_symbols(Tracer& t, Borrowed callable, NativeFlags flags, PyObject* const* arguments, size_t count) {
  if (!t.recorder.has_symbols() && deferred_strings() == 0) return;
  const auto reason = t.recorder.has_unbacked() ? report::Reason::unbacked_value : report::Reason::tensor_text;
  if (moves_by_contract(callable, flags)) {
    if (flags.has(native::kJoinsText) && deferred_strings() > 0 && count > 0 && may_hold(arguments[0]))
      stop(report::Reason::tensor_text, native_name(callable));
    if (!flags.has(native::kReadsType) && count > 0 && is_unbacked(t, arguments[0]))
      stop(report::Reason::unbacked_value, native_name(callable) + kOfSymbol);
    return;
  }
  if (callable == Borrowed(Natives::table().sum) && count == 1 && holds_integers_only(arguments[0])) return;
  PyObject* self = PyCFunction_Check(callable.get()) ? PyCFunction_GET_SELF(callable.get()) : nullptr;
  const bool moves = moves_in_container(callable, flags);
  const bool is_function = self == nullptr || PyModule_Check(self) || flags.has(native::kListed);
  if (!is_function && !moves && may_hold_unbacked(t, self)) stop(reason, native_name(callable));
  for (size_t i = 0; i < count; i++) {
    const bool kept = moves && (flags.has(native::kTakesValues) || !is_symbol(arguments[i]));
    if (!kept && may_hold_unbacked(t, arguments[i])) stop(reason, native_name(callable));
  }
}

// The same for the constructor of a type with the layout of `base`.
void check_symbols(Tracer& t, PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count) {
  if (!t.recorder.has_symbols() && deferred_strings() == 0) return;
  const auto reason = t.recorder.has_unbacked() ? report::Reason::unbacked_value : report::Reason::tensor_text;
  const NativeFlags flags = Natives::table().flags_of_type(base);
  const bool keeps = flags.has(native::kKeeps), moves = flags.has(native::kMoves);
  for (size_t i = 0; i < count; i++) {
    const bool is_alone = is_symbol(arguments[i]) || is_deferred_string(arguments[i]);
    if (is_alone ? !keeps && (is_deferred_string(arguments[i]) || is_unbacked(t, arguments[i]))
                 : !moves && may_hold_unbacked(t, arguments[i]))
      stop(reason, type->tp_name);
  }
}

}  // namespace alternator::trace
