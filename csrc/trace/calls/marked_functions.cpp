#include "trace/calls/marked_functions.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/compiling_query.h"
#include "trace/calls/constant_functions.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/special_owners.h"
#include "trace/symbolic/speculated_checks.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"

#include "trace/calls/markers.h"
#include "trace/calls/natives.h"

#include <algorithm>
#include <functional>

namespace alternator::trace {

namespace {

// Null: the function is traced after all.
using MarkedCall = Ref (*)(Tracer& t, const Call& call);

Ref call_query(Tracer& t, const Call&) { return answer_compiling_query(t); }

Ref call_wrapped(Tracer& t, const Call& call, const char* field) {
  Ref wrapped = get_from_function(t, call.callable, checked(PyUnicode_InternFromString(field)));
  try {
    return trace::call(t, call.of(wrapped));
  } catch (const PyError&) {
    if (t.result.stopped) throw;
    stop(report::Reason::raises, "through a frame that tracing skips");  // a traceback would lack it
  }
}

Ref call_shielded(Tracer& t, const Call& call) { return call_wrapped(t, call, "__wrapped__"); }
Ref call_inlined(Tracer& t, const Call& call) { return call_wrapped(t, call, "_torchdynamo_inline"); }

Ref refuse_disabled(Tracer&, const Call& call) { stop(report::Reason::disabled, disabled_text(call.callable)); }

const char* given_text(const Call& call, const char* otherwise) {
  return call.positional > 0 && PyUnicode_Check(call.arguments[0]) ? PyUnicode_AsUTF8(call.arguments[0]) : otherwise;
}

Ref break_graph(Tracer& t, const Call& call) {
  // Torch breaks the graph around an optimizer's step to avoid copies in Inductor.
  if (!t.options.may_break && Borrowed(cpython::code_of(t.current_frame)) == Borrowed(Natives::table().optimizer_code))
    return Ref::share(Py_None);
  stop(report::Reason::graph_break_call, given_text(call, "graph_break()"));
}

Ref skip_frame(Tracer&, const Call& call) { stop(report::Reason::skipped, given_text(call, "skip_frame()")); }

// This happens once per module: a graph of it would never be used again.
Ref refuse_materialising(Tracer&, const Call& call) {
  stop(report::Reason::uninitialized_parameter, call.positional > 1 ? Py_TYPE(call.arguments[1])->tp_name : "");
}

Ref call_expectation(Tracer& t, const Call& call) {
  return call.positional > 0 && expect(t, call.arguments[0]) ? Ref::share(Py_True) : Ref();
}

Ref call_data_check(Tracer& t, const Call& call) {
  return call.has_positional(2, 3) && t.checks->expect_all(call.arguments[1]) ? Ref::share(Py_None) : Ref();
}

// Eager computes with a Python float here, in double precision. Code that was told that nothing is compiled expects a
// Python scalar.
Ref call_get_value(Tracer& t, const Call& call) {
  if (Denying::active || !call.has_positional(1) || !graph::is_tensor(call.arguments[0]) ||
      t.torch_functions->is_overridden(call.arguments[0]))
    return {};
  const at::Tensor& tensor = fake::unpack(call.arguments[0]);
  if (!tensor.is_cpu() || tensor.dim() != 0 || !tensor.is_floating_point() || tensor.scalar_type() == at::kDouble)
    return {};
  return call_torch(t, call.of(checked(PyObject_GetAttrString(THPVariableClass, "double"))));
}

Ref ignore(Tracer&, const Call&) { return Ref::share(Py_None); }

struct Row {
  Mark mark;
  MarkedCall call;  // null: the function is traced
};

constexpr Row kByMark[] = {
    {Mark::kNone, nullptr},
    {Mark::kCompilingQuery, call_query},
    {Mark::kShield, call_shielded},
    {Mark::kDisabled, refuse_disabled},
    {Mark::kGraphBreak, break_graph},
    {Mark::kSkipFrame, skip_frame},
    {Mark::kConstant, call_constant},
    {Mark::kExpectation, call_expectation},
    {Mark::kDataCheck, call_data_check},
    {Mark::kMaterializes, refuse_materialising},
    {Mark::kNumber, call_get_value},
    {Mark::kCompiled, call_inlined},
    {Mark::kNotes, ignore},
};
static_assert(std::size(kByMark) == kMarks);
static_assert(std::ranges::adjacent_find(kByMark, std::ranges::greater_equal{}, &Row::mark) == std::end(kByMark));

}  // namespace

Ref call_marked(Tracer& t, const Call& call) {
  const MarkedCall marked = kByMark[static_cast<size_t>(mark_of(call.callable))].call;
  return marked != nullptr ? marked(t, call) : Ref();
}

}  // namespace alternator::trace
