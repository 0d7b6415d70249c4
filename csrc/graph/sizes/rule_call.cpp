#include "graph/sizes/rule_call.h"

#include "graph/record/torch_types.h"
#include "graph/sizes/size_switches.h"

#include <algorithm>

namespace alternator::graph {

using shapes::Expression;

namespace {

// Parameters that never matter to sizes, in any call that has a rule.
constexpr std::string_view kNeutral[] = {
    "dtype",   "device",      "layout",        "requires_grad", "pin_memory", "generator", "non_blocking",
    "copy",    "inplace",     "memory_format", "names",         "training",   "eps",       "alpha",
    "beta",    "_stacklevel", "is_causal",     "dropout_p",     "scale",      "stable",    "descending",
    "largest", "sorted",      "correction",    "unbiased",      "ord",        "p",
};

bool is_named(PyObject* name, std::string_view names) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &length);
  if (text == nullptr) throw PyError();
  const std::string_view wanted(text, static_cast<size_t>(length));
  while (!names.empty()) {
    const size_t end = std::min(names.find('|'), names.size());
    if (names.substr(0, end) == wanted) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

RuleCall::RuleCall(SizeSolver& solver, const Node& node, uint32_t tensor) : solver_(solver), node_(node) {
  const Program& program = solver.program();
  const TensorRecord& record = program.tensors[tensor];
  rank_ = static_cast<size_t>(record.fake.dim());
  if (record.origin != Origin::Element) return;
  const Element& element = program.elements[record.index];
  check(element.container == kWhole && PyLong_Check(element.key.get()));
  position_ = PyLong_AsLongLong(element.key.get());
  count_ = node.element_count;
}

// ---- arguments

std::optional<Value> RuleCall::find(uint32_t position, std::string_view names) {
  uint32_t at = position;
  if (at >= node_.positional) {
    at = node_.argument_count();
    for (uint32_t i = 0; i < node_.keyword; i++) {
      if (is_named(PyTuple_GET_ITEM(node_.keyword_names.get(), i), names)) at = node_.positional + i;
    }
  }
  if (at >= node_.argument_count()) return std::nullopt;
  check(at < understood_.size());
  understood_.set(at);
  const Value value = solver_.program().argument(node_, at);
  return is_none(value) ? std::nullopt : std::optional(value);
}

Value RuleCall::require(uint32_t position, std::string_view names) {
  const std::optional<Value> value = find(position, names);
  check(value.has_value());
  return *value;
}

Value RuleCall::positional_argument(uint32_t position) {
  check(position < node_.positional);
  understood_.set(position);
  return solver_.program().argument(node_, position);
}

bool RuleCall::is_tensor_at(uint32_t position, std::string_view names) {
  const std::optional<Value> value = find(position, names);
  return value && tensor_of(*value) != nullptr;
}

bool RuleCall::is_sequence_at(uint32_t position, std::string_view names) {
  const std::optional<Value> value = find(position, names);
  return value && (value->kind() == ValueKind::Tuple || value->kind() == ValueKind::List);
}

std::optional<uint32_t> RuleCall::find_tensor(uint32_t position, std::string_view names) {
  const std::optional<Value> value = find(position, names);
  if (!value) return std::nullopt;
  check(tensor_of(*value) != nullptr);
  return value->index;
}

Sizes RuleCall::sizes(uint32_t position, std::string_view names) { return sizes_of(require(position, names)); }

int64_t RuleCall::integer(uint32_t position, std::string_view names, std::optional<int64_t> otherwise) {
  const std::optional<Value> value = find(position, names);
  const std::optional<int64_t> number = value ? fixed_int(*value) : otherwise;
  check(number.has_value());
  return *number;
}

bool RuleCall::flag(uint32_t position, std::string_view names, bool otherwise) {
  const std::optional<Value> value = find(position, names);
  const std::optional<bool> flag = value ? plain_bool(*value) : otherwise;
  check(flag.has_value());
  return *flag;
}

size_t RuleCall::wrap(int64_t dimension, size_t rank) {
  const auto last = static_cast<int64_t>(std::max<size_t>(rank, 1));
  check(dimension >= -last && dimension < last);
  return static_cast<size_t>(dimension < 0 ? dimension + last : dimension);
}

size_t RuleCall::dimension(uint32_t position, std::string_view names, size_t rank, std::optional<int64_t> otherwise) {
  return wrap(integer(position, names, otherwise), rank);
}

std::optional<std::vector<size_t>> RuleCall::dimensions(uint32_t position, std::string_view names, size_t rank) {
  const std::optional<Value> value = find(position, names);
  if (!value) return std::nullopt;
  std::vector<size_t> all;
  for (const Value item : value->children() == 0 ? std::vector{*value} : children(*value)) {
    const std::optional<int64_t> number = fixed_int(item);
    check(number.has_value());
    all.push_back(wrap(*number, rank));
  }
  return all;
}

std::vector<Value> RuleCall::items(uint32_t position, std::string_view names) {
  return children(require(position, names));
}

Sizes RuleCall::numbers(uint32_t position, std::string_view names) {
  const std::optional<Value> first = find(position, names);
  check(first.has_value());
  std::vector<Value> values{*first};
  if (first->kind() == ValueKind::Tuple || first->kind() == ValueKind::List) {
    values = children(*first);
  } else {
    for (uint32_t i = position + 1; i < node_.positional; i++) values.push_back(require(i, {}));
  }
  Sizes numbers;
  for (const Value value : values) numbers.push_back(number_of(value));
  return numbers;
}

std::vector<Sizes> RuleCall::tensors(uint32_t position, std::string_view names) {
  std::vector<Sizes> all;
  for (const Value value : items(position, names)) all.push_back(sizes_of(value));
  return all;
}

std::vector<Sizes> RuleCall::all_tensors() {
  std::vector<Sizes> all;
  for (uint32_t i = 0; i < node_.argument_count(); i++) {
    const Value value = solver_.program().argument(node_, i);
    if (tensor_of(value) != nullptr) all.push_back(sizes_of(value));
    check(value.children() == 0);
  }
  ignore_rest();
  return all;
}

bool RuleCall::is_understood() const {
  for (uint32_t i = 0; i < node_.argument_count(); i++) {
    if (understood_[std::min<size_t>(i, understood_.size() - 1)] || is_none(solver_.program().argument(node_, i))) {
      continue;
    }
    if (i < node_.positional) return false;
    PyObject* name = PyTuple_GET_ITEM(node_.keyword_names.get(), i - node_.positional);
    const auto is_it = [&](std::string_view neutral) { return is_named(name, neutral); };
    if (std::none_of(std::begin(kNeutral), std::end(kNeutral), is_it)) return false;
  }
  return true;
}

// ---- values

const at::Tensor* RuleCall::tensor_of(Value value) const {
  if (!value.is_tensor()) return nullptr;
  const at::Tensor& fake = solver_.program().tensors[value.index].fake;
  return fake.defined() ? &fake : nullptr;
}

Sizes RuleCall::sizes_of(Value value) {
  const at::Tensor* tensor = tensor_of(value);
  check(tensor != nullptr && SizeSolver::has_plain_sizes(*tensor));
  if (value.index == replaced_) return *instead_;
  return solver_.sizes_of(value.index);
}

Expression RuleCall::number_of(Value value) {
  const Expression number = solver_.number_of(value);
  check(number != nullptr && number->has_hint && number->sort() == shapes::Sort::kInteger);
  return number;
}

std::optional<int64_t> RuleCall::fixed_int(Value value) {
  if (value.is_tensor()) {
    const Expression number = solver_.number_of(value);
    if (number == nullptr || !number->has_hint || number->sort() != shapes::Sort::kInteger) return std::nullopt;
    return fixed(number);
  }
  if (value.kind() != ValueKind::Object || !PyLong_CheckExact(object(value).get())) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object(value).get(), &overflow);
  return overflow == 0 ? std::optional<int64_t>(number) : std::nullopt;
}

std::optional<bool> RuleCall::plain_bool(Value value) const {
  if (value.kind() != ValueKind::Object || !PyBool_Check(object(value).get())) return std::nullopt;
  return object(value).get() == Py_True;
}

bool RuleCall::is_none(Value value) const {
  return value.kind() == ValueKind::Object && object(value).get() == Py_None;
}

std::vector<Value> RuleCall::children(Value value) const {
  check(value.kind() == ValueKind::Tuple || value.kind() == ValueKind::List);
  std::vector<Value> all;
  for (uint32_t i = 0; i < value.count(); i++) all.push_back(solver_.program().arena[value.index + i]);
  return all;
}

// ---- expressions

bool RuleCall::holds(Expression condition, const At& at) {
  check(condition != nullptr && condition->has_hint);
  if (is_open_in_function("condition.", at)) return condition->hint.integer != 0;
  return solver_.symbols().decide(condition);
}

int64_t RuleCall::fixed(Expression number, const At& at) {
  check(number != nullptr && number->has_hint);
  if (!is_open_in_function("condition.", at)) solver_.symbols().specialize(number);
  return number->hint.integer;
}

Expression RuleCall::product(const Sizes& sizes) {
  Expression product = constant(1);
  for (const Expression size : sizes) product = environment().multiply(product, size);
  return product;
}

Expression RuleCall::ceil_divide(Expression a, Expression b) {
  return environment().floor_divide(environment().add(a, environment().subtract(b, constant(1))), b);
}

Expression RuleCall::same(Expression a, Expression b, const At& at) {
  if (a == b) return a;
  require(environment().equal(a, b), at);
  return environment().simplify(a);
}

Expression RuleCall::broadcast(Expression a, Expression b) {
  check(a != nullptr && b != nullptr && a->has_hint && b->has_hint);
  if (a == b || b->is_integer(1)) return a;
  if (a->is_integer(1)) return b;
  if (a->hint.integer == b->hint.integer) return same(a, b);
  const bool is_first = a->hint.integer == 1;
  require(environment().equal(is_first ? a : b, constant(1)));
  return is_first ? b : a;
}

Sizes RuleCall::broadcast(const Sizes& a, const Sizes& b) {
  const Sizes &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  Sizes sizes = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); d++) sizes[offset + d] = broadcast(longer[offset + d], shorter[d]);
  return sizes;
}

Sizes RuleCall::broadcast(const std::vector<Sizes>& all) {
  check(!all.empty());
  Sizes sizes;
  for (const Sizes& one : all) sizes = broadcast(sizes, one);
  return sizes;
}

Sizes RuleCall::inferred(Sizes wanted, Expression elements) {
  Expression* open = nullptr;
  Expression others = constant(1);
  for (Expression& size : wanted) {
    check(size != nullptr);
    if (size->is_integer(-1)) {
      check(open == nullptr);
      open = &size;
    } else {
      check(!is_negative(size));
      others = environment().multiply(others, size);
    }
  }
  if (open == nullptr) {
    require(environment().equal(others, elements));
    return wanted;
  }
  // Of no elements any size is possible.
  check(!holds(environment().equal(others, constant(0))));
  require(environment().equal(environment().modulo(elements, others), constant(0)));
  *open = environment().floor_divide(elements, others);
  return wanted;
}

Expression RuleCall::clamped(Expression bound, Expression size) {
  if (!is_negative(bound)) return environment().minimum(bound, size);
  return environment().maximum(environment().add(bound, size), constant(0));
}

Expression RuleCall::slice_length(Expression size, Expression start, Expression stop, int64_t step) {
  check(step > 0);
  const Expression first = start != nullptr ? clamped(start, size) : constant(0);
  const Expression last = stop != nullptr ? clamped(stop, size) : size;
  const Expression length = environment().maximum(environment().subtract(last, first), constant(0));
  return ceil_divide(length, constant(step));
}

}  // namespace alternator::graph
