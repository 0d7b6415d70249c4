// Where a trace may be cut when it stops, and the event that is reported.
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/scoped_modes.h"
#include "trace/torch/torch_function_modes.h"

#include "interpreter/capture.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "lift/sources/python_twins.h"
#include "trace/calls/markers.h"
#include "trace/core/user_lines.h"

#include <algorithm>

namespace alternator::trace {

// An instruction that enters a transform is executed concretely as a whole, with all that it transforms. Instructions
// of torch's functions, and of the context managers that they use, may enter one without leaving it.
bool Tracer::may_be_cut_at(const Active& active) const {
  if (active.transformed || active.moded) return false;
  PyCodeObject* code = cpython::code_of(active.frame);
  return !is_transformed() || !(is_torchs(code) || is_contextlibs(code));
}

// Visits the frames of the traced program, innermost first, until the visitor returns false.
template <class Visit>
void Tracer::each_active(Visit&& visit) const {
  cpython::Frame* frame = cpython::current_frame(PyThreadState_Get());
  for (; frame != nullptr; frame = frame->previous) {
    for (const Active& active : active_) {
      if (active.frame == frame && !visit(active)) return;
    }
  }
}

// A standard library method on an opaque object (random.randint) would break inside again and again: it runs eagerly as
// a whole. Returns how many of the innermost frames are such methods; 0: all are.
size_t Tracer::library_methods_here() const {
  size_t found = 0;
  bool has_caller = false;
  each_active([&](const Active& active) {
    PyCodeObject* code = cpython::code_of(active.frame);
    PyObject* self = code->co_argcount > 0 ? active.frame->localsplus[0] : nullptr;
    const lift::Known* known = self != nullptr && is_librarys(code) ? lifter.known(self) : nullptr;
    has_caller = known == nullptr || !known->opaque;
    if (!has_caller) found++;
    return !has_caller;
  });
  return has_caller ? found : 0;
}

bool Tracer::is_transformed() const { return functorch->transformed; }

std::vector<BreakPoint> Tracer::points_here(size_t left) const {
  std::vector<BreakPoint> points;
  each_active([&](const Active& active) {
    if (left > 0) {
      left--;
    } else if (may_be_cut_at(active)) {
      points.push_back(active.at);
    }
    return true;
  });
  return points;
}

report::Break Tracer::event_here(report::Reason reason, std::string context, size_t left) const {
  auto line_of = [](PyCodeObject* code, int index) {
    return PyCode_Addr2Line(code, index * static_cast<int>(sizeof(cpython::CodeUnit)));
  };
  report::Break event{reason, std::move(context), {}, 0};
  const auto happened_at = [&](PyCodeObject* code, int index) {
    event.code = Ref::share(code);
    event.line = line_of(code, index);
    event.index = index;
  };
  const auto is_stand_in = [](PyCodeObject* code) { return lift::is_stand_in(reinterpret_cast<PyObject*>(code)); };
  if (left == 0 && current_frame != nullptr && is_stand_in(cpython::code_of(current_frame))) left = 1;
  if (left == 0 && current_frame != nullptr) happened_at(cpython::code_of(current_frame), current_index);
  size_t depth = 0;
  each_active([&](const Active& active) {
    const size_t at = depth++;
    PyCodeObject* code = cpython::code_of(active.frame);
    const int index = cpython::current_index(active.frame);
    if (left > 0 && at == left) {
      happened_at(code, index);
    } else if (at >= left && active.frame != current_frame && !is_stand_in(code)) {
      event.callers.push_back({Ref::share(code), line_of(code, index), index});
    }
    return true;
  });
  return event;
}

// That breaks are forbidden is guarded: this trace does not apply to a call that allows them.
void Tracer::note_refusal() {
  const SavedError outer;
  try {
    for (const BreakSwitch& one : break_switches()) {
      if (lifter.namespaces->peek(one.name_space, one.name).get() != Py_True) continue;
      (void)lifter.containers->dict_item(lifter.namespaces->of_globals(one.name_space), one.name);
      result.refuses = true;
    }
  } catch (const std::exception&) {
    PyErr_Clear();
  }
}

// The frames that may resume before the current instruction, or before an earlier one that cannot be undone.
void Tracer::choose_break_points(report::Reason reason, bool of_text, size_t left) {
  std::vector<BreakPoint>& points = result.break_points;
  points = reason == report::Reason::random_number || of_text ? deferred->points : points_here(left);
  const auto begins_before = [&](const std::vector<BreakPoint>& earlier) {
    return points.empty() || earlier.empty() || earlier.front().number < points.front().number;
  };
  // What such a scope holds is not reconstructed: its `with` statement is entered concretely.
  if (const OpenScope* scope = scopes->open(); scope != nullptr && begins_before(scope->points)) points = scope->points;
  // A mode that the program entered is not on the thread's real mode stack: its `with` statement is entered concretely
  // too. A default-device mode can be pushed there.
  const bool moded = std::any_of(active_.begin(), active_.end(), [](const Active& active) { return active.moded; });
  if ((moded || function_modes->foreign > 0) && !function_modes->points.empty() &&
      begins_before(function_modes->points))
    points = function_modes->points;
}

void Tracer::stop_here(report::Reason reason, std::string context) {
  if (!result.stopped) {
    const size_t left = reason == report::Reason::opaque_object ? library_methods_here() : 0;
    const bool of_text = reason == report::Reason::tensor_text && deferred_strings() > 0 && deferred->event;
    result.stopped =
        of_text && deferred->event->reason == reason ? *deferred->event : event_here(reason, std::move(context), left);
    choose_break_points(reason, of_text, left);
    note_refusal();
  }
  abandon_everything();
}

}  // namespace alternator::trace
