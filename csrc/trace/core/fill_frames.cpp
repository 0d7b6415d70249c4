#include "trace/core/fill_frames.h"

#include "interpreter/frame_values.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/lazy_objects.h"
#include "trace/core/frame_access.h"
#include "trace/core/tracer.h"
#include "trace/soundness/finalizers.h"

namespace alternator::trace {

namespace {

// Slots are numbered in the order of each_value().
class FrameFiller {
 public:
  FrameFiller(Tracer& tracer, const FrameState& from, FrameState* to, bool outermost, Py_ssize_t first_slot)
      : t(tracer),
        from_(from),
        to_(*to),
        outermost_(outermost),
        begun_(from.next > 0 || from.continuation != Continuation::kNone),
        slot_(first_slot) {}

  // The first slot of the next frame.
  Py_ssize_t fill() {
    to_ = shape_of(from_);
    to_.function = t.lifter.lift(from_.function, outermost_ ? t.tree->function() : unnamed("function"));
    if (!outermost_) slot_++;
    if (begun_) t.lifter.functions->note_code(from_.code);
    fill_locals();
    fill_stack();
    fill_rest();
    if (from_.generator) stop(report::Reason::native_call, "a generator that is running");
    return slot_;
  }

 private:
  PyCodeObject* code() const { return from_.code.as<PyCodeObject>(); }
  lift::Source* unnamed(const char* what) {
    return t.tree->slot(slot_, checked(PyUnicode_FromFormat("the %s of %U", what, code()->co_name)));
  }
  // A slot may hold the last reference to its value: observable finalization is detected here, or by the guard in a
  // later call.
  void watch(Borrowed value, lift::Source* source) {
    t.finalizers->watch_slot(value);
    if (!holds_observably_finalized(value)) t.tree->guard(source, {lift::GuardKind::kUnobserved});
  }
  void fill_locals();
  void fill_stack();
  void fill_rest();

  Tracer& t;
  const FrameState& from_;
  FrameState& to_;
  const bool outermost_, begun_;
  Py_ssize_t slot_;
};

void FrameFiller::fill_locals() {
  for (size_t i = 0; i < from_.locals.size(); i++, slot_++) {
    if (!from_.locals[i]) continue;
    Borrowed value = from_.locals[i];
    lift::Source* source =
        t.tree->slot(slot_, PyTuple_GET_ITEM(code()->co_localsplusnames, static_cast<Py_ssize_t>(i)));
    const bool is_cell = begun_ && PyCell_Check(value.get()) &&
                         (PyBytes_AS_STRING(code()->co_localspluskinds)[i] & (CO_FAST_CELL | CO_FAST_FREE)) != 0;
    if (begun_ && !is_cell) watch(value, source);
    to_.locals[i] = is_cell ? t.lifter.cells->use(value, source) : t.lifter.lazy->make(value, source);
  }
}

void FrameFiller::fill_stack() {
  // If the rest of the interrupted instruction inspects its operands, they must be lifted.
  const bool inspects = from_.continuation != Continuation::kNone && from_.continuation != Continuation::kValue &&
                        from_.continuation != Continuation::kDiscard;
  for (size_t i = 0; i < from_.stack.size(); i++, slot_++) {
    if (!from_.stack[i]) continue;
    // The exception that the callers handle belongs to the thread, and is put there when the frame is filled.
    if (static_cast<int>(i) == from_.saved_exception_slot) {
      to_.stack[i] = Ref::share(Py_None);
      continue;
    }
    const bool is_operand = inspects && i + static_cast<size_t>(from_.operands) >= from_.stack.size();
    lift::Source* source = unnamed(("value stack[" + std::to_string(i) + "]").c_str());
    // Since 3.12 an inlined comprehension saves the cell of an outer variable there (LOAD_FAST_AND_CLEAR): it becomes
    // a local again, and cells in locals are not lazy values.
    if (PyCell_Check(from_.stack[i].get())) {
      to_.stack[i] = t.lifter.cells->use(from_.stack[i], source);
      continue;
    }
    watch(from_.stack[i], source);
    to_.stack[i] = is_operand ? t.lifter.lift(from_.stack[i], source) : t.lifter.lazy->make(from_.stack[i], source);
    if (!is_operand) t.note_lazy_on_stack();
    t.finalizers->stand_ins.push_back(to_.stack[i].get());
  }
}

void FrameFiller::fill_rest() {
  // It is only compared with operands, or is the instance that __init__ initializes: a plain value is never either.
  if (from_.first_argument && (begun_ || !outermost_)) {
    to_.first_argument = lift::is_plain(from_.first_argument.get())
                             ? Ref::share(from_.first_argument)
                             : t.lifter.lift(from_.first_argument, unnamed("first argument"));
  }
  slot_ += 2;  // and the generator
  if (from_.locals_mapping) {
    if ((code()->co_flags & CO_OPTIMIZED) == 0) stop(report::Reason::native_call, "a class body");
    to_.locals_mapping = t.lifter.lift(from_.locals_mapping, unnamed("locals()"));
  }
  slot_++;
  if (from_.frame_object) to_.frame_object = t.frames->stand_in_of_frame(from_, unnamed("frame"));
  slot_++;
  if (from_.saved_exception_slot < 0) return;
  if (from_.handled) {
    lift::Source* source = unnamed("exception");
    watch(from_.handled, source);
    to_.handled = t.lifter.lift(from_.handled, source);
  }
  slot_++;
}

}  // namespace

void fill_frames(Tracer& tracer, const Chain& chain, Chain* filled) {
  Py_ssize_t slot = 0;
  for (size_t i = chain.size(); i-- > 0;) {
    const bool outermost = i + 1 == chain.size();
    slot = FrameFiller(tracer, chain[i], &(*filled)[i], outermost, slot).fill();
  }
}

}  // namespace alternator::trace
