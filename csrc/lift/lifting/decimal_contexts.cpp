// decimal.Context objects, found again by their parts.
#include "lift/sources/decimal_values.h"

#include "cpython/decimal_layout.h"
#include "lift/lifting/lifter.h"

namespace alternator::lift {

static Source* part_of(SourceTree& tree, Source* source, Py_ssize_t part) {
  return tree.child(tree.child(source, Access::kReduced), Access::kIndex, {}, part);
}

Ref Lifter::lift_decimal_context(Borrowed context, Source* source, bool seen) {
  if (auto found = lifted_.find(context.get()); found != lifted_.end()) {
    guard_same(source, known(found->second)->source);
    if (seen) see_decimal_flags(found->second);
    return Ref::share(found->second);
  }
  if (known(context) != nullptr) {
    if (seen) see_decimal_flags(context);
    return Ref::share(context);
  }
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(context.type()));
  Ref parts = parts_of_context(context);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); i++) {
    if (i != kFlagsPart) guard(part_of(tree_, source, i), GuardKind::kEquals, PyTuple_GET_ITEM(parts.get(), i));
  }
  source->bears_identity = true;
  Ref copy = checked(PyObject_CallMethod(context.get(), "copy", nullptr));
  checked(PyObject_CallMethod(copy.get(), "clear_flags", nullptr)).reset();
  decimal_contexts_.push_back({Ref::share(context), copy, parts_of_context(copy), source});
  Ref lifted = remember(context, std::move(copy), source);
  if (seen) see_decimal_flags(lifted);
  return lifted;
}

void Lifter::see_decimal_flags(Borrowed copy) {
  for (DecimalContext& context : decimal_contexts_) {
    if (Borrowed(context.copy) != copy || context.seen) continue;
    context.seen = true;
    Ref parts = parts_of_context(context.original);
    guard(part_of(tree_, context.source, kFlagsPart), GuardKind::kEquals, PyTuple_GET_ITEM(parts.get(), kFlagsPart));
    const cpython::Signals raised = cpython::signals_of(context.copy.get());
    const uint32_t before = cpython::signals_of(context.original.get()).flags;
    cpython::set_signals(context.copy.get(), {raised.flags | before, raised.traps});
    context.before = std::move(parts);
  }
}

}  // namespace alternator::lift
