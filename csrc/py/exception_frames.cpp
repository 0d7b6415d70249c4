#include "py/exception_frames.h"

#include "py/error.h"

#include <frameobject.h>

#include <vector>

namespace alternator {

void end_frames(Borrowed exception, int depth) {
  constexpr int kDeepest = 20;
  auto* e = exception.as<PyBaseExceptionObject>();
  std::vector<Ref> frames;
  if (e->traceback != nullptr && PyTraceBack_Check(e->traceback)) {
    for (auto* entry = reinterpret_cast<PyTracebackObject*>(e->traceback); entry != nullptr; entry = entry->tb_next)
      frames.push_back(Ref::share(reinterpret_cast<PyObject*>(entry->tb_frame)));
  }
  for (; !frames.empty(); frames.pop_back()) {
    if (!Ref::steal(PyObject_CallMethod(frames.back().get(), "clear", nullptr))) PyErr_Clear();
  }
  if (depth == kDeepest) return;
  if (e->cause != nullptr) end_frames(e->cause, depth + 1);
  if (e->context != nullptr) end_frames(e->context, depth + 1);
}

}  // namespace alternator
