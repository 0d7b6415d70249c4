#include "trace/symbolic/backed_numbers.h"

#include "graph/record/torch_types.h"
#include "graph/sizes/size_switches.h"
#include "lift/lifting/symbolic_inputs.h"
#include "trace/core/paused.h"
#include "trace/core/tracer.h"
#include "trace/symbolic/backed_operations.h"

#include <algorithm>
#include <cstring>

namespace alternator::trace {

using shapes::Expression;
using shapes::Kind;

void BackedNumbers::begin() {
  lift::SymbolicInputs& inputs = *t.lifter.symbolic;
  inputs.dynamism = t.options.dynamism.get();
  inputs.hints = t.options.hints.get();
  inputs.is_allowed = [this] { return !t.is_transformed() && !t.recorder.is_in_part() && !t.recorder.is_silent(); };
  t.recorder.on_silence = [this] {
    if (graph::is_open("silent_call")) return;
    for (size_t i = 0; i < symbols_->count(); i++) symbols_->specialize(symbols_->environment.symbol(i));
  };
  inputs.on_first_symbol = [this] {
    symbols_ = t.lifter.symbolic->symbols;
    t.recorder.use_backed(symbols_);
    solver_.emplace(t.recorder.program(), *symbols_);
    solver_->eagerly = [this](const std::function<Ref()>& code) {
      const Paused paused(t);
      return code();
    };
    reader_.emplace(*solver_);
  };
  t.recorder.on_varying = [this](const graph::Node& node, Ref result, uint32_t made) {
    return reader_->read(node, std::move(result), made);
  };
  t.recorder.on_fixed_sizes = [this](const graph::Node& node) {
    if (!graph::is_open("failing_call")) solver_->specialize_arguments(node);
  };
  t.recorder.on_enters_part = [this](uint32_t tensor) {
    if (!graph::is_open("subgraph")) solver_->specialize(tensor);
  };
}

void BackedNumbers::finish() {
  if (!any()) return;
  const std::vector<graph::Node>& nodes = t.recorder.program().nodes;
  const bool mutates = std::any_of(nodes.begin(), nodes.end(),
                                   [](const graph::Node& node) { return (node.effects & graph::kMutates) != 0; });
  if (mutates && !graph::is_open("fixed_views")) reader_->fix_views();
}

void BackedNumbers::specialize_sizes(Borrowed tensor) {
  if (!any()) return;
  const std::optional<uint32_t> id = t.recorder.known_tensor(tensor);
  if (id) solver_->specialize(*id);
}

void BackedNumbers::fix_copy(Borrowed tensor) {
  if (any() && graph::is_tensor(tensor)) reader_->fix_copy(graph::as_tensor(tensor));
}

bool BackedNumbers::varies(Borrowed value) const {
  const Expression expression = is_backed(value) ? symbols_->expression_of(value) : nullptr;
  if (expression == nullptr) return false;
  const Kind kind = symbols_->environment.simplify(expression)->kind;
  return kind != Kind::kInteger && kind != Kind::kFloat;
}

// Of what the trace made, sizes that are now those of a symbol: the exact ones may specialize.
uint64_t BackedNumbers::varying_sizes(Borrowed tensor) const {
  const std::optional<uint32_t> id = any() ? t.recorder.known_tensor(tensor) : std::nullopt;
  if (!id) return 0;
  const graph::Program& program = t.recorder.program();
  const graph::TensorRecord& record = program.tensors[*id];
  if (!record.varies || !record.fake.defined() || !graph::SizeSolver::has_plain_sizes(record.fake)) return 0;
  const auto is_open = [&](Expression size) {
    const Kind kind = size != nullptr ? symbols_->environment.simplify(size)->kind : Kind::kInteger;
    return kind != Kind::kInteger;
  };
  const c10::IntArrayRef hints = record.fake.sizes();
  uint64_t sizes = 0;
  for (size_t d = 0; d < std::min<size_t>(hints.size(), 64); d++) {
    bool varies = false;
    if (record.origin == graph::Origin::Input) {
      const std::vector<Expression>& given = program.declared[record.index].geometry.sizes;
      varies = d < given.size() && is_open(given[d]);
    } else {
      for (size_t i = 0; i < symbols_->count() && !varies; i++) {
        const Expression symbol = symbols_->environment.symbol(i);
        varies = symbol->kind == Kind::kSymbol && symbol->hint.integer == hints[d] && is_open(symbol);
      }
    }
    if (varies) sizes |= uint64_t{1} << d;
  }
  return sizes;
}

void BackedNumbers::make_plain(Borrowed value, int depth, const std::source_location& at) {
  constexpr int kDeepest = 20;
  if (!any() || depth > kDeepest || (depth == 0 && graph::is_open_in_file("plain", at))) return;
  PyObject* v = value.get();
  if (fake::is_symbol(value)) return symbols_->specialize(value);
  if (PySlice_Check(v)) {
    auto* slice = reinterpret_cast<PySliceObject*>(v);
    for (PyObject* part : {slice->start, slice->stop, slice->step}) make_plain(part, depth + 1, at);
  } else if (PyList_Check(v) || PyTuple_Check(v)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++)
      make_plain(PySequence_Fast_GET_ITEM(v, i), depth + 1, at);
  } else if (PyDict_Check(v)) {
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(v, &position, &key, &item) != 0;) make_plain(item, depth + 1, at);
  } else if (PyObject_TypeCheck(v, lift::known_types().deque)) {
    Ref items = checked(PySequence_List(v));
    make_plain(items, depth + 1, at);
  }
}

// Null: it is no number, or an unbacked symbol.
Expression BackedNumbers::expression_of(Borrowed number) {
  if (fake::is_symbol(number)) return symbols_->expression_of(number);
  if (PyFloat_CheckExact(number.get())) return symbols_->environment.real(PyFloat_AS_DOUBLE(number.get()));
  if (!PyLong_CheckExact(number.get())) return nullptr;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  return overflow == 0 ? symbols_->environment.integer(value) : nullptr;
}

// Null where there is no such expression: then the operands are plain numbers.
Ref BackedNumbers::number(Expression expression, Borrowed left, Borrowed right) {
  if (expression != nullptr && expression->has_hint) return symbols_->number(expression);
  make_plain(left);
  if (right) make_plain(right);
  return {};
}

Ref BackedNumbers::operate(const char* function, Borrowed left, Borrowed right) {
  if (!any()) return {};
  if (std::strcmp(function, "divmod") == 0) {
    Ref quotient = operate("floordiv", left, right), remainder;
    if (quotient) remainder = operate("mod", left, right);
    return remainder ? checked(PyTuple_Pack(2, quotient.get(), remainder.get())) : Ref();
  }
  const Expression a = expression_of(left), b = right ? expression_of(right) : nullptr;
  const bool known = a != nullptr && (!right || b != nullptr);
  return number(known ? operation_of(*symbols_, function, a, b) : nullptr, left, right);
}

Ref BackedNumbers::compare(Borrowed left, Borrowed right, int operation) {
  if (!any()) return {};
  const Expression condition = comparison_of(*symbols_, operation, expression_of(left), expression_of(right));
  if (condition != nullptr && condition->has_hint) {
    const bool holds = graph::is_open("comparison") ? condition->hint.integer != 0 : symbols_->decide(condition);
    return checked(PyBool_FromLong(holds ? 1 : 0));
  }
  make_plain(left);
  make_plain(right);
  return {};
}

bool BackedNumbers::is_nonzero(Borrowed number) { return symbols_->decide(truth_of(*symbols_, expression_of(number))); }

bool is_unbacked(Tracer& t, Borrowed value) {
  if (!fake::is_symbol(value)) return false;
  t.backed->make_plain(value);
  return fake::is_symbol(value);
}

}  // namespace alternator::trace
