// Events of one compile(), for its listener. Counters, logs and explanations are all derived from these.
#pragma once

#include "dispatch/compiled_call.h"

namespace alternator::dispatch {

// The listener's methods, each with one argument:
//   broke(break)          something could not be captured: report::Break::as_dict(), "whole": whether the rest of the
//                         call runs eagerly, or one instruction, and "refused_by": the option that makes it an error of
//                         the call, or None
//   recompiling(event)    before a further trace at a resume point: {"resumed_at", "failures"}: for each entry there,
//                         the guard that fails
//   added(event)          there is a new entry: see report_entry()
//   wants_details()       whether added() includes the costly fields
//   refusal(break)        returns the exception for a break where none is allowed
//   limit_hit(break)      ... for a call beyond the recompile limit
//   symbolic(event)       a trace had symbols: {"resumed_at", "symbols", "conditions"}: see report_symbols()
//   wants_conditions()    whether that includes the guards over the symbols
//   violation(symbols)    returns the exception for sizes that were marked as dynamic, and specialized on
struct BreakOutcome {
  bool resumes = false;              // after one instruction; otherwise the rest of the call runs eagerly
  const char* refused_by = nullptr;  // the option that makes it an error; null: none
};
void report_break(const Compilation& compilation, const report::Break& event, BreakOutcome outcome = {});
void report_recompile(const Compilation& compilation, const ResumePoint& point, const guards::Roots& roots);
void report_entry(const Compilation& compilation, const ResumePoint& point, const Entry& entry);

// Each symbol as {"name", "value", "why", "fixed", "lines", "reason", "given", "range", "narrowed", "torchs_name"}: the
// size or number, its value in the traced call, why it was a symbol, whether the trace has specialized on it, the
// user's lines that did; its values before and after the trace, whether these are fewer than a mark says.
void report_symbols(const Compilation& compilation, const ResumePoint& point, const Entry& entry);
[[noreturn]] void raise_violation(const Compilation& compilation, const std::vector<const lift::SymbolFate*>& symbols);

// `flag`: the option that makes it an error.
[[noreturn]] void raise_limit(const Compilation& compilation, const report::Break& event, const char* flag);

// `flag`: the option that forbids the break.
[[noreturn]] void raise_break(const Compilation& compilation, const report::Break& event, const char* flag);

}  // namespace alternator::dispatch
