// torch modes whose lifetime an object holds (RAII guards in C++).
#pragma once

#include "py/error.h"
#include "trace/core/stop.h"

#include <vector>

namespace alternator::trace {

class Tracer;

// The traced counterpart of torch._C._InferenceMode(mode): the same mode, but deallocating the object does not end it,
// since objects of a trace may be deallocated at any time.
extern PyTypeObject inference_scope_type;

// The traced counterpart of torch._C.DisableTorchFunctionSubclass().
extern PyTypeObject subclass_scope_type;

int init_modes();

// Exactly torch.utils._device.DeviceContext, no subclass.
bool is_device_context(PyTypeObject* type);

struct OpenScope {
  PyObject* scope;  // borrowed: only compared
  std::vector<BreakPoint> points;
};

// The scopes that the program has entered and not left: no break is possible inside them.
class ScopedModes {
 public:
  explicit ScopedModes(Tracer& tracer) : t(tracer) {}

  void open(Borrowed scope);
  void close(Borrowed scope);
  const OpenScope* open() const;  // the first; null: there is none

 private:
  Tracer& t;
  std::vector<OpenScope> open_;
};

}  // namespace alternator::trace
