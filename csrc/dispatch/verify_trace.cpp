#include "dispatch/verify_trace.h"

#include "dispatch/build_entry.h"
#include "graph/record/named_callable.h"
#include "graph/record/torch_warnings.h"
#include "graph/sizes/layout_solver.h"
#include "graph/sizes/size_switches.h"
#include "lift/lifting/symbolic_inputs.h"
#include "replay/cannot_rebuild.h"
#include "shapes/expression_text.h"
#include "shapes/guard_bytecode.h"
#include "trace/symbolic/backed_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace alternator::dispatch {

using fake::BackedSymbols;
using shapes::Expression;
using shapes::Register;

namespace {

// ---- other values of the symbols ---------------------------------------------------------------------------

// Symbols that have the same value in this call, by its bits.
struct Group {
  bool is_float;
  int64_t bits;
  bool operator==(const Group&) const = default;
};
using Hints = std::vector<Register>;

class OtherHints {
 public:
  explicit OtherHints(BackedSymbols& symbols) : symbols_(symbols), environment_(symbols.environment) {
    for (const shapes::Guard& guard : environment_.guards()) conditions_.push_back(guard.condition);
    code_ = shapes::GuardBytecode::compile(conditions_);
  }

  // Of the free symbols: those that are equal vary together, since calls may fail otherwise.
  std::vector<Group> groups() {
    std::vector<Group> found;
    for (size_t i = 0; i < symbols_.count(); i++) {
      if (is_free(i) && std::ranges::find(found, group_of(i)) == found.end()) found.push_back(group_of(i));
    }
    return found;
  }
  // Those with a size (a stride, an offset), or those without.
  std::vector<Group> groups_of(bool sizes) {
    std::vector<Group> found = groups();
    std::erase_if(found, [&](const Group& group) {
      for (size_t i = 0; i < symbols_.count(); i++) {
        if (is_in(i, group) && BackedSymbols::is_of_tensor(symbols_.origins()[i].reads)) return !sizes;
      }
      return sizes;
    });
    return found;
  }
  bool is_in(size_t symbol, const Group& group) { return is_free(symbol) && group_of(symbol) == group; }

  // Values that satisfy the guards, different for the symbols of these groups.
  std::vector<Hints> find(const std::vector<Group>& groups) {
    std::vector<Hints> found;
    if (!code_) return found;
    for (const Step step : kSteps) {
      if (auto hints = attempt(Steps(groups.size(), step), groups)) found.push_back(std::move(*hints));
    }
    if (found.empty() && groups.size() > 1) {
      if (auto hints = attempt_one_by_one(groups)) found.push_back(std::move(*hints));
    }
    // Whose product is known cannot grow together. Among the first, since not all are tried.
    constexpr ptrdiff_t kPosition = 3;
    if (auto hints = exchange(groups))
      found.insert(found.begin() + std::min(kPosition, std::ssize(found)), std::move(*hints));
    return found;
  }

 private:
  struct Step {
    int64_t factor, offset;
    bool is_shared;  // the offset is that of all groups
  };
  using Steps = std::vector<std::optional<Step>>;  // of each group; none: it keeps its value
  // Multiples first: a size that is divided can be divided still. Then sizes whose difference is fixed.
  static constexpr std::array<Step, 10> kSteps{{{3, 0, false},
                                                {2, 0, false},
                                                {1, 1, false},
                                                {1, 8, true},
                                                {1, -1, false},
                                                {1, 8, false},
                                                {2, 1, false},
                                                {1, -2, false},
                                                {1, 64, false},
                                                {5, 2, false}}};

  bool is_float(size_t symbol) { return environment_.symbol(symbol)->sort() == shapes::Sort::kFloat; }
  bool is_free(size_t symbol) {
    const Expression node = environment_.symbol(symbol);
    return environment_.simplify(node) == node;
  }
  Group group_of(size_t symbol) { return {is_float(symbol), environment_.symbol(symbol)->hint.integer}; }

  // `position`: of its group, from 1.
  static Register other_integer(int64_t value, Step step, int64_t position) {
    Register other{};
    if (__builtin_mul_overflow(value, step.factor, &other.integer) ||
        __builtin_add_overflow(other.integer, step.offset * position, &other.integer))
      other.integer = value > 0 ? value - step.offset * position : value + step.offset * position;
    return other;
  }
  // Near to it, too: many are between 0 and 1. Not whole where the value is none.
  static Register other_float(double value, Step step, int64_t position) {
    const double offset = static_cast<double>(step.offset * position);
    // Infinite ones are often compared with bounds.
    if (std::isinf(value))
      return {.real = value > 0 ? 1e308 / static_cast<double>(step.factor) : -1e308 / static_cast<double>(step.factor)};
    if (!std::isfinite(value) || value == 0) return {.real = static_cast<double>(step.factor) * 0.75 + offset};
    return {.real = value * static_cast<double>(step.factor) + offset / 16 * std::fabs(value)};
  }

  // One group after the other, each by the first step that the guards allow beside those of the groups before it.
  std::optional<Hints> attempt_one_by_one(const std::vector<Group>& groups) {
    Steps steps(groups.size());
    std::optional<Hints> last;
    for (std::optional<Step>& of_group : steps) {
      const auto fits = [&](const Step& step) {
        of_group = step;
        std::optional<Hints> found = attempt(steps, groups);
        if (!found) return false;
        last = std::move(found);
        return true;
      };
      if (std::ranges::none_of(kSteps, fits)) return std::nullopt;
    }
    return last;
  }

  std::optional<Hints> attempt(const Steps& steps, const std::vector<Group>& groups) {
    return with_values(groups, [&](size_t symbol, size_t group) {
      const Register hint = environment_.symbol(symbol)->hint;
      const std::optional<Step>& step = steps[group];
      if (!step) return hint;
      const int64_t position = step->is_shared ? 1 : static_cast<int64_t>(group) + 1;
      return is_float(symbol) ? other_float(hint.real, *step, position) : other_integer(hint.integer, *step, position);
    });
  }
  // Each group of integers has the value of the next one.
  std::optional<Hints> exchange(const std::vector<Group>& groups) {
    return with_values(groups, [&](size_t, size_t group) {
      size_t next = group;
      do next = (next + 1) % groups.size();
      while (groups[next].is_float != groups[group].is_float);
      return Register{.integer = groups[next].bits};
    });
  }

  // `value_of`: of a symbol in the group of that number. Empty: they are those of the call, or do not satisfy the
  // guards.
  template <class ValueOf>
  std::optional<Hints> with_values(const std::vector<Group>& groups, ValueOf&& value_of) {
    Hints registers(symbols_.count());
    bool changes = false;
    for (size_t i = 0; i < registers.size(); i++) {
      const Expression node = environment_.symbol(i);
      registers[i] = node->hint;
      if (!is_free(i)) continue;
      const auto group = std::ranges::find(groups, group_of(i));
      if (group == groups.end()) continue;
      registers[i] = value_of(i, static_cast<size_t>(group - groups.begin()));
      changes = changes || registers[i].integer != node->hint.integer;
    }
    if (!changes) return {};
    for (size_t i = 0; i < registers.size(); i++) {
      if (is_float(i)) continue;
      if (!is_free(i)) {
        const std::optional<Register> value =
            shapes::evaluate(environment_.simplify(environment_.symbol(i)), registers.data());
        if (!value) return {};
        registers[i] = *value;
      }
      if (!symbols_.given()[i].contains(registers[i].integer)) return {};
    }
    return code_->check(registers.data()) ? std::optional(registers) : std::nullopt;
  }

  BackedSymbols& symbols_;
  shapes::ShapeEnvironment& environment_;
  std::vector<Expression> conditions_;
  std::optional<shapes::GuardBytecode> code_;
};

// ---- comparison --------------------------------------------------------------------------------------------

struct Difference {
  std::string what;
};

[[noreturn]] void differ(const std::string& what) { throw Difference{what}; }

void expect(bool same, const std::string& what) {
  if (!same) differ(what);
}

std::string text_of(Expression expression) { return expression != nullptr ? shapes::text(expression) : ""; }

bool are_equal(Borrowed one, Borrowed other) {
  if (one == other) return true;
  if (one.type() != other.type()) return false;
  // Objects that a trace makes differ; plain ones must not.
  return !lift::is_plain(one.get()) || lift::plain_equal(one.get(), other.get());
}

void compare_values(const graph::Program& one, graph::Value a, const graph::Program& other, graph::Value b,
                    const std::string& where) {
  expect(a.kind() == b.kind() && a.count() == b.count(), where);
  if (a.is_tensor()) return expect(a.index == b.index, where);
  if (a.kind() == graph::ValueKind::Object || a.kind() == graph::ValueKind::Opaque ||
      a.kind() == graph::ValueKind::Symbol)
    return expect(are_equal(one.arena.object(a), other.arena.object(b)), where);
  for (uint32_t i = 0; i < a.children(); i++)
    compare_values(one, one.arena[a.index + i], other, other.arena[b.index + i], where);
}

void compare_nodes(const graph::Program& one, const graph::Program& other) {
  expect(one.nodes.size() == other.nodes.size(), "the number of calls");
  for (size_t n = 0; n < one.nodes.size(); n++) {
    const graph::Node &a = one.nodes[n], &b = other.nodes[n];
    const std::string name = graph::callable_name(a.function());
    expect(name == graph::callable_name(b.function()) && a.positional == b.positional && a.keyword == b.keyword &&
               !a.keyword_names == !b.keyword_names && a.result == b.result && a.elements == b.elements &&
               a.element_count == b.element_count && a.effects == b.effects && a.state == b.state && a.live == b.live &&
               a.separate == b.separate,
           "the call of " + name);
    if (a.keyword_names)
      expect(lift::plain_equal(a.keyword_names.get(), b.keyword_names.get()) ||
                 PyObject_RichCompareBool(a.keyword_names.get(), b.keyword_names.get(), Py_EQ) == 1,
             "the call of " + name);
    for (uint32_t i = 0; i < a.argument_count(); i++)
      compare_values(one, one.argument(a, i), other, other.argument(b, i), "an argument of " + name);
  }
  expect(one.elements.size() == other.elements.size(), "the parts of results");
  for (size_t i = 0; i < one.elements.size(); i++)
    expect(one.elements[i].tensor == other.elements[i].tensor && are_equal(one.elements[i].key, other.elements[i].key),
           "a part of a result");
}

// Unbacked ones are compared by their expressions.
bool have_same_sizes(const at::Tensor& one, const at::Tensor& other) {
  const auto is_unbacked = [](const at::Tensor& fake) {
    return fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  };
  if (is_unbacked(one) != is_unbacked(other)) return false;
  if (!is_unbacked(one)) return one.sizes() == other.sizes();
  const auto text = [](const c10::SymInt& size) {
    return size.is_symbolic() ? size.toSymNode()->str() : std::to_string(size.as_int_unchecked());
  };
  const c10::SymIntArrayRef a = one.sym_sizes(), b = other.sym_sizes();
  return std::ranges::equal(a, b, [&](const c10::SymInt& x, const c10::SymInt& y) { return text(x) == text(y); });
}

void compare_tensors(const graph::Program& one, const graph::Program& other) {
  expect(one.tensors.size() == other.tensors.size(), "the number of tensors");
  for (size_t i = 0; i < one.tensors.size(); i++) {
    const graph::TensorRecord &a = one.tensors[i], &b = other.tensors[i];
    expect(a.origin == b.origin && a.index == b.index && a.is_symbol() == b.is_symbol() &&
               text_of(a.expression) == text_of(b.expression) && a.fake.defined() == b.fake.defined(),
           "a tensor");
    if (!a.fake.defined() || !b.fake.defined()) continue;
    expect(a.fake.dim() == b.fake.dim() && a.fake.scalar_type() == b.fake.scalar_type() &&
               (a.varies || have_same_sizes(a.fake, b.fake)),
           "the sizes of a tensor");
  }
  expect(one.inputs == other.inputs && one.outputs == other.outputs, "the inputs and outputs of the graph");
  expect(one.constants.size() == other.constants.size(), "the number of constant tensors");
  for (size_t i = 0; i < one.constants.size(); i++) {
    const at::Tensor &a = one.constants[i].value, &b = other.constants[i].value;
    expect(one.constants[i].tensor == other.constants[i].tensor && a.sizes() == b.sizes() && at::equal(a, b),
           "a constant tensor");
  }
  compare_values(one, one.result, other, other.result, "the result of the graph");
}

// The sizes that one trace computed, against those of the other's fakes.
void compare_sizes(const graph::SizeSolver& solver, const Hints& hints, const graph::Program& other) {
  const auto expect_value = [&](Expression expression, int64_t found, const char* what) {
    const std::optional<Register> value = shapes::evaluate(expression, hints.data());
    expect(value && value->integer == found, what);
  };
  const auto has_rank = [](const at::Tensor& fake, size_t rank) {
    return fake.defined() && graph::SizeSolver::has_plain_sizes(fake) && fake.dim() == static_cast<int64_t>(rank);
  };
  solver.layouts().each_known([&](uint32_t tensor, const graph::Layout& layout) {
    const at::Tensor& fake = other.tensors[tensor].fake;
    expect(has_rank(fake, layout.strides.size()), "the rank of a tensor");
    if (solver.is_restrided(tensor)) return;
    for (size_t d = 0; d < layout.strides.size(); d++)
      expect_value(layout.strides[d], fake.stride(static_cast<int64_t>(d)), "a stride that was computed");
    if (layout.offset != nullptr) expect_value(layout.offset, fake.storage_offset(), "an offset that was computed");
  });
  solver.each_known([&](uint32_t tensor, const graph::Sizes& sizes) {
    const at::Tensor& fake = other.tensors[tensor].fake;
    expect(has_rank(fake, sizes.size()), "the rank of a tensor");
    for (size_t d = 0; d < sizes.size(); d++)
      expect_value(sizes[d], fake.size(static_cast<int64_t>(d)), "a size that was computed");
  });
}

void compare(const Entry& one, const Entry& other) {
  compare_nodes(one.graph.program(), other.graph.program());
  compare_tensors(one.graph.program(), other.graph.program());
  expect(one.residual.text() == other.residual.text(), "side effects and results");
  expect(one.guards->texts() == other.guards->texts(), "guards");
  expect(one.checks.size() == other.checks.size() && one.stop.size() == other.stop.size(), "where it stops");
  for (size_t i = 0; i < one.stop.size(); i++)
    expect(one.stop[i].code.get() == other.stop[i].code.get() && one.stop[i].next == other.stop[i].next &&
               one.stop[i].current == other.stop[i].current,
           "where it stops");
}

}  // namespace

enum class Verdict : uint8_t { kAgrees, kDiffers, kFails };  // kFails: such a call raises, or stops elsewhere

// What a second trace has found.
struct Finding {
  std::string text;
  lift::Site site;
};

static Finding finding_of(const trace::TraceResult& failed) {
  if (!failed.stopped) return {"a call with another value raises", {}};
  const report::Break& stop = *failed.stopped;
  return {"with another value the call fails: " + stop.context, {Ref(stop.code), std::max(stop.index, 0)}};
}

static Verdict trace_again(const Chain& chain, const trace::Tracer& tracer, const trace::BreakPoint* until,
                           const Entry& entry, const Hints& hints, Finding* found) {
  const graph::WarningsKept unheard(graph::WarningsKept::Kind::kRun);
  trace::TraceOptions options = tracer.options;
  options.hints = std::make_shared<const Hints>(hints);
  trace::OwnedTracer owned(options);
  trace::Tracer& again = *owned;
  guards::AmbientGuard ambient = guards::AmbientGuard::capture();
  const trace::TraceResult& traced = uninterrupted(again.run(chain, until));
  const bool ends_alike = !traced.value == !tracer.result.value && traced.raises == tracer.result.raises;
  if (!ends_alike || (!traced.value && (traced.stopped || !is_whole(traced.cut, chain)))) {
    *found = finding_of(traced);
    return Verdict::kFails;
  }
  try {
    expect(again.instructions() == tracer.instructions(), "the path");
    const std::unique_ptr<Entry> other = build_entry(again, std::move(ambient));
    compare(entry, *other);
    compare_sizes(tracer.backed->solver(), hints, other->graph.program());
  } catch (const replay::CannotRebuild& error) {
    *found = {error.what(), {}};
    return Verdict::kDiffers;
  } catch (const Difference& difference) {
    *found = {"a trace with another value differs in " + difference.what, {}};
    return Verdict::kDiffers;
  }
  return Verdict::kAgrees;
}

void verify_trace(const Chain& chain, const trace::Tracer& tracer, const trace::BreakPoint* until, const Entry& entry) {
  constexpr size_t kMostTraces = 5, kMostGroups = 8;
  const std::shared_ptr<BackedSymbols>& symbols = tracer.backed->symbols();
  if (symbols == nullptr || tracer.options.hints != nullptr || graph::is_open("verify")) return;
  OtherHints others(*symbols);
  const std::vector<Group> groups = others.groups();
  if (groups.empty()) return;  // all were specialized on
  Finding found;
  const auto agrees = [&](const std::vector<Group>& of) {
    found.text = "no other value fits the guards";
    size_t traces = 0;
    for (const Hints& hints : others.find(of)) {
      const Verdict verdict = trace_again(chain, tracer, until, entry, hints, &found);
      if (verdict != Verdict::kFails) return verdict == Verdict::kAgrees;
      if (++traces == kMostTraces) break;
    }
    return false;
  };
  if (agrees(groups)) return;
  const Finding of_all = std::exchange(found, {});
  // Which of them? The others stay symbols, and are verified again in the next trace.
  NeedsStatic needed;
  const auto add_group = [&](const Group& group) {
    for (size_t i = 0; i < symbols->count(); i++) {
      if (!others.is_in(i, group)) continue;
      const BackedSymbols::Origin& origin = symbols->origins()[i];
      needed.add(entry.guards->tree().sources()[origin.source].text(), origin);
    }
  };
  const Finding* why = &of_all;
  Finding last;
  // Numbers may belong together, as the parts of a shape do.
  std::vector<Group> kept;
  for (const bool sizes : {false, true}) {
    const std::vector<Group> some = others.groups_of(sizes);
    if (kept.empty() && some.size() > 1 && some.size() < groups.size() && agrees(some)) kept = some;
  }
  for (size_t g = 0; g < groups.size(); g++) {
    if (!kept.empty() && std::ranges::find(kept, groups[g]) != kept.end()) continue;
    if (kept.empty() && groups.size() > 1 && g < kMostGroups && agrees({groups[g]})) continue;
    add_group(groups[g]);
    if (!found.text.empty()) why = &(last = std::exchange(found, {}));
  }
  // Each by itself agrees: none of them is a symbol then.
  if (needed.empty()) std::ranges::for_each(groups, add_group);
  needed.reason = why->text;
  needed.site = {Ref(why->site.code), why->site.index};
  throw needed;
}

}  // namespace alternator::dispatch
