// Which sizes and numbers become symbols: constants at first; symbols of the next trace once they have differed between
// calls; constants again where every trace specializes on them anyway. Options and marks of the user come before that.
#pragma once

#include "dispatch/compiled_call.h"
#include "guards/guard_program.h"

namespace alternator::dispatch {

// A size or a number differs. False: it was a symbol, or may not be one.
bool note_change(const Compilation& compilation, SharedCache& cache, const guards::Change& change);
// What is a symbol in a trace; null: nothing may be one, whatever the marks say.
std::shared_ptr<const lift::Dynamism> dynamism_of(const Compilation& compilation, const SharedCache& cache);
// After a trace: which symbols have remained.
void note_symbols(SharedCache& cache, Entry& entry);
// What varies at the stop of an entry is a symbol of the traces that begin there.
void carry_dynamism(const Entry& from, SharedCache& to);

// The limits on entries, as the settings are now.
struct Limits {
  size_t entries;  // of one compile() at a resume point
  size_t total;    // ... of all
  bool fails;      // a call beyond them is an error
};
Limits limits_of(const Compilation& compilation);

// Throws where a trace has specialized on a size that was marked as dynamic.
void check_marks(const Compilation& compilation, const Entry& entry);

// torch.compiler.set_stance("eager_then_compile"): what differs between the first call, which runs eagerly, and the
// second is a symbol of the first trace.
struct FirstCall {
  std::unordered_map<std::string, std::vector<int64_t>> sizes;  // by parameter
  struct Number {
    bool is_float;
    int64_t bits;
    bool operator==(const Number&) const = default;
  };
  std::unordered_map<std::string, Number> numbers;
};
FirstCall describe_call(Borrowed function, const std::vector<Ref>& slots);
void note_first_call(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names);
void note_difference(SharedCache& cache, const FirstCall& first, const FirstCall& now);

}  // namespace alternator::dispatch
