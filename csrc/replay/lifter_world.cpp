// The World of a real trace.
#include "lift/lifting/containers.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/plain_origins.h"
#include "lift/lifting/symbolic_inputs.h"
#include "lift/lifting/write_log.h"
#include "lift/sources/finalization.h"
#include "replay/cannot_rebuild.h"
#include "replay/residual.h"

#include "fake/numpy_scalar_input.h"
#include "fake/python_tensor.h"

#include <algorithm>

namespace alternator::replay {

lift::Source* LifterWorld::source_of(Borrowed object) {
  // A plain value is a constant; but a pre-existing one is returned as the same object.
  const bool is_plain = object && lift::is_plain(object.get()) && !lift::is_nan(object.get());
  if (lift::Source* origin = is_plain ? lifter_.origins->of(object) : nullptr) return origin;
  const lift::Known* known = lifter_.known(object);
  if (is_plain && known == nullptr) return nullptr;  // a known one was a symbol, on which the trace has specialized
  if (known == nullptr || known->source == nullptr) return nullptr;
  // A literal of the code that was also passed in: here it is the literal, and a guard ensures that the input is that
  // object.
  if (lifter_.functions->is_code_constant(object) && known->source->access != lift::Access::kConstant) {
    lifter_.tree().guard(known->source, {lift::GuardKind::kIs, Ref::share(object)});
    return nullptr;
  }
  return known->source;
}
bool LifterWorld::made_here(Borrowed object) { return lifter_.made_here(object); }
bool LifterWorld::is_code_constant(Borrowed object) { return lifter_.functions->is_code_constant(object); }
bool LifterWorld::is_constant(Borrowed object) { return lifter_.is_noted_constant(object); }
std::vector<EffectCall> LifterWorld::calls() { return lifter_.write_log->effects(); }
bool LifterWorld::is_graph_tensor(Borrowed tensor) { return fake::is_fake(fake::unpack(tensor.get())); }
bool LifterWorld::is_graph_array(Borrowed object) {
  return lifter_.symbolic_arrays.is_result(object) || fake::is_numpy_scalar_input(object);
}
std::optional<uint32_t> LifterWorld::number_of(Borrowed object) {
  const auto& symbols = lifter_.symbolic->symbols;
  const shapes::Expression expression = symbols != nullptr ? symbols->expression_of(object) : nullptr;
  if (expression == nullptr) return {};
  return symbols->result_of(expression);
}
const std::deque<lift::Shadow>& LifterWorld::shadows() { return lifter_.containers->shadows(); }
std::vector<lift::VariableWrite> LifterWorld::writes() { return lifter_.write_log->writes(); }
void LifterWorld::guard_length(const lift::Shadow& shadow) {
  lifter_.tree().guard(shadow.source, {lift::GuardKind::kLength, {}, {}, shadow.length});
}

void LifterWorld::guard_finalization(const lift::Shadow& shadow, lift::Access access, Borrowed key, Py_ssize_t index) {
  auto is_equal = [](const lift::Guard& guard) { return guard.kind == lift::GuardKind::kEquals; };
  if (std::ranges::any_of(shadow.source->guards, is_equal)) return;  // plain values only
  lift::Source* source = lifter_.tree().child(shadow.source, access, key, index);
  if (std::ranges::any_of(source->guards, is_equal)) return;
  Ref owner;
  PyObject* old = lift::follow(*source, shadow.original.get(), &owner);
  if (old == nullptr) return;
  // While a trace lives, its copies hold references to the originals.
  constexpr Py_ssize_t kOfTheTrace = 5;
  auto is_shared = [&](PyObject* object) { return !lifter_.is_lifted(object) && Py_REFCNT(object) > kOfTheTrace + 1; };
  if (lift::is_finalization_observable(old, is_shared))
    throw CannotRebuild("the finalization of " + source->text() + ", which the call drops, is observable");
  lifter_.tree().guard(source, {lift::GuardKind::kUnobserved});
  if (lifter_.is_lifted(old)) return;
  // It must not be the referent of a weak reference that the call has read either: that would be dead from then on.
  for (lift::Source* referent : referents()) {
    lift::Guard distinct{lift::GuardKind::kDistinct};
    distinct.other = referent;
    lifter_.tree().guard(source, std::move(distinct));
  }
}

const std::vector<lift::Source*>& LifterWorld::referents() {
  if (!referents_) {
    referents_.emplace();
    for (const lift::Source& source : lifter_.tree().sources()) {
      if (source.access == lift::Access::kReferent) referents_->push_back(lifter_.tree().at(source.id));
    }
  }
  return *referents_;
}

Residual Residual::build(lift::Lifter& lifter, const std::vector<Borrowed>& results, std::vector<Ref>* graph_outputs,
                         std::vector<lift::Source*>* needed, bool raises, const Frames& frames) {
  LifterWorld world(lifter);
  return build(world, results, graph_outputs, needed, raises, frames);
}

}  // namespace alternator::replay
