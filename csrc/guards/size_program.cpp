#include "guards/size_program.h"

#include "guards/guard_mutants.h"
#include "lift/sources/tensor_spec.h"
#include "shapes/expression_text.h"

namespace alternator::guards {

using fake::BackedSymbols;
using shapes::Expression;

SizeProgram::SizeProgram(std::shared_ptr<BackedSymbols> symbols, const std::vector<uint32_t>& node_of,
                         const lift::SourceTree& tree)
    : symbols_(std::move(symbols)), tree_(tree), guards_(symbols_->environment.guards()) {
  if (is_disabled("sizes.conditions")) guards_.clear();
  for (const BackedSymbols::Origin& origin : symbols_->origins()) nodes_.push_back(node_of[origin.source]);
  registers_.resize(nodes_.size());
  results_.resize(symbols_->results().size());
  compile();
}

void SizeProgram::compile() {
  std::vector<Expression> conditions;
  for (const shapes::Guard& guard : guards_) conditions.push_back(guard.condition);
  code_ = shapes::GuardBytecode::compile(conditions, symbols_->results());
}

void SizeProgram::add_guards(const std::vector<Expression>& conditions, const std::vector<std::string>& origins) {
  if (is_disabled("sizes.assumptions")) return;
  for (const Expression condition : conditions) guards_.push_back({condition, 0});
  origins_.insert(origins_.end(), origins.begin(), origins.end());
  compile();
}

int64_t SizeProgram::size_of(PyObject* tensor, uint16_t dimension) noexcept {
  return fake::unpack(tensor).unsafeGetTensorImpl()->sizes()[dimension];
}

static bool read_integer(PyObject* object, int64_t* value) noexcept {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  *value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

// A tensor has passed its TensorSpec, so that it has sizes.
bool SizeProgram::fill(PyObject* const* found) noexcept {
  for (size_t i = 0; i < nodes_.size(); i++) {
    const BackedSymbols::Origin& origin = symbols_->origins()[i];
    PyObject* object = found[nodes_[i]];
    shapes::Register& to = registers_[i];
    unfilled_ = i;
    switch (origin.reads) {
      case BackedSymbols::Reads::kSize:
        to.integer = size_of(object, origin.dimension);
        break;
      case BackedSymbols::Reads::kStride:
        to.integer = fake::unpack(object).unsafeGetTensorImpl()->strides()[origin.dimension];
        break;
      case BackedSymbols::Reads::kOffset:
        to.integer = fake::unpack(object).unsafeGetTensorImpl()->storage_offset();
        break;
      case BackedSymbols::Reads::kInteger:
        if (object == nullptr || !read_integer(object, &to.integer)) return false;
        break;
      case BackedSymbols::Reads::kFloat:
        if (object == nullptr || !PyFloat_CheckExact(object)) return false;
        to.real = PyFloat_AS_DOUBLE(object);
        continue;
    }
    if (!symbols_->given()[i].contains(to.integer) && !is_disabled("sizes.ranges")) return false;
  }
  unfilled_ = SIZE_MAX;
  return true;
}

bool SizeProgram::check(PyObject* const* found) noexcept {
  return code_ && fill(found) && code_->check(registers_.data(), results_.data());
}

void SizeProgram::collect(std::vector<Ref>* values) const {
  for (size_t i = 0; i < results_.size(); i++) {
    const bool is_float = symbols_->results()[i]->sort() == shapes::Sort::kFloat;
    values->push_back(
        checked(is_float ? PyFloat_FromDouble(results_[i].real) : PyLong_FromLongLong(results_[i].integer)));
  }
}

std::string SizeProgram::name_of(size_t symbol) const {
  const BackedSymbols::Origin& origin = symbols_->origins()[symbol];
  const std::string source = tree_.sources()[origin.source].text();
  switch (origin.reads) {
    case BackedSymbols::Reads::kSize:
      return source + ".size(" + std::to_string(origin.dimension) + ")";
    case BackedSymbols::Reads::kStride:
      return source + ".stride(" + std::to_string(origin.dimension) + ")";
    case BackedSymbols::Reads::kOffset:
      return source + ".storage_offset()";
    default:
      return source;
  }
}

std::string SizeProgram::text(Expression expression) const {
  return shapes::text(expression, [this](size_t symbol) { return name_of(symbol); });
}

static std::string bounds_text(const std::string& name, const shapes::Interval& bounds) {
  std::string text = name;
  if (bounds.has_low()) text = std::to_string(bounds.low) + " <= " + text;
  if (bounds.has_high()) text += " <= " + std::to_string(bounds.high);
  return text;
}

std::vector<size_t> SizeProgram::symbols_in(Expression expression) const {
  std::vector<size_t> symbols;
  std::vector<Expression> open{expression};
  std::vector<bool> seen(nodes_.size());
  while (!open.empty()) {
    const Expression node = open.back();
    open.pop_back();
    for (const shapes::Term& term : node->terms()) open.push_back(term.node);
    const bool is_symbol = node->kind == shapes::Kind::kSymbol || node->kind == shapes::Kind::kFloatSymbol;
    if (!is_symbol || seen[static_cast<size_t>(node->value)]) continue;
    symbols.push_back(static_cast<size_t>(node->value));
    seen[symbols.back()] = true;
  }
  return symbols;
}

// Null: it was another check.
const shapes::Guard* SizeProgram::failed_guard() const {
  if (unfilled_ != SIZE_MAX) return nullptr;
  for (const shapes::Guard& guard : guards_) {
    const std::optional<shapes::Register> holds = shapes::evaluate(guard.condition, registers_.data());
    if (!holds || holds->integer == 0) return &guard;
  }
  return nullptr;
}

std::vector<std::pair<std::string, uint16_t>> SizeProgram::failed_sizes() const {
  std::vector<std::pair<std::string, uint16_t>> sizes;
  const shapes::Guard* failed = failed_guard();
  if (failed == nullptr) return sizes;
  for (const size_t symbol : symbols_in(failed->condition)) {
    const BackedSymbols::Origin& origin = symbols_->origins()[symbol];
    if (origin.reads == BackedSymbols::Reads::kSize)
      sizes.emplace_back(tree_.sources()[origin.source].text(), origin.dimension);
  }
  return sizes;
}

SizeProgram::Failed SizeProgram::explain() const {
  if (unfilled_ != SIZE_MAX) {
    const std::string name = name_of(unfilled_);
    const bool is_float = symbols_->origins()[unfilled_].reads == BackedSymbols::Reads::kFloat;
    return {name, bounds_text(name, symbols_->given()[unfilled_]),
            is_float ? "no float" : std::to_string(registers_[unfilled_].integer)};
  }
  if (const shapes::Guard* failed = failed_guard()) {
    std::string values;
    for (const size_t symbol : symbols_in(failed->condition)) {
      const bool is_float = symbols_->origins()[symbol].reads == BackedSymbols::Reads::kFloat;
      const std::string value = is_float ? shapes::text(symbols_->environment.real(registers_[symbol].real))
                                         : std::to_string(registers_[symbol].integer);
      values += (values.empty() ? "" : ", ") + name_of(symbol) + " = " + value;
    }
    const auto number = static_cast<size_t>(failed - guards_.data());
    return {"", text(failed->condition), values, failed->tag, origin_of(number)};
  }
  return {"", "the numbers that are computed from sizes", "a result that overflows"};
}

const std::string& SizeProgram::origin_of(size_t guard) const {
  static const std::string none;
  const size_t first = guards_.size() - origins_.size();
  return guard < first ? none : origins_[guard - first];
}

std::vector<SizeProgram::Text> SizeProgram::texts() const {
  std::vector<Text> all;
  for (size_t i = 0; i < nodes_.size(); i++) {
    const shapes::Interval& bounds = symbols_->given()[i];
    if (bounds.has_low() || bounds.has_high()) all.push_back({bounds_text(name_of(i), bounds), 0, {}});
  }
  for (size_t i = 0; i < guards_.size(); i++) all.push_back({text(guards_[i].condition), guards_[i].tag, origin_of(i)});
  return all;
}

}  // namespace alternator::guards
