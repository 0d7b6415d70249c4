// The part of torch's mode stack that belongs to the traced program: torch-function modes that it enters and leaves.
#pragma once

#include "lift/sources/source.h"
#include "py/ref.h"
#include "trace/core/stop.h"

#include <vector>

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

  void take();
  // False: modes other than default-device modes are left.
  bool note_exit();

  // What the program does with its modes.
  void push(Borrowed mode);
  void push_device(Borrowed device);
  Ref pop();
  Ref mode_of_program(Borrowed callable, int64_t at);

  int own = 0;                     // how many the program has entered
  int foreign = 0;                 // ... other than default-device modes
  std::vector<BreakPoint> points;  // where the first of those was entered

 private:
  lift::Source* source(int64_t index);
  std::vector<Ref> now() const;

  Tracer& t;
  std::vector<Ref> modes_before_;         // the initial modes, if has_modes
  PyObject* last_popped_mode_ = nullptr;  // borrowed: only compared
};

}  // namespace alternator::trace
