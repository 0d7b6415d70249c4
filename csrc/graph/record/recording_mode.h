// The `__torch_function__` mode that passes torch calls made by C code (sum([...]), sorted, operator.matmul, x.T, x[i])
// to a recorder. It is a C object: no Python code runs for it.
#pragma once

#include "py/error.h"

#include <ATen/PythonTorchFunctionTLS.h>

#include <memory>
#include <utility>

namespace alternator::graph {

class Recorder;

// The mode object of a recorder; after detach() it forwards calls without recording them.
Ref make_mode(Recorder& recorder);
void detach_mode(Borrowed mode);

// Pushes a mode on this thread's stack for its lifetime. Afterwards the stack is what it was before, also when the
// program was abandoned inside of another mode.
class ModeOnStack {
 public:
  explicit ModeOnStack(Borrowed mode);
  ~ModeOnStack();
  ModeOnStack(const ModeOnStack&) = delete;
  ModeOnStack& operator=(const ModeOnStack&) = delete;

 private:
  at::impl::PythonTorchFunctionTLS before_;
};

// Whether the next torch call on this thread dispatches to `mode` first.
bool is_top_mode(Borrowed mode);
bool is_recording_mode(PyTypeObject* type);

// Pops the top mode while a call that is already recorded runs, as torch itself does around a mode.
class WithoutTopMode {
 public:
  WithoutTopMode() : mode_(at::impl::PythonTorchFunctionTLS::pop_stack()) {}
  ~WithoutTopMode() { at::impl::PythonTorchFunctionTLS::push_onto_stack(std::move(mode_)); }
  WithoutTopMode(const WithoutTopMode&) = delete;
  WithoutTopMode& operator=(const WithoutTopMode&) = delete;

 private:
  std::shared_ptr<c10::SafePyObject> mode_;
};

}  // namespace alternator::graph
