#include "trace/torch/grad_mode_blocks.h"

#include "cpython/version.h"
#include "graph/record/torch_types.h"
#include "py/lasting.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

namespace alternator::trace {

namespace {

using Setter = graph::GradSets::Setter;

// The context managers of torch.autograd.grad_mode, which are written in Python.
struct Managers {
  struct One {
    Ref cls, entering, leaving;  // its class, and the code objects of its __enter__ and __exit__
    std::optional<bool> mode;    // that it sets; nullopt: the one passed to its constructor
  };
  Ref making = code("set_grad_enabled", "__init__");
  std::vector<One> all;

  Managers() {
    const auto add = [&](const char* name, std::optional<bool> mode) {
      all.push_back(
          {graph::torch_name("torch.autograd.grad_mode", name), code(name, "__enter__"), code(name, "__exit__"), mode});
    };
    add("no_grad", false);
    add("enable_grad", true);
    add("set_grad_enabled", std::nullopt);
  }

  static Ref code(const char* name, const char* method) {
    Ref cls = graph::torch_name("torch.autograd.grad_mode", name);
    return checked(PyObject_GetAttrString(checked(PyObject_GetAttrString(cls.get(), method)).get(), "__code__"));
  }
  static const Managers& table() {
    static constinit Lasting<Managers> lasting;
    return lasting.get();
  }

  std::optional<Setter> setter(Borrowed code) const {
    if (code == making) return Setter::kCall;
    for (const One& one : all) {
      if (code == one.entering) return one.mode ? Setter::kEntered : Setter::kEnteredAgain;
      if (code == one.leaving) return Setter::kLeft;
    }
    return std::nullopt;
  }
};

std::optional<bool> flag(Borrowed manager, const char* name) {
  Ref value = Ref::steal(PyObject_GenericGetAttr(manager.get(), checked(PyUnicode_InternFromString(name)).get()));
  if (!value) PyErr_Clear();
  if (!value || !PyBool_Check(value.get())) return std::nullopt;
  return value.get() == Py_True;
}

}  // namespace

void note_open_blocks(const Chain& chain, graph::Recorder& recorder) {
  if (c10::InferenceMode::is_enabled()) return;
  for (size_t i = chain.size(); i-- > 0;) {
    for (const Ref& value : chain[i].stack) {
      // A `with` statement keeps the bound __exit__ on the value stack.
      if (!value || !PyMethod_Check(value.get()) || !PyFunction_Check(PyMethod_GET_FUNCTION(value.get()))) continue;
      Borrowed manager = PyMethod_GET_SELF(value.get());
      Borrowed code = PyFunction_GET_CODE(PyMethod_GET_FUNCTION(value.get()));
      for (const Managers::One& one : Managers::table().all) {
        if (code != Borrowed(one.leaving) || manager.type() != one.cls.as<PyTypeObject>()) continue;
        const std::optional<bool> previous = flag(manager, "prev");
        const std::optional<bool> mode = one.mode ? one.mode : flag(manager, "mode");
        if (previous && mode) recorder.program().grad_sets.open(*previous, *mode);
      }
    }
  }
}

void note_grad_set(bool previous, graph::Recorder& recorder) {
  // Inference mode is a scope of its own, which defines the grad mode inside it.
  if (recorder.is_silent() || c10::InferenceMode::is_enabled()) return;
  const Managers& managers = Managers::table();
  Setter setter = Setter::kCall;
  // no_grad's methods call set_grad_enabled: the outermost frame of these is the one that sets the mode.
  cpython::Frame* frame = cpython::current_frame(PyThreadState_Get());
  for (; frame != nullptr; frame = frame->previous) {
    if (cpython::is_incomplete(frame)) continue;
    const std::optional<Setter> found = managers.setter(reinterpret_cast<PyObject*>(cpython::code_of(frame)));
    if (!found) break;
    setter = *found;
  }
  graph::Program& program = recorder.program();
  program.grad_sets.note(setter, previous, c10::GradMode::is_enabled(), static_cast<uint32_t>(program.nodes.size()));
}

}  // namespace alternator::trace
