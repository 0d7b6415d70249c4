// Events of one compile(), for its listener. Counters, logs and explanations are all derived from these.
#pragma once

#include "dispatch/call.h"

namespace alternator::dispatch {

// The listener's methods, each with one argument:
//   broke(break)          something could not be captured: report::Break::as_dict() and "whole": whether the rest of
//                         the call runs eagerly, or one instruction
//   recompiling(event)    before a further trace at a resume point: {"resumed_at", "failures"}: for each entry there,
//                         the guard that fails
//   added(event)          there is a new entry: see report_entry()
//   wants_details()       whether added() includes the costly fields
//   refusal(break)        returns the exception for a break where none is allowed
void report_break(const Compilation& compilation, const report::Break& event, bool whole = true);
void report_recompile(const Compilation& compilation, const ResumePoint& point, const guards::Roots& roots);
void report_entry(const Compilation& compilation, const ResumePoint& point, const Entry& entry);

// `flag`: the option that forbids the break.
[[noreturn]] void raise_break(const Compilation& compilation, const report::Break& event, const char* flag);

}  // namespace alternator::dispatch
