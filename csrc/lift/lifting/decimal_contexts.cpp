// decimal.Context objects, found again by their parts.
#include "lift/lifting/decimal_contexts.h"

#include "cpython/decimal_layout.h"
#include "lift/lifting/lifter.h"
#include "lift/sources/decimal_values.h"

namespace alternator::lift {

static Source* part_of(SourceTree& tree, Source* source, Py_ssize_t part) {
  return tree.child(tree.child(source, Access::kReduced), Access::kIndex, {}, part);
}

Ref DecimalContexts::lift(Borrowed context, Source* source, bool seen) {
  if (Borrowed found = lifter_.lifted(context)) {
    lifter_.guard_same(source, lifter_.known(found)->source);
    if (seen) see_flags(found);
    return Ref::share(found);
  }
  if (lifter_.known(context) != nullptr) {
    if (seen) see_flags(context);
    return Ref::share(context);
  }
  lifter_.guard_type(source, context);
  Ref parts = parts_of_context(context);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); i++) {
    if (i != kFlagsPart)
      lifter_.guard(part_of(lifter_.tree(), source, i), GuardKind::kEquals, PyTuple_GET_ITEM(parts.get(), i));
  }
  source->bears_identity = true;
  Ref copy = checked(PyObject_CallMethod(context.get(), "copy", nullptr));
  checked(PyObject_CallMethod(copy.get(), "clear_flags", nullptr)).reset();
  contexts_.push_back({Ref::share(context), copy, parts_of_context(copy), source});
  Ref lifted = lifter_.remember(context, std::move(copy), source);
  if (seen) see_flags(lifted);
  return lifted;
}

void DecimalContexts::see_flags(Borrowed copy) {
  for (DecimalContext& context : contexts_) {
    if (Borrowed(context.copy) != copy || context.seen) continue;
    context.seen = true;
    Ref parts = parts_of_context(context.original);
    lifter_.guard(part_of(lifter_.tree(), context.source, kFlagsPart), GuardKind::kEquals,
                  PyTuple_GET_ITEM(parts.get(), kFlagsPart));
    const cpython::Signals raised = cpython::signals_of(context.copy.get());
    const uint32_t before = cpython::signals_of(context.original.get()).flags;
    cpython::set_signals(context.copy.get(), {raised.flags | before, raised.traps});
    context.before = std::move(parts);
  }
}

}  // namespace alternator::lift
