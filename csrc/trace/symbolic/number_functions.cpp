// Builtins and functions of the module `math` that are given numbers which are symbols.
#include "trace/symbolic/unbacked_arithmetic.h"

#include "fake/unbacked_symbol.h"
#include "graph/record/torch_types.h"
#include "interpreter/binary_operations.h"
#include "lift/lifting/dynamism.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/handlers.h"
#include "trace/core/tracer.h"
#include "trace/symbolic/backed_numbers.h"

#include <algorithm>
#include <cstring>

namespace alternator::trace {

using fake::is_symbol;

static bool is_integer(Borrowed object) {
  return PyLong_CheckExact(object.get()) || Py_IS_TYPE(object.get(), &fake::int_symbol_type);
}
static bool is_number(Borrowed object) {
  return is_integer(object) || PyFloat_CheckExact(object.get()) || Py_IS_TYPE(object.get(), &fake::float_symbol_type);
}

// The items that are folded, if all of them are numbers and some are backed symbols; empty: something else is.
static std::vector<Ref> numbers_in(Tracer& t, PyObject* const* items, Py_ssize_t count) {
  std::vector<Ref> numbers;
  bool any = false;
  for (Py_ssize_t i = 0; i < count; i++) {
    const bool is_backed = t.backed->is_backed(items[i]);
    if (!is_number(items[i]) || (is_symbol(items[i]) && !is_backed)) return {};
    any = any || is_backed;
    numbers.push_back(Ref::share(items[i]));
  }
  return any ? std::move(numbers) : std::vector<Ref>();
}
static std::vector<Ref> numbers_of(Tracer& t, Borrowed sequence) {
  if (!t.backed->any() || !(PyList_CheckExact(sequence.get()) || PyTuple_CheckExact(sequence.get()))) return {};
  t.lifter.escape(sequence);
  return numbers_in(t, PySequence_Fast_ITEMS(sequence.get()), PySequence_Fast_GET_SIZE(sequence.get()));
}

// Folding such items runs no code of the program, and raises nothing that the program could tell from a later error.
static bool fold_quietly(Borrowed one, Borrowed other) {
  const auto is_value = [](Borrowed item) {
    return is_number(item) || PyBool_Check(item.get()) || graph::is_tensor(item);
  };
  if (is_value(one)) return is_value(other);
  if (PyUnicode_CheckExact(one.get())) return PyUnicode_CheckExact(other.get());
  if (!PyTuple_CheckExact(one.get()) || !PyTuple_CheckExact(other.get())) return false;
  const Py_ssize_t size = PyTuple_GET_SIZE(one.get());
  if (PyTuple_GET_SIZE(other.get()) != size) return false;
  for (Py_ssize_t i = 0; i < size; i++) {
    if (!fold_quietly(PyTuple_GET_ITEM(one.get(), i), PyTuple_GET_ITEM(other.get(), i))) return false;
  }
  return true;
}

// The first argument is a generator: its items are folded once all are known. Null: it is not. Where folding may run
// code of the program or raise, that would happen between the items.
static Ref fold_of_generator(Tracer& t, const Call& call) {
  const lift::Dynamism* dynamism = t.options.dynamism.get();
  const bool may_vary = t.backed->any() || (dynamism != nullptr && (dynamism->has_sizes() || dynamism->has_numbers()));
  if (!may_vary || !call.has_positional(1, 2) || !PyGen_CheckExact(call.arguments[0])) return {};
  if (call.positional == 2 && !is_number(call.arguments[1])) return {};
  PyObject* given[] = {nullptr, call.arguments[0], nullptr};
  Ref items = trace::call(t, {reinterpret_cast<PyObject*>(&PyList_Type), given + 1, 1, {}});
  if (!items) throw PyError();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); i++) {
    if (!fold_quietly(PyList_GET_ITEM(items.get(), 0), PyList_GET_ITEM(items.get(), i)))
      stop(report::Reason::native_call, "a fold of a generator, next to numbers that differ from call to call");
  }
  given[1] = items.get();
  given[2] = call.positional == 2 ? call.arguments[1] : nullptr;
  Ref folded = trace::call(t, {call.callable, given + 1, call.positional, {}});
  if (!folded) throw PyError();
  return folded;
}

// max(a, b) and min(a, b) of two integers or two floats, one of them an unbacked symbol. Null: it is no such call.
static Ref extreme_of_two(Tracer& t, const Call& call, const char* function) {
  if (!call.has_positional(2)) return {};
  PyObject *left = call.arguments[0], *right = call.arguments[1];
  if (!(is_symbol(left) || is_symbol(right)) || !is_number(left) || !is_number(right) ||
      is_integer(left) != is_integer(right))
    return {};
  if (Ref number = t.backed->operate(function + std::strlen("sym_"), left, right)) return number;
  if (!is_symbol(left) && !is_symbol(right)) return {};
  return operate(t, graph::torch_name("torch", function), call.arguments, 2);
}

// Of an int and a float, the type of the result is known only once they are compared.
static Ref extreme_of_numbers(Tracer& t, const Call& call, const char* function, int better) {
  if (call.keyword_names) return {};
  if (call.positional == 1 && PyGen_CheckExact(call.arguments[0])) return fold_of_generator(t, call);
  const std::vector<Ref> numbers = call.positional == 1
                                       ? numbers_of(t, call.arguments[0])
                                       : numbers_in(t, call.arguments, static_cast<Py_ssize_t>(call.positional));
  if (numbers.empty()) return extreme_of_two(t, call, function);
  const char* name = function + std::strlen("sym_");
  Ref best(numbers[0]);
  for (size_t i = 1; i < numbers.size(); i++) {
    const Ref& item = numbers[i];
    if (is_integer(best) == is_integer(item) && (is_symbol(best) || is_symbol(item))) {
      if (Ref made = t.backed->operate(name, best, item)) {
        best = std::move(made);
        continue;
      }
    }
    const Ref wins = is_symbol(best) || is_symbol(item) ? compare_numbers(t, item, best, better)
                                                        : checked(PyObject_RichCompare(item.get(), best.get(), better));
    if (wins.get() == Py_True) best = Ref(item);
  }
  return best;
}

// CPython adds up floats exactly from 3.12 on.
static Ref sum_of_numbers(Tracer& t, const Call& call) {
  if (!call.has_positional(1, 2)) return {};
  if (PyGen_CheckExact(call.arguments[0])) return fold_of_generator(t, call);
  std::vector<Ref> numbers = numbers_of(t, call.arguments[0]);
  if (numbers.empty()) return {};
  if (call.positional == 2 && !is_number(call.arguments[1])) return {};
#if PY_VERSION_HEX >= 0x030C0000
  if (!std::ranges::all_of(numbers, [](const Ref& number) { return is_integer(number); })) return {};
  if (call.positional == 2 && !is_integer(call.arguments[1])) return {};
#endif
  Ref total = call.positional == 2 ? Ref::share(call.arguments[1]) : checked(PyLong_FromLong(0));
  for (const Ref& number : numbers) {
    total = is_symbol(total) || is_symbol(number) ? operate(t, PyNumber_Add, total, number)
                                                  : checked(PyNumber_Add(total.get(), number.get()));
  }
  return total;
}

static Ref product_of_numbers(Tracer& t, const Call& call) {
  if (!call.has_positional(1)) return {};
  if (PyGen_CheckExact(call.arguments[0])) return fold_of_generator(t, call);
  const std::vector<Ref> numbers = numbers_of(t, call.arguments[0]);
  if (!std::ranges::all_of(numbers, [](const Ref& number) { return is_integer(number); })) return {};
  Ref product = numbers.empty() ? Ref() : checked(PyLong_FromLong(1));
  for (const Ref& number : numbers) {
    product = is_symbol(product) || is_symbol(number) ? operate(t, PyNumber_Multiply, product, number)
                                                      : checked(PyNumber_Multiply(product.get(), number.get()));
  }
  return product;
}

// A function of one or two numbers. Null: its arguments are plain ones now, or something else.
template <size_t kCount>
static Ref function_of_numbers(Tracer& t, const Call& call, const char* name) {
  if (!call.has_positional(kCount)) return {};
  const bool are_numbers =
      std::all_of(call.arguments, call.arguments + kCount, [](PyObject* argument) { return is_number(argument); });
  if (!are_numbers || numbers_in(t, call.arguments, kCount).empty()) return {};
  return t.backed->operate(name, call.arguments[0], kCount == 2 ? Borrowed(call.arguments[1]) : Borrowed());
}

// divmod(a, b), pow(a, b): what the operators do.
static Ref operator_on_numbers(Tracer& t, const Call& call, binaryfunc operation) {
  if (!call.has_positional(2) || numbers_in(t, call.arguments, 2).empty()) return {};
  return operate(t, operation, call.arguments[0], call.arguments[1]);
}

// torch.sym_int, sym_sum and sym_ite of backed integers: what torch's functions make of plain ones. Null: it is no such
// call, and recorded.
static Ref integer_of_backed(Tracer& t, const Call& call) {
  const bool is_one = call.has_positional(1) && is_integer(call.arguments[0]) && t.backed->is_backed(call.arguments[0]);
  return is_one ? Ref::share(call.arguments[0]) : Ref();
}

static Ref sum_of_backed(Tracer& t, const Call& call) {
  if (call.keyword_names || call.positional == 0) return {};
  PyObject* first = call.arguments[0];
  const bool is_sequence = call.positional == 1 && (PyList_CheckExact(first) || PyTuple_CheckExact(first));
  PyObject* const* items = is_sequence ? PySequence_Fast_ITEMS(first) : call.arguments;
  const size_t count = is_sequence ? static_cast<size_t>(PySequence_Fast_GET_SIZE(first)) : call.positional;
  const auto is_known = [&](PyObject* item) {
    return is_integer(item) && (!is_symbol(item) || t.backed->is_backed(item));
  };
  if (!t.backed->any() || !std::all_of(items, items + count, is_known)) return {};
  Ref sum = checked(PyLong_FromLong(0));
  for (size_t i = 0; i < count; i++) {
    Ref next = t.backed->operate("add", sum, items[i]);
    // Too large for an expression: both are plain by now.
    sum = next ? std::move(next) : checked(PyNumber_Add(sum.get(), items[i]));
  }
  return sum;
}

static Ref choice_of_backed(Tracer& t, const Call& call) {
  if (!call.has_positional(3) || !PyBool_Check(call.arguments[0])) return {};
  PyObject *yes = call.arguments[1], *no = call.arguments[2];
  const bool are_known = is_integer(yes) && is_integer(no) && (!is_symbol(yes) || t.backed->is_backed(yes)) &&
                         (!is_symbol(no) || t.backed->is_backed(no));
  return are_known ? Ref::share(call.arguments[0] == Py_True ? yes : no) : Ref();
}

static Ref extreme_of_backed(Tracer& t, const Call& call, const char* function) {
  const bool are_known = t.backed->any() && call.has_positional(2) &&
                         std::all_of(call.arguments, call.arguments + 2, [&](PyObject* number) {
                           return is_integer(number) && (!is_symbol(number) || t.backed->is_backed(number));
                         });
  return are_known ? t.backed->operate(function, call.arguments[0], call.arguments[1]) : Ref();
}

bool register_symbols(Handlers& handlers) {
  handlers.add("torch", "sym_int", integer_of_backed);
  handlers.add("torch", "sym_sum", sum_of_backed);
  handlers.add("torch", "sym_ite", choice_of_backed);
  handlers.add("torch", "sym_max", [](Tracer& t, const Call& call) { return extreme_of_backed(t, call, "max"); });
  handlers.add("torch", "sym_min", [](Tracer& t, const Call& call) { return extreme_of_backed(t, call, "min"); });
  handlers.add("builtins", "max",
               [](Tracer& t, const Call& call) { return extreme_of_numbers(t, call, "sym_max", Py_GT); });
  handlers.add("builtins", "min",
               [](Tracer& t, const Call& call) { return extreme_of_numbers(t, call, "sym_min", Py_LT); });
  handlers.add("builtins", "sum", sum_of_numbers);
  handlers.add("builtins", "divmod",
               [](Tracer& t, const Call& call) { return operator_on_numbers(t, call, PyNumber_Divmod); });
  handlers.add("builtins", "pow", [](Tracer& t, const Call& call) { return operator_on_numbers(t, call, power); });
  handlers.add("math", "prod", product_of_numbers);
#define ALT_OF_NUMBERS(module, name, count) \
  handlers.add(module, name, [](Tracer& t, const Call& call) { return function_of_numbers<count>(t, call, name); });
  ALT_OF_NUMBERS("builtins", "abs", 1)
  ALT_OF_NUMBERS("builtins", "round", 1)
  ALT_OF_NUMBERS("math", "floor", 1)
  ALT_OF_NUMBERS("math", "ceil", 1)
  ALT_OF_NUMBERS("math", "trunc", 1)
  ALT_OF_NUMBERS("math", "sqrt", 1)
  ALT_OF_NUMBERS("math", "exp", 1)
  ALT_OF_NUMBERS("math", "log", 1)
  ALT_OF_NUMBERS("math", "log2", 1)
  ALT_OF_NUMBERS("math", "sin", 1)
  ALT_OF_NUMBERS("math", "cos", 1)
  ALT_OF_NUMBERS("math", "tanh", 1)
  ALT_OF_NUMBERS("math", "gcd", 2)
  ALT_OF_NUMBERS("math", "copysign", 2)
#undef ALT_OF_NUMBERS
  return true;
}

}  // namespace alternator::trace
