// Scalars whose value differed at each recent trace.
#include "lift/lifting/unspecialized.h"

#include "fake/unbacked_symbol.h"
#include "lift/lifting/lifter.h"

#include <algorithm>

namespace alternator::lift {

bool Unspecialized::includes(Borrowed value, const Source& source) const {
  if (texts == nullptr || !is_open || lifter_.only_lasting) return false;
  if (!is_counting(value) && !PyUnicode_CheckExact(value.get()) && !is_filled(value)) return false;
  if (!source.is_variable()) return false;
  // Of containers, only elements of an unpacked tuple (see lift_tuple()) count as variables.
  auto is_tuple = [](const Guard& guard) {
    return guard.kind == GuardKind::kType && Borrowed(guard.object) == reinterpret_cast<PyObject*>(&PyTuple_Type);
  };
  if (source.access == Access::kIndex && std::ranges::none_of(source.parent->guards, is_tuple)) return false;
  return texts->contains(source.text());
}

// One symbol per source, since the scalar is the same object whenever it is read. There is no symbolic string or
// container: instructions that read one run concretely.
Ref Unspecialized::lift(Borrowed number, Source* source) {
  if (!is_counting(number))
    throw CannotLift(std::string("a ") + number.type()->tp_name + " whose value differs from call to call");
  Ref& lifted = symbols_[source];
  if (lifted) return lifted;
  lifter_.guard_type(source, number);
  lifted = fake::make_symbol(number.type());
  lifter_.know(lifted, number, source);
  if (on_lift) on_lift();
  return lifted;
}

}  // namespace alternator::lift
