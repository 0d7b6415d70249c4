// What the user says of a tensor's sizes: torch._dynamo.mark_dynamic, maybe_mark_dynamic, mark_unbacked and mark_static
// leave attributes on the tensor. They are read in place: no instance dict is made for it.
#pragma once

#include "py/ref.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace alternator::lift {

// A bit for each dimension.
struct DimensionMarks {
  uint64_t dynamic = 0;  // mark_dynamic, mark_unbacked(strict=True): it is an error if a trace specializes on it
  uint64_t weak = 0;     // maybe_mark_dynamic, mark_unbacked, and what AOTAutograd notes on the outputs of graphs
  uint64_t fixed = 0;    // mark_static; the others come first
  struct Range {
    uint16_t dimension;
    std::optional<int64_t> low, high;
  };
  std::vector<Range> ranges;
};
DimensionMarks marks_of(Borrowed tensor);

// The dimensions that the user has marked as dynamic in any way: what an entry must have seen to serve the tensor. No
// user code runs.
uint64_t dynamic_marks_of(PyObject* tensor) noexcept;

}  // namespace alternator::lift
