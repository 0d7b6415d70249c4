// torch modes whose lifetime an object holds (RAII guards in C++).
#pragma once

#include "py/error.h"

namespace alternator::trace {

// The traced counterpart of torch._C._InferenceMode(mode): the same mode, but deallocating the object does not end it,
// since objects of a trace may be deallocated at any time.
extern PyTypeObject inference_scope_type;

// The traced counterpart of torch._C.DisableTorchFunctionSubclass().
extern PyTypeObject subclass_scope_type;

int init_modes();

// Exactly torch.utils._device.DeviceContext, no subclass.
bool is_device_context(PyTypeObject* type);

}  // namespace alternator::trace
