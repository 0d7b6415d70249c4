// CPython 3.13: functions of more than a line.
#include "cpython/micro.h"
#include "cpython/operations.h"

namespace alternator::cpython {

// Everything that other versions do not export can be called.
std::span<const MicroCode> micro_codes() { return {}; }

Intrinsic1 intrinsic1(int oparg) {
  switch (oparg) {
    case INTRINSIC_IMPORT_STAR:
      return Intrinsic1::kImportStar;
    case INTRINSIC_UNARY_POSITIVE:
      return Intrinsic1::kUnaryPositive;
    case INTRINSIC_LIST_TO_TUPLE:
      return Intrinsic1::kListToTuple;
    default:
      return Intrinsic1::kOther;
  }
}

Ref call_intrinsic1(PyThreadState* ts, int which, Borrowed value) {
  return Ref::steal(_PyIntrinsics_UnaryFunctions[which].func(ts, value.get()));
}
Ref call_intrinsic2(PyThreadState* ts, int which, Borrowed left, Borrowed right) {
  return Ref::steal(_PyIntrinsics_BinaryFunctions[which].func(ts, left.get(), right.get()));
}

Ref yield_from_target(PyGenObject* generator) {
  if (generator->gi_frame_state != FRAME_SUSPENDED_YIELD_FROM) return {};
  return Ref::share(_PyFrame_StackPeek(frame_of_generator(generator)));
}

bool can_throw_at(PyCodeObject* code, int index) {
  Handler here{}, before{};
  if (find_handler(code, index, &here) != find_handler(code, index - 1, &before)) return false;
  return here.target == before.target && here.depth == before.depth && here.push_lasti == before.push_lasti;
}

void trace_unwind(PyThreadState* ts, Frame* frame) {
  PyCodeObject* code = code_of(frame);
  PyMonitoringState tools{ts->interp->monitors.tools[PY_MONITORING_EVENT_PY_UNWIND], 0};
  if ((code->co_flags & CO_NO_MONITORING_EVENTS) != 0 || ts->tracing != 0) return;
  // The return value says that a callback raised: its exception has replaced the frame's.
  PyMonitoring_FirePyUnwindEvent(&tools, reinterpret_cast<PyObject*>(code),
                                 current_index(frame) * static_cast<int>(sizeof(CodeUnit)));
}

bool spec_is_initializing(PyObject* spec) {
  if (spec == nullptr) return false;
  PyObject* value = nullptr;
  const int found = PyObject_GetOptionalAttrString(spec, "_initializing", &value);
  Ref initializing = Ref::steal(value);
  const bool yes = found > 0 && PyObject_IsTrue(value) > 0;
  PyErr_Clear();
  return yes;
}

}  // namespace alternator::cpython
