#include "lift/lifting/symbolic_inputs.h"

#include "lift/lifting/lifter.h"
#include "lift/lifting/unspecialized.h"
#include "py/names.h"

#include <algorithm>
#include <string>

namespace alternator::lift {

using fake::BackedSymbols;
using shapes::Expression;

// Sizes 0 and 1 are special to torch's operators: they are constants, and a symbol is never one of them.
static constexpr int64_t kLeastSize = 2;
static constexpr size_t kMostSymbols = 128, kMostDimensions = kOffsetBit;

void keep_free_sizes(const Source& source, TensorSpec* spec) {
  for (const Guard& guard : source.guards) {
    if (guard.kind != GuardKind::kTensor || guard.tensor->stride_rules.empty()) continue;
    spec->free_sizes = guard.tensor->free_sizes;
    spec->stride_rules = guard.tensor->stride_rules;
  }
}

BackedSymbols& SymbolicInputs::make_symbols() {
  if (symbols == nullptr) {
    symbols = std::make_shared<BackedSymbols>();
    symbols->locate = [this] { return lifter_.tree().current_site(); };
    if (on_first_symbol) on_first_symbol();
  }
  return *symbols;
}

shapes::Register SymbolicInputs::next_symbol(WhySymbol reason, shapes::Register hint) {
  make_symbols();
  why.push_back(reason);
  has_range.push_back(0);
  const size_t number = symbols->count();
  return hints != nullptr && number < hints->size() ? (*hints)[number] : hint;
}

Expression SymbolicInputs::add(const BackedSymbols::Origin& origin, int64_t hint, const shapes::Interval& given,
                               WhySymbol reason) {
  const shapes::Register value = next_symbol(reason, {.integer = hint});
  return symbols->add(origin, value.integer, given);
}

// Parameters, buffers and submodules: what a module has for good.
static bool is_of_module(const Source& source) {
  const auto is = [&](const Source& at, PyObject* name) { return Borrowed(at.key) == name; };
  for (const Source* at = &source; at != nullptr; at = at->parent) {
    if (is(*at, names::_buffers) || is(*at, names::_parameters) || is(*at, names::_modules)) return true;
  }
  return false;
}

static PyTypeObject* parameter_type() { return reinterpret_cast<PyTypeObject*>(ParameterClass); }

std::string dynamo_name(const Source& source, const std::string& text) {
  const Source* root = &source;
  while (root->parent != nullptr) root = root->parent;
  const size_t end = std::min(text.find_first_of(".["), text.size());
  return (root->access == Access::kSlot ? "L['" : "G['") + text.substr(0, end) + "']" + text.substr(end);
}

static uint64_t named_dimensions(const std::vector<DynamicSource>& patterns, const Source& source,
                                 const std::string& text) {
  uint64_t bits = 0;
  const std::string name = dynamo_name(source, text);
  for (const DynamicSource& named : patterns) {
    if (!named.matches(name)) continue;
    bits |= named.dimension ? uint64_t{1} << *named.dimension : ~uint64_t{0};
  }
  return bits;
}

// What names a source comes first, then the marks on a tensor.
uint64_t SymbolicInputs::Wanted::bits() const {
  const uint64_t unless_fixed = (by_text | continued | all) & ~fixed & ~marks.fixed;
  return (specified | named | marks.dynamic | marks.weak | unless_fixed) & ~given_up;
}

// Strides 0 and 1 are special, like those sizes.
bool SymbolicInputs::Wanted::stride(size_t dimension, const TensorSpec& spec) const {
  const bool is_asked = ((layout | all) & ~fixed_layout & uint64_t{1} << dimension) != 0;
  return is_asked && spec.strides[dimension] >= kLeastSize && spec.sizes[dimension] != 1;
}

WhySymbol SymbolicInputs::Wanted::why(size_t dimension) const {
  const auto has = [&](uint64_t bits) { return (bits >> dimension & 1) != 0; };
  if (has(specified)) return WhySymbol::kSpecified;
  if (has(marks.dynamic)) return WhySymbol::kMark;
  if (has(marks.weak)) return WhySymbol::kWeakMark;
  if (has(named)) return WhySymbol::kNamed;
  if (has(by_text)) return WhySymbol::kChanged;
  return has(continued) ? WhySymbol::kContinued : WhySymbol::kAll;
}

SymbolicInputs::Wanted SymbolicInputs::wanted_dimensions(Borrowed tensor, const Source& source) const {
  Wanted wanted;
  if (dynamism == nullptr || lifter_.only_lasting || (is_allowed && !is_allowed())) return wanted;
  wanted.marks = marks_of(tensor);
  if (!dynamism->has_sizes() && dynamism->given_up.empty()) return wanted;
  const std::string text = source.text();
  const auto given_up = dynamism->given_up.find(text);
  if (given_up != dynamism->given_up.end()) wanted.given_up = given_up->second.sizes;
  const auto find = [&](const std::unordered_map<std::string, uint64_t>& sizes) {
    const auto found = sizes.find(text);
    return found != sizes.end() ? found->second : 0;
  };
  wanted.fixed = find(dynamism->static_sizes);
  wanted.layout = find(dynamism->layouts);
  wanted.fixed_layout = find(dynamism->static_layouts);
  if (source.access == Access::kSlot) {
    const auto found = dynamism->value_sizes.find(source.index);
    if (found != dynamism->value_sizes.end()) wanted.continued = found->second;
  }
  // A gradient has the sizes of its tensor.
  if (source.access == Access::kGrad && source.parent != nullptr) {
    for (const Guard& guard : source.parent->guards)
      if (guard.kind == GuardKind::kTensor) wanted.continued |= guard.tensor->free_sizes;
  }
  if (dynamism->specified) {
    add_specified(text, &wanted);
    return wanted;
  }
  wanted.by_text = find(dynamism->sizes);
  if (dynamism->all && !is_of_module(source)) wanted.all = ~uint64_t{0};
  if (!dynamism->named.empty()) wanted.named = named_dimensions(dynamism->named, source, text);
  return wanted;
}

// Instead of marks.
void SymbolicInputs::add_specified(const std::string& text, Wanted* wanted) const {
  wanted->marks = {};
  const auto found = dynamism->specified->find(text);
  if (found == dynamism->specified->end()) return;
  for (const auto& [dimension, range] : found->second) {
    if (dimension < 0 || dimension >= static_cast<int>(kMostDimensions)) continue;
    wanted->specified |= uint64_t{1} << dimension;
    wanted->marks.ranges.push_back({static_cast<uint16_t>(dimension), range.low, range.high});
  }
}

const shapes::Interval* SymbolicInputs::specified_range(const std::string& text) const {
  const auto found = dynamism->specified->find(text);
  const bool is_number = found != dynamism->specified->end() && found->second.front().dimension < 0;
  return is_number ? &found->second.front().range : nullptr;
}

// Null: it cannot be a symbol.
Expression SymbolicInputs::add_size(const Source& source, const Wanted& wanted, size_t dimension, int64_t hint) {
  shapes::Interval given{kLeastSize, shapes::kHighest};
  for (const DimensionMarks::Range& range : wanted.marks.ranges) {
    if (range.dimension != dimension) continue;
    if (range.low) given.low = std::max(given.low, *range.low);
    if (range.high) given.high = std::min(given.high, *range.high);
  }
  const WhySymbol reason = wanted.why(dimension);
  const auto number = static_cast<uint16_t>(dimension);
  if (!given.contains(hint)) {
    // As in torch, 0 and 1 are constants without a complaint.
    if (reason == WhySymbol::kMark && hint >= kLeastSize)
      unmet.push_back({&source, number, hint, reason, "it is not in the range of the mark", {}});
    return nullptr;
  }
  if (symbols != nullptr && symbols->count() >= kMostSymbols) return nullptr;
  const Expression symbol = add({source.id, BackedSymbols::Reads::kSize, number}, hint, given, reason);
  has_range.back() = reason == WhySymbol::kMark && std::ranges::any_of(wanted.marks.ranges, [&](const auto& range) {
                       return range.dimension == dimension;
                     });
  // With dynamic=True sizes that are equal are taken to stay so (duck shaping), under a guard.
  if (reason == WhySymbol::kAll && dynamism->ducks) {
    const auto [same, is_first] = by_size_.try_emplace(hint, symbol);
    if (!is_first) (void)symbols->decide(symbols->environment.equal(symbol, same->second));
  }
  return symbol;
}

// Sizes that are marked, and that an earlier trace of this call could not do with.
void SymbolicInputs::note_unmet(const Source& source, const Wanted& wanted, const TensorSpec& spec) {
  const uint64_t marked = wanted.given_up & (wanted.marks.dynamic | wanted.marks.weak);
  if (marked == 0) return;
  const Dynamism::GivenUp& given_up = dynamism->given_up.at(source.text());
  for (size_t d = 0; d < std::min(spec.sizes.size(), kMostDimensions); d++) {
    if ((marked >> d & 1) == 0) continue;
    unmet.push_back({&source, static_cast<uint16_t>(d), spec.sizes[d], wanted.why(d), given_up.reason,
                     Site{Ref(given_up.site.code), given_up.site.index}});
  }
}

void SymbolicInputs::add_strides(const Source& source, const Wanted& wanted, const TensorSpec& spec, StrideRules* rules,
                                 fake::SymbolicGeometry* geometry) {
  shapes::ShapeEnvironment& environment = symbols->environment;
  const std::vector<Expression>& sizes = geometry->sizes;
  std::vector<Expression>& strides = geometry->strides;
  strides.assign(sizes.size(), nullptr);
  const auto solve = [&](auto& self, size_t d) -> Expression {
    if (strides[d] != nullptr) return strides[d];
    const int8_t rule = (*rules)[d];
    if (rule < 0) {
      if (wanted.stride(d, spec) && symbols->count() < kMostSymbols) {
        const WhySymbol reason = (wanted.layout >> d & 1) != 0 ? WhySymbol::kChanged : WhySymbol::kAll;
        const BackedSymbols::Origin origin{source.id, BackedSymbols::Reads::kStride, static_cast<uint16_t>(d)};
        (*rules)[d] = kAnyStride;
        return strides[d] = add(origin, spec.strides[d], {kLeastSize, shapes::kHighest}, reason);
      }
      return strides[d] = environment.integer(spec.strides[d]);
    }
    const Expression size = sizes[static_cast<size_t>(rule)];
    const bool is_empty = size->is_integer(0);
    strides[d] = environment.multiply(self(self, static_cast<size_t>(rule)), is_empty ? environment.integer(1) : size);
    return strides[d];
  };
  for (size_t d = 0; d < sizes.size(); d++) (void)solve(solve, d);
}

fake::SymbolicGeometry SymbolicInputs::geometry_of(Borrowed tensor, Source* source, TensorSpec* spec) {
  const Wanted wanted = wanted_dimensions(tensor, *source);
  spec->reads_marks = true;
  note_unmet(*source, wanted, *spec);
  // A parameter has its size for good. A view with a history has the base in the graph of its gradients; a leaf has
  // not.
  const bool is_open_type = tensor.type() == reinterpret_cast<PyTypeObject*>(THPVariableClass) ||
                            (dynamism != nullptr && dynamism->parameters && Py_IS_TYPE(tensor.get(), parameter_type()));
  const bool may_vary = is_open_type && spec->has_geometry && !(spec->is_view && !spec->is_leaf) &&
                        !spec->has_tangent && spec->sizes.size() < kMostDimensions;
  const uint64_t bits = wanted.bits();
  if ((bits == 0 && wanted.layout == 0) || !may_vary) return {};
  fake::SymbolicGeometry geometry;
  std::vector<Expression>& sizes = geometry.sizes;
  sizes.resize(spec->sizes.size());
  for (size_t d = 0; d < sizes.size(); d++) {
    if ((bits >> d & 1) != 0) sizes[d] = add_size(*source, wanted, d, spec->sizes[d]);
    if (sizes[d] != nullptr) spec->free_sizes |= uint64_t{1} << d;
  }
  StrideRules rules = stride_rules_of(spec->sizes, spec->strides);
  const auto is_free = [&](size_t d) { return rules[d] < 0 && wanted.stride(d, *spec); };
  bool any = spec->free_sizes != 0;
  for (size_t d = 0; d < sizes.size(); d++) any = any || is_free(d);
  const bool has_offset = (wanted.layout & ~wanted.fixed_layout) >> kOffsetBit != 0;
  if (!any && !has_offset) return {};
  if (has_offset) {
    const int64_t hint = fake::unpack(tensor.get()).storage_offset();
    geometry.offset =
        add({source->id, BackedSymbols::Reads::kOffset, kOffsetBit}, hint, {0, shapes::kHighest}, WhySymbol::kChanged);
  }
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d] == nullptr) sizes[d] = make_symbols().environment.integer(spec->sizes[d]);
  }
  add_strides(*source, wanted, *spec, &rules, &geometry);
  const bool is_known = std::ranges::find(geometry.strides, nullptr) == geometry.strides.end();
  if (!is_known) {  // expressions that are too large
    for (const Expression size : sizes) symbols->specialize(size);
    spec->free_sizes = 0;
    return {};
  }
  spec->stride_rules = std::move(rules);
  return geometry;
}

void SymbolicInputs::apply_hints(const at::Tensor& fake, const fake::SymbolicGeometry& geometry) const {
  if (hints == nullptr || geometry.empty()) return;
  std::vector<int64_t> sizes, strides;
  for (const Expression size : geometry.sizes) sizes.push_back(size->hint.integer);
  for (const Expression stride : geometry.strides) strides.push_back(stride->hint.integer);
  const int64_t offset = geometry.offset != nullptr ? geometry.offset->hint.integer : fake.storage_offset();
  fake::Session::set_geometry(fake, sizes, strides, offset);
}

static bool is_name_of_torch(Borrowed name) {
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text == nullptr) PyErr_Clear();
  return text != nullptr && (std::string(text) + '.').starts_with("torch.");
}

// A variable of a module of the program, which not only its own functions read.
static bool is_global(const Source& source) {
  if (source.access != Access::kItem || source.parent == nullptr || source.parent->access != Access::kConstant)
    return false;
  const Borrowed globals = source.parent->key;
  return PyDict_CheckExact(globals.get()) && !is_name_of_torch(PyDict_GetItemString(globals.get(), "__name__"));
}

// Floats of the user's modules are annealed; those of torch's modules, and of optimizers, are options.
static bool is_of_users_module(const Source& source) {
  const auto is_torchs = [](const Guard& guard) {
    if (guard.kind != GuardKind::kType || !PyType_Check(guard.object.get())) return false;
    auto* type = guard.object.as<PyTypeObject>();
    return PyType_IsSubtype(type, known_types().optimizer) != 0 ||
           (PyType_IsSubtype(type, known_types().module) != 0 &&
            is_name_of_torch(PyDict_GetItemString(type->tp_dict, "__module__")));
  };
  const Source* at = &source;
  for (; at->parent != nullptr && at->access != Access::kSlot && at->access != Access::kCell; at = at->parent) {
    if (at->access != Access::kItem && at->access != Access::kIndex && at->access != Access::kDict &&
        at->access != Access::kContents)
      return false;
    if (std::ranges::any_of(at->guards, is_torchs)) return false;
  }
  return (at->access == Access::kSlot || at->access == Access::kCell) && std::ranges::none_of(at->guards, is_torchs);
}

// kNone: it is a constant of the trace.
WhySymbol SymbolicInputs::why_wanted(Borrowed number, const Source& source) const {
  if (dynamism == nullptr || !dynamism->has_numbers() || lifter_.only_lasting || (is_allowed && !is_allowed()))
    return WhySymbol::kNone;
  if (!lifter_.unspecialized->is_open || !source.holds_values()) return WhySymbol::kNone;
  if (!(PyFloat_CheckExact(number.get()) ? dynamism->floats : PyLong_CheckExact(number.get()) && dynamism->ints))
    return WhySymbol::kNone;
  if (symbols != nullptr && symbols->count() >= kMostSymbols) return WhySymbol::kNone;
  const std::string text = source.text();
  if (dynamism->specified && specified_range(text) != nullptr) return WhySymbol::kSpecified;
  if (dynamism->specified && source.access != Access::kSlot) return WhySymbol::kNone;
  if (dynamism->specified)
    return dynamism->value_numbers.contains(source.index) ? WhySymbol::kContinued : WhySymbol::kNone;
  if (!dynamism->named.empty() && named_dimensions(dynamism->named, source, text) != 0) return WhySymbol::kNamed;
  if (dynamism->static_numbers.contains(text)) return WhySymbol::kNone;
  if (dynamism->numbers.contains(text)) return WhySymbol::kChanged;
  if (source.access == Access::kSlot && dynamism->value_numbers.contains(source.index)) return WhySymbol::kContinued;
  const bool is_of_call =
      source.is_of_arguments() || is_global(source) || (PyFloat_CheckExact(number.get()) && is_of_users_module(source));
  return dynamism->all && is_of_call ? WhySymbol::kAll : WhySymbol::kNone;
}

bool SymbolicInputs::will_hold_numbers(Borrowed tuple, Source* source, int depth) const {
  constexpr int kDeepest = 8;
  if (dynamism == nullptr || !dynamism->has_numbers()) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); i++) {
    const Borrowed element = PyTuple_GET_ITEM(tuple.get(), i);
    const bool is_tuple = PyTuple_CheckExact(element.get());
    if (!is_tuple && !is_counting(element)) continue;
    if (depth == kDeepest) return true;
    Source* child = lifter_.tree().child(source, Access::kIndex, {}, i);
    const bool is_symbol =
        is_tuple ? will_hold_numbers(element, child, depth + 1) : why_wanted(element, *child) != WhySymbol::kNone;
    if (is_symbol) return true;
  }
  return false;
}

Ref SymbolicInputs::number(Borrowed value, Source* source) {
  const WhySymbol reason = why_wanted(value, *source);
  if (reason == WhySymbol::kNone) return {};
  Ref& made = numbers_[source];
  if (made) return made;
  Expression symbol;
  if (PyFloat_CheckExact(value.get())) {
    const shapes::Register hint = next_symbol(reason, {.real = PyFloat_AS_DOUBLE(value.get())});
    symbol = symbols->add_float({source->id, BackedSymbols::Reads::kFloat}, hint.real);
  } else {
    int overflow = 0;
    const long long hint = PyLong_AsLongLongAndOverflow(value.get(), &overflow);
    if (overflow != 0) return {};
    const bool is_specified = reason == WhySymbol::kSpecified;
    const shapes::Interval given = is_specified ? *specified_range(source->text()) : shapes::Interval{};
    if (!given.contains(hint)) return {};
    symbol = add({source->id, BackedSymbols::Reads::kInteger}, hint, given, reason);
  }
  lifter_.guard_type(source, value);
  made = symbols->number(symbol);
  lifter_.know(made, value, source);
  return made;
}

}  // namespace alternator::lift
