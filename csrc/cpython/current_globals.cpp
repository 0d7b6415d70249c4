#include "cpython/version.h"

#include "cpython/current_globals.h"

namespace alternator::cpython {

PyObject** current_globals() {
  Frame* frame = current_frame(PyThreadState_Get());
  while (frame != nullptr && is_incomplete(frame)) frame = frame->previous;
  return frame != nullptr ? &frame->f_globals : nullptr;
}

}  // namespace alternator::cpython
