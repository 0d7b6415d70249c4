#include "dispatch/frame_interception.h"

#include "cpython/objects.h"
#include "dispatch/capture_loop.h"
#include "dispatch/stance.h"
#include "py/names.h"

#include <algorithm>

namespace alternator::dispatch {

// Calls of an intercepted callee, as long as it is graphless.
static constexpr int kMaxGraphlessCalls = 2;

thread_local Interception::State Interception::now __attribute__((tls_model("initial-exec")));

Interception::Interception(Compilation* to, bool may_trace, Borrowed by)
    : interceptor_(std::exchange(frame_interceptor, to != nullptr ? intercept : nullptr)),
      before_(std::exchange(now, {to, may_trace, nullptr, by.get(), nullptr, false})) {}

Interception::~Interception() {
  frame_interceptor = interceptor_;
  now = before_;
}

void Interception::skip_once(PyCodeObject* code) { now.skip_once = code; }

namespace {

// Moves the fast locals of a frame that has not begun into the call.
class TakenSlots {
 public:
  TakenSlots(cpython::Frame* frame, std::vector<Ref>& slots) : frame_(frame), slots_(slots) {
    const int count = cpython::code_of(frame)->co_nlocalsplus;
    for (int i = 0; i < count; i++) slots_.push_back(Ref::steal(std::exchange(frame->localsplus[i], nullptr)));
  }
  void give_back() {
    for (size_t i = 0; i < slots_.size(); i++) frame_->localsplus[i] = slots_[i].release();
  }

 private:
  cpython::Frame* frame_;
  std::vector<Ref>& slots_;
};

std::shared_ptr<Compilation> compilation_of(Callee& callee, const Compilation& caller, bool eagerly) {
  std::shared_ptr<Compilation>& made = eagerly ? callee.eager_compilation : callee.compilation;
  if (made == nullptr) {
    made = std::make_shared<Compilation>(std::make_shared<Store>());
    made->listener = caller.listener;
    made->backend = caller.backend;
    made->most_entries = caller.most_entries;
    made->dynamic = caller.dynamic;
    made->family = caller.family;
    made->denies = eagerly;
  }
  return made;
}

// Null without an exception: the frame runs eagerly.
Ref run_callee(Callee& callee, Compilation& compilation, cpython::Frame* frame, bool may_trace) {
  Call call(compilation, cpython::function_of(frame), may_trace);
  const NestedCall nested;
  TakenSlots taken(frame, call.slots);
  Ref result;
  try {
    const Interception nothing(nullptr, false);
    result = call.run();
  } catch (const PyError&) {
    if (!call.raise_in_frames()) throw;
  }
  if (compilation.graphs == 0 && ++callee.graphless >= kMaxGraphlessCalls) callee.kind = Callee::Kind::kSkip;
  if (result) return result;
  if (call.chain.empty()) {
    call.values.clear();
    taken.give_back();
    return {};
  }
  call.values.clear();
  result = call.continue_eagerly();
  if (!result) throw PyError();
  return result;
}

// sys.breakpointhook, borrowed; null: none. PySys_GetObject() would build and hash the name for every frame.
PyObject* breakpoint_hook() {
  static PyObject* variables = nullptr;
  static PyObject* found = nullptr;  // valid for `version` of the dict
  static uint64_t version = 0;
  if (variables == nullptr) {
    PyObject* sys = PyDict_GetItemString(PyImport_GetModuleDict(), "sys");
    if (sys == nullptr || !PyModule_Check(sys)) return PySys_GetObject("breakpointhook");
    variables = Py_NewRef(PyModule_GetDict(sys));
  }
  if (const uint64_t now = cpython::dict_version(variables); now != version) {
    found = PyDict_GetItemWithError(variables, names::breakpointhook);
    if (found == nullptr) PyErr_Clear();
    version = now;
  }
  return found;
}

// A debugger must not be compiled, nor what it calls.
bool is_breakpoint_hook(Borrowed function) {
  PyObject* hook = breakpoint_hook();
  if (hook != nullptr && PyMethod_Check(hook)) hook = PyMethod_GET_FUNCTION(hook);
  return hook == function.get();
}

}  // namespace

// A frame and its caller must get the same answer from torch.compiler.is_compiling().
bool Interception::is_called_eagerly(cpython::Frame* frame) {
  if (now.compilation->denies) return true;
  if (now.by_any_caller) return false;
  cpython::Frame* caller = cpython::current_frame(PyThreadState_Get());  // the new frame is linked only once it runs
  if (caller == frame) caller = caller->previous;
  while (caller != nullptr && cpython::is_incomplete(caller)) caller = caller->previous;
  if (caller == nullptr) return true;
  PyCodeObject* code = cpython::code_of(caller);
  return code != now.marked && reinterpret_cast<PyObject*>(code) != now.by;
}

bool Interception::intercept(PyThreadState* ts, cpython::Frame* frame, PyObject** result) {
  if (!is_plain_start(ts, frame)) return false;
  PyCodeObject* code = cpython::code_of(frame);
  Borrowed function = cpython::function_of(frame);
  const bool skip_once = now.skip_once == code;
  if (skip_once) now.skip_once = nullptr;
  auto run_alone = [&] {
    const Interception nothing(nullptr, false);
    *result = run_unintercepted(ts, frame);
    return true;
  };
  if (is_breakpoint_hook(function)) return run_alone();
  switch (disabled_by(function)) {
    case Disabled::kAll:
      return run_alone();
    case Disabled::kItself:
      now.skip_once = code_behind(function);
      now.marked = now.skip_once != nullptr ? now.skip_once : code;
      return false;
    case Disabled::kNone:
      break;
  }
  if (skip_once) return false;
  if (now.compilation->family->is_skipped(code)) return false;
  std::shared_ptr<Callee> callee = now.compilation->family->callee(frame);
  if (callee == nullptr || callee->kind == Callee::Kind::kSkip) return false;
  if (callee->kind == Callee::Kind::kSkipAll) return run_alone();
  if (!may_reach_tensor(frame, *callee)) return false;
  const Stance wanted = stance();
  if (wanted == Stance::kEager) return run_alone();
  std::shared_ptr<Compilation> compilation;
  Ref found;
  try {
    compilation = compilation_of(*callee, *now.compilation, is_called_eagerly(frame));
    found = run_callee(*callee, *compilation, frame, now.may_trace && wanted != Stance::kKnownOnly);
    if (!found) return false;
  } catch (const PyError&) {
  } catch (const std::exception& error) {
    PyErr_Format(PyExc_RuntimeError, "alternator: %s", error.what());
  }
  *result = cpython::end_frame(ts, frame, found.release());
  return true;
}

// Compilations that intercept frames of this thread by begin_interception(), innermost last. The callers of it keep
// them alive.
static thread_local std::vector<Compilation*> intercepting;

void intercept_for_innermost() {
  Compilation* to = intercepting.empty() ? nullptr : intercepting.back();
  frame_interceptor = to != nullptr ? Interception::intercept : nullptr;
  Interception::now = {to, to != nullptr, nullptr, nullptr, nullptr, true};
}

void begin_interception(Compilation& compilation) {
  acquire_hook();
  intercepting.push_back(&compilation);
  intercept_for_innermost();
}

void end_interception(Compilation& compilation) {
  auto found = std::find(intercepting.rbegin(), intercepting.rend(), &compilation);
  if (found == intercepting.rend()) return;  // it began on another thread
  intercepting.erase(std::next(found).base());
  intercept_for_innermost();
  release_hook();
}

}  // namespace alternator::dispatch
