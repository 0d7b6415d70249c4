// Switches that disable a row of the lifting table (lift_rows.def): values of that row are passed on unlifted, without
// a source or a guard.
#pragma once

#include "py/ref.h"
#include "py/switches.h"

namespace alternator::lift {

// ALTERNATOR_WITHOUT_ROWS=tuple,cell
Switches& switches();
// Null in builds without switches.
const char* row_of(Borrowed value);
inline bool is_switched_off(Borrowed value) {
  return kHasMutants && switches().any_off() && switches().is_off(row_of(value));
}

}  // namespace alternator::lift
