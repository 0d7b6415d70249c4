// Checks of data that raise: `assert (x > 0).all()`, `if x.isnan().any(): raise ValueError(...)`. The trace takes the
// way that goes on, and the graph returns what was taken for granted. A call whose data says otherwise runs as it is:
// by then nothing was written.
#include "trace/tracer.h"

#include "py/import.h"
#include "py/lasting.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include <set>
#include <unordered_map>

namespace alternator::trace {

namespace {

constexpr int kLongestWayToRaise = 200;

// What may stand between a check and its `raise`: the exception is made, and its text.
bool goes_straight_on(int opcode) {
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
  for (int steps = 0; index >= 0 && index < count && steps < kLongestWayToRaise; steps++) {
    const int opcode = cpython::base_opcode(units[index]);
    if (opcode == RAISE_VARARGS) return true;
    if (!goes_straight_on(opcode)) return false;
    index += 1 + cpython::caches(opcode);
  }
  return false;
}

// The truth value with which the conditional jump at `index` does not lead to a `raise`; none: both do, or neither.
std::optional<bool> harmless_truth(PyCodeObject* code, int index) {
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

// Checks that have failed too often to be taken for granted again: by code object, which is kept.
struct Distrusted {
  Ref code;
  std::set<int> indices;
};
std::unordered_map<PyObject*, Distrusted>& distrusted() {
  static auto* table = new std::unordered_map<PyObject*, Distrusted>();
  return *table;
}

}  // namespace

void distrust(Borrowed code, int index) {
  Distrusted& found = distrusted()[code.get()];
  found.code = Ref::share(code);
  found.indices.insert(index);
}
void forget_distrust() { distrusted().clear(); }

std::optional<bool> Tracer::assume_truth(Borrowed tensor) {
  if (!may_assume || transformed_ || recorder.is_silent() || frame_ == nullptr) return {};
  const bool plain = tensor.type() == reinterpret_cast<PyTypeObject*>(THPVariableClass) ||
                     tensor.type() == reinterpret_cast<PyTypeObject*>(ParameterClass);
  const at::Tensor& fake = fake::unpack(tensor.get());
  if (!plain || fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || fake.numel() != 1) return {};
  if (at::impl::PythonTorchFunctionTLS::stack_len() > 1) return {};
  PyCodeObject* code = cpython::code_of(frame_);
  const std::optional<bool> wanted = harmless_truth(code, index_);
  if (!wanted) return {};
  Ref where = Ref::share(reinterpret_cast<PyObject*>(code));
  const auto found = distrusted().find(where.get());
  if (found != distrusted().end() && found->second.indices.count(index_) != 0) return {};
  // A tensor of its own: nobody writes to it later.
  static constinit Lasting<PyObject*> not_equal;
  Ref zero = checked(PyLong_FromLong(0));
  PyObject* arguments[] = {nullptr, tensor.get(), zero.get()};
  Ref flag = call_torch(
      not_equal.get([] { return checked(PyObject_GetAttrString(import_module("torch").get(), "ne")).release(); }),
      arguments + 1, 2, {});
  assumptions.push_back({std::move(flag), *wanted, std::move(where), index_});
  return wanted;
}

}  // namespace alternator::trace
