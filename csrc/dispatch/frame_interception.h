// Takes over frames that begin while an instruction is executed concretely.
#pragma once

#include "cpython/operations.h"
#include "interpreter/frame_hook.h"

namespace alternator::dispatch {

struct Compilation;

// While it lives, a compilation intercepts the frames that begin on this thread; null: none does.
class Interception {
 public:
  // `by`: the code of the frame whose instruction is executed concretely; null: the frames run eagerly.
  Interception(Compilation* to, bool may_trace, Borrowed by = {});
  ~Interception();
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;

  // The next frame of this code runs eagerly.
  static void skip_once(PyCodeObject* code);

 private:
  struct State {
    Compilation* compilation = nullptr;  // kept alive by the call in progress
    bool may_trace = false;
    PyCodeObject* skip_once = nullptr;
    PyObject* by = nullptr;          // compared by identity only
    PyCodeObject* marked = nullptr;  // ... a function that the user disabled non-recursively
    bool by_any_caller = false;
  };
  friend void intercept_for_innermost();
  static bool is_called_eagerly(cpython::Frame* frame);
  static bool intercept(PyThreadState* ts, cpython::Frame* frame, PyObject** result);
  static thread_local State now __attribute__((tls_model("initial-exec")));

  FrameInterceptor interceptor_;
  State before_;
};

// Between the two, functions that are called on this thread are compiled, each by itself, like callees of an
// instruction that is executed concretely. The compilation must live until the end.
void begin_interception(Compilation& compilation);
void end_interception(Compilation& compilation);

}  // namespace alternator::dispatch
