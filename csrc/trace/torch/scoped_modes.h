// Modes of torch that an object holds open.
#pragma once

#include "py/error.h"

namespace alternator::trace {

// What torch._C._InferenceMode(mode) gives in a trace: the same mode, but dropping the object does not end it, since
// objects of a trace may die at any time.
extern PyTypeObject inference_scope_type;

// What torch._C.DisableTorchFunctionSubclass() gives.
extern PyTypeObject subclass_scope_type;

int init_modes();

// torch.utils._device.DeviceContext itself.
bool is_device_context(PyTypeObject* type);

}  // namespace alternator::trace
