// CALL_INTRINSIC_*: opcodes that 3.12 merged into two.
#pragma once

#include "cpython/micro.h"
#include "interpreter/machine.h"

namespace alternator {

ALT_OP(CALL_INTRINSIC_1) {
  switch (cpython::intrinsic1(oparg)) {
    case cpython::Intrinsic1::kStopIterationError:
      return Flow::kLeave;  // accesses the frame that executes it
    case cpython::Intrinsic1::kImportStar:
      return m.replace(1, m.semantics.import_star(m.frame->f_locals, m.peek(1)) < 0 ? Ref() : Ref::share(Py_None));
    case cpython::Intrinsic1::kUnaryPositive:
      return m.replace(1, m.semantics.unary(PyNumber_Positive, m.peek(1)));
    case cpython::Intrinsic1::kListToTuple:
      return m.replace(1, Ref::steal(PyList_AsTuple(m.peek(1))));
    case cpython::Intrinsic1::kOther:
      break;
  }
  return m.replace(1, cpython::call_intrinsic1(m.ts, oparg, m.peek(1)));
}

ALT_OP(CALL_INTRINSIC_2) { return m.replace(2, cpython::call_intrinsic2(m.ts, oparg, m.peek(2), m.peek(1))); }

}  // namespace alternator
