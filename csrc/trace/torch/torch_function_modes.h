// TODO
#pragma once
#include <vector>
#include "lift/sources/source.h"
#include "trace/core/stop.h"

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class TorchFunctionModes {
 public:
  explicit TorchFunctionModes(Tracer& tracer) : t(tracer) {}
  // The next torch call is dispatched to such a mode before the recording mode: its __torch_function__ is traced like
  // any other callback.
  bool is_active() const;
  void forbid(const char* what) const;
  // An exception that ends or cuts the trace is propagating.
  bool is_unwinding() const;
  int64_t below_recording() const;
  // Null: it is no call that changes the mode stack.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t count);
  void take();
  // False: modes other than default-device modes are left.
  bool note_exit();
  int own = 0;                     // how many the program has entered
  int foreign = 0;                 // ... other than default-device modes
  std::vector<BreakPoint> points;  // where the first of those was entered

 private:
  Ref call_device_scope(Borrowed callable, size_t count);
  void push(Borrowed mode);
  Ref pop();
  lift::Source* source(int64_t index);
  std::vector<Ref> now() const;
  std::vector<Ref> modes_before_;         // the initial modes, if has_modes
  PyObject* last_popped_mode_ = nullptr;  // borrowed: only compared
  Tracer& t;
};

}  // namespace alternator::trace
