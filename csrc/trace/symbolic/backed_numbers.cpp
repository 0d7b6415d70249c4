#include "trace/symbolic/backed_numbers.h"

#include "lift/lifting/symbolic_inputs.h"
#include "trace/core/tracer.h"

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
    for (size_t i = 0; i < symbols_->count(); i++) symbols_->specialize(symbols_->environment.symbol(i));
  };
  inputs.on_first_symbol = [this] {
    symbols_ = t.lifter.symbolic->symbols;
    t.recorder.use_backed(symbols_);
    solver_.emplace(t.recorder.program(), *symbols_);
    reader_.emplace(*solver_);
  };
  t.recorder.on_varying = [this](const graph::Node& node, Ref result, uint32_t made) {
    return reader_->read(node, std::move(result), made);
  };
  t.recorder.on_fixed_sizes = [this](const graph::Node& node) { solver_->specialize_arguments(node); };
  t.recorder.on_enters_part = [this](uint32_t tensor) { solver_->specialize(tensor); };
}

void BackedNumbers::finish() {
  if (!any()) return;
  const std::vector<graph::Node>& nodes = t.recorder.program().nodes;
  const bool mutates = std::any_of(nodes.begin(), nodes.end(),
                                   [](const graph::Node& node) { return (node.effects & graph::kMutates) != 0; });
  if (mutates) reader_->fix_views();
}

void BackedNumbers::specialize_sizes(Borrowed tensor) {
  if (!any()) return;
  const std::optional<uint32_t> id = t.recorder.known_tensor(tensor);
  if (id) solver_->specialize(*id);
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
  if (!record.varies || !record.fake.defined()) return 0;
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

void BackedNumbers::make_plain(Borrowed value, int depth) {
  constexpr int kDeepest = 20;
  if (!any() || depth > kDeepest) return;
  PyObject* v = value.get();
  if (fake::is_symbol(value)) return symbols_->specialize(value);
  if (PySlice_Check(v)) {
    auto* slice = reinterpret_cast<PySliceObject*>(v);
    for (PyObject* part : {slice->start, slice->stop, slice->step}) make_plain(part, depth + 1);
  } else if (PyList_Check(v) || PyTuple_Check(v)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) make_plain(PySequence_Fast_GET_ITEM(v, i), depth + 1);
  } else if (PyDict_Check(v)) {
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(v, &position, &key, &item) != 0;) make_plain(item, depth + 1);
  } else if (PyObject_TypeCheck(v, lift::known_types().deque)) {
    Ref items = checked(PySequence_List(v));
    make_plain(items, depth + 1);
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
  shapes::ShapeEnvironment& environment = symbols_->environment;
  const Expression a = expression_of(left), b = right ? expression_of(right) : nullptr;
  const bool known = a != nullptr && (!right || b != nullptr);
  const bool integers = known && a->sort() == shapes::Sort::kInteger && (!right || b->sort() == shapes::Sort::kInteger);
  const auto is = [&](const char* name) { return std::strcmp(function, name) == 0; };
  Expression made = nullptr;
  if (integers) {
    if (is("add")) made = environment.add(a, b);
    if (is("sub")) made = environment.subtract(a, b);
    if (is("mul")) made = environment.multiply(a, b);
    if (is("floordiv")) made = environment.floor_divide(a, b);
    if (is("mod")) made = environment.modulo(a, b);
    if (is("neg")) made = environment.negate(a);
    if (is("abs")) made = environment.absolute(a);
    if (is("max")) made = environment.maximum(a, b);
    if (is("min")) made = environment.minimum(a, b);
  }
  return number(made, left, right);
}

Ref BackedNumbers::compare(Borrowed left, Borrowed right, int operation) {
  if (!any()) return {};
  shapes::ShapeEnvironment& environment = symbols_->environment;
  const Expression a = expression_of(left), b = expression_of(right);
  Expression condition = nullptr;
  if (a != nullptr && b != nullptr && a->sort() == shapes::Sort::kInteger && b->sort() == shapes::Sort::kInteger) {
    switch (operation) {
      case Py_LT:
        condition = environment.less(a, b);
        break;
      case Py_LE:
        condition = environment.less_equal(a, b);
        break;
      case Py_EQ:
        condition = environment.equal(a, b);
        break;
      case Py_NE:
        condition = environment.not_equal(a, b);
        break;
      case Py_GT:
        condition = environment.greater(a, b);
        break;
      default:
        condition = environment.greater_equal(a, b);
        break;
    }
  }
  if (condition != nullptr && condition->has_hint) return checked(PyBool_FromLong(symbols_->decide(condition) ? 1 : 0));
  make_plain(left);
  make_plain(right);
  return {};
}

bool BackedNumbers::is_nonzero(Borrowed number) {
  const Expression expression = expression_of(number);
  return symbols_->decide(symbols_->environment.not_equal(expression, symbols_->environment.integer(0)));
}

Ref BackedNumbers::to_float(Borrowed number) {
  make_plain(number);
  return checked(PyNumber_Float(number.get()));
}

bool is_unbacked(Tracer& t, Borrowed value) {
  if (!fake::is_symbol(value)) return false;
  t.backed->make_plain(value);
  return fake::is_symbol(value);
}

}  // namespace alternator::trace
