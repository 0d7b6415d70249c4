// Data-dependent checks that raise: `assert (x > 0).all()`, `if x.isnan().any(): raise ValueError(...)`. The trace
// speculates that the check passes and follows the path that does not raise; the graph returns the speculated
// conditions. A call whose data violates one falls back to eager: by then no side effect has happened.
#include "trace/symbolic/speculated_checks.h"
#include "trace/core/tracer.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/symbol_tensors.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/torch_calls.h"

#include "py/import.h"
#include "py/lasting.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace alternator::trace {

namespace {

constexpr int kLongestPathToRaise = 200;

// Opcodes that may stand between a check and its `raise`: they build the exception and its message.
bool may_precede_raise(int opcode) {
  switch (opcode) {
    case EXTENDED_ARG:
    case NOP:
    case POP_TOP:
    case PUSH_NULL:
    case COPY:
    case SWAP:
    case LOAD_FAST:
    case STORE_FAST:
    case LOAD_CONST:
    case LOAD_GLOBAL:
    case LOAD_NAME:
    case LOAD_DEREF:
    case LOAD_ATTR:
    case LOAD_ASSERTION_ERROR:
    case UNARY_NOT:
    case UNARY_NEGATIVE:
    case UNARY_INVERT:
    case BINARY_OP:
    case BINARY_SUBSCR:
    case COMPARE_OP:
    case IS_OP:
    case CONTAINS_OP:
    case BUILD_STRING:
    case BUILD_TUPLE:
    case BUILD_LIST:
    case BUILD_SLICE:
    case BUILD_MAP:
    case LIST_EXTEND:
    case GET_ITER:
    case MAKE_FUNCTION:
    case KW_NAMES:
    case CALL:
    case CALL_FUNCTION_EX:
#ifdef FORMAT_VALUE
    case FORMAT_VALUE:
#endif
#ifdef PRECALL
    case PRECALL:
#endif
#ifdef LOAD_METHOD
    case LOAD_METHOD:
#endif
#ifdef LOAD_CLOSURE
    case LOAD_CLOSURE:
#endif
#ifdef LOAD_FAST_CHECK
    case LOAD_FAST_CHECK:
#endif
#ifdef BINARY_SLICE
    case BINARY_SLICE:
#endif
      return true;
    default:
      return false;
  }
}

bool leads_to_raise(PyCodeObject* code, int index) {
  const cpython::CodeUnit* units = cpython::first_instruction(code);
  const int count = static_cast<int>(Py_SIZE(code));
  for (int steps = 0; index >= 0 && index < count && steps < kLongestPathToRaise; steps++) {
    const int opcode = cpython::base_opcode(units[index]);
    if (opcode == RAISE_VARARGS) return true;
    if (!may_precede_raise(opcode)) return false;
    index += 1 + cpython::caches(opcode);
  }
  return false;
}

// The truth value with which the conditional jump at `index` does not lead to a `raise`; nullopt: both do, or neither.
std::optional<bool> truth_without_raise(PyCodeObject* code, int index) {
  const cpython::CodeUnit* units = cpython::first_instruction(code);
  int opcode = EXTENDED_ARG, argument = 0;
  for (; opcode == EXTENDED_ARG; index++) {
    opcode = cpython::base_opcode(units[index]);
    argument = argument << 8 | cpython::argument(units[index]);
  }
  const cpython::TruthJump jump = cpython::truth_jump(opcode, argument);
  if (!jump.known || jump.keeps_value) return {};
  const int after = index + cpython::caches(opcode);
  const bool jump_raises = leads_to_raise(code, after + jump.units), rest_raises = leads_to_raise(code, after);
  if (jump_raises == rest_raises) return {};
  return jump.wanted != jump_raises;
}

// Checks that have failed too often to be speculated again: by code object, which is kept alive.
struct Refuted {
  Ref code;
  std::set<int> indices;
};
std::unordered_map<PyObject*, Refuted>& refuted() {
  static auto* table = new std::unordered_map<PyObject*, Refuted>();
  return *table;
}

}  // namespace

void stop_speculating(Borrowed code, int index) {
  Refuted& found = refuted()[code.get()];
  found.code = Ref::share(code);
  found.indices.insert(index);
}
void forget_refuted_checks() { refuted().clear(); }

bool SpeculatedChecks::may_speculate_here() const {
  if (!t.options.may_speculate || t.is_transformed() || t.recorder.is_silent() || t.current_frame == nullptr)
    return false;
  if (at::impl::PythonTorchFunctionTLS::stack_len() > 1) return false;
  const auto found = refuted().find(reinterpret_cast<PyObject*>(cpython::code_of(t.current_frame)));
  return found == refuted().end() || found->second.indices.count(t.current_index) == 0;
}

static bool is_plain_tensor(Borrowed tensor) {
  return tensor.type() == reinterpret_cast<PyTypeObject*>(THPVariableClass) ||
         tensor.type() == reinterpret_cast<PyTypeObject*>(ParameterClass);
}

// `flag`: a fresh tensor that nothing writes to later.
void SpeculatedChecks::assume(Ref flag, bool wanted) {
  Ref where = Ref::share(reinterpret_cast<PyObject*>(cpython::code_of(t.current_frame)));
  t.result.checks.push_back({std::move(flag), wanted, std::move(where), t.current_index});
}

std::optional<bool> SpeculatedChecks::assume_truth(Borrowed tensor) {
  if (!is_plain_tensor(tensor) || !may_speculate_here()) return {};
  const at::Tensor& fake = fake::unpack(tensor.get());
  if (fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || fake.numel() != 1) return {};
  const std::optional<bool> wanted = truth_without_raise(cpython::code_of(t.current_frame), t.current_index);
  if (!wanted) return {};
  t.backed->specialize_sizes(tensor);
  static constinit Lasting<PyObject*> not_equal;
  Ref zero = checked(PyLong_FromLong(0));
  PyObject* arguments[] = {nullptr, tensor.get(), zero.get()};
  assume(call_torch(t, {not_equal.get([] {
                          return checked(PyObject_GetAttrString(import_module("torch").get(), "ne")).release();
                        }),
                        arguments + 1,
                        2,
                        {}}),
         *wanted);
  return wanted;
}

// The same for a comparison of unbacked integers: `assert lengths.max().item() <= 4`.
std::optional<bool> SpeculatedChecks::assume_comparison(Borrowed truth) {
  const auto compared =
      std::ranges::find_if(comparisons, [&](const Comparison& c) { return Borrowed(c.truth) == truth; });
  if (compared == comparisons.end() || !may_speculate_here()) return {};
  const std::optional<bool> wanted = truth_without_raise(cpython::code_of(t.current_frame), t.current_index);
  if (!wanted) return {};
  // Compared as tensors, which a graph can return. torch.tensor() of unbacked symbols becomes nodes.
  constexpr const char* kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  Ref operands[] = {Ref(compared->left), Ref(compared->right)};
  const int operation = compared->operation;
  for (Ref& operand : operands) {
    if (!fake::is_symbol(operand)) {
      int overflow = 0;
      (void)PyLong_AsLongLongAndOverflow(operand.get(), &overflow);
      if (overflow != 0) return {};
      continue;
    }
    PyObject* number[] = {nullptr, operand.get()};
    Ref tensor = tensor_of_symbols(t, {graph::torch_types().make_tensor, number + 1, 1, {}});
    if (!tensor) return {};
    operand = std::move(tensor);
  }
  if (!graph::is_tensor(operands[0])) return {};
  PyObject* arguments[] = {nullptr, operands[0].get(), operands[1].get()};
  assume(call_torch(t, {graph::torch_name("torch", kNames[operation]), arguments + 1, 2, {}}), *wanted);
  return wanted;
}

// torch._check_tensor_all_with(error, condition): every call checks that all elements are true. Where checks cannot be
// speculated and unbacked symbols are captured, the graph itself raises. False: neither is possible.
bool SpeculatedChecks::expect_all(Borrowed condition) {
  if (!is_plain_tensor(condition)) return false;
  const at::Tensor& fake = fake::unpack(condition.get());
  if (!fake::is_fake(fake) || fake.scalar_type() != at::kBool || t.session.known_value(fake)) return false;
  const bool speculates = may_speculate_here();
  if (!speculates &&
      (t.options.may_speculate || !t.recorder.captures_scalars() || t.is_transformed() || t.recorder.is_silent()))
    return false;
  static constinit Lasting<PyObject*> all_true, to_integer;
  auto method = [](Lasting<PyObject*>& lasting, const char* name) {
    return lasting.get([&] { return checked(PyObject_GetAttrString(THPVariableClass, name)).release(); });
  };
  PyObject* arguments[] = {nullptr, condition.get()};
  Ref all = call_torch(t, {method(all_true, "_is_all_true"), arguments + 1, 1, {}});
  if (speculates) {
    assume(std::move(all), true);
    return true;
  }
  PyObject* of_all[] = {nullptr, all.get()};
  Ref integer = call_torch(t, {method(to_integer, "long"), of_all + 1, 1, {}});
  PyObject* of_integer[] = {nullptr, integer.get()};
  Ref number = call_torch(t, {graph::torch_types().tensor_item, of_integer + 1, 1, {}});
  if (!fake::is_symbol(number)) return PyLong_CheckExact(number.get()) && PyLong_AsLong(number.get()) == 1;
  Ref one = checked(PyLong_FromLong(1));
  return expect(t, compare_numbers(t, number, one, Py_EQ));
}

}  // namespace alternator::trace
