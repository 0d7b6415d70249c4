// Switches that take away a row of the lifting table (lift_rows.def): what the row is about is passed on as it is,
// without a source or a guard.
#pragma once

#include "py/ref.h"
#include "py/switches.h"

namespace alternator::lift {

// ALTERNATOR_WITHOUT_ROWS=tuple,cell
Switches& switches();
// Null where a build has no switches.
const char* row_of(Borrowed value);
inline bool is_switched_off(Borrowed value) {
  return kHasMutants && switches().any_off() && switches().is_off(row_of(value));
}

}  // namespace alternator::lift
