// The user's source lines that a trace refers to.
#pragma once

#include "graph/record/call_site.h"
#include "interpreter/control.h"
#include "lift/sources/source.h"

#include <memory>

namespace alternator::trace {

class Tracer;

// The frames of the traced program, from the innermost to the one that was compiled.
std::unique_ptr<graph::StackSource> traced_stack(Tracer& tracer);

bool is_torchs(PyCodeObject* code);
bool is_contextlibs(PyCodeObject* code);
bool is_librarys(PyCodeObject* code);  // of the standard library

// Attributes a new guard to the innermost frame above `below` that is not torch's.
void locate_guard(lift::SourceTree& tree, cpython::Frame* below);

}  // namespace alternator::trace
