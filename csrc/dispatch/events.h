// Events of one compile(): what the listener is told. Counters, logs and explanations all come from here.
#pragma once

#include "dispatch/call.h"

namespace alternator::dispatch {

// The listener's methods, each with one argument:
//   broke(break)          something could not be captured: report::Break::as_dict() and "whole": whether the rest of
//   the
//                         call runs as it is, or one instruction
//   recompiling(event)    before a further trace at a place: {"resumed_at", "failures"}: for each entry there, the
//   guard
//                         that fails
//   added(event)          there is a new entry: see report_entry()
//   wants_details()       whether added() is to have the costly fields
//   refusal(break)        gives the exception for a break where none is allowed
void report_break(const Compilation& compilation, const report::Break& event, bool whole = true);
void report_recompile(const Compilation& compilation, const ResumePoint& place, const guards::Roots& roots);
void report_entry(const Compilation& compilation, const ResumePoint& place, const Entry& entry);

// `flag`: what forbids the break.
[[noreturn]] void raise_break(const Compilation& compilation, const report::Break& event, const char* flag);

}  // namespace alternator::dispatch
