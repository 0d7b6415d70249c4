// Events of a capture. Text and JSON are rendered from them.
#pragma once

#include "py/ref.h"

#include <string>
#include <vector>

namespace alternator::report {

enum class Reason : uint8_t {
#define ALT_REASON(id, ...) id,
#include "report/reasons.def"
#undef ALT_REASON
};
const char* name(Reason reason);
const char* cause(Reason reason);
const char* hint(Reason reason);

// A line of user code.
struct Line {
  Ref code;
  int line = 0;
  int index = -1;  // of the instruction; -1: the line as a whole
};

// A graph break: something could not be captured.
struct Break {
  Reason reason;
  std::string context;  // what it was about: "time.sleep"
  Ref code;             // where; null: no particular location
  int line = 0;
  int index = -1;             // of the instruction that could not be traced; -1: none in particular
  std::vector<Line> callers;  // the call stack above it, innermost first

  // Several lines: the call stack, the user's code, cause, context, hint.
  std::string text() const;
  // What listeners get: the fields by name, and the text.
  Ref as_dict() const;
};

// {"file", "line", "function", "text", "mark"}: the user's line, and the part of it that the instruction belongs to.
Ref as_dict(const Line& line);

// All rows of the table: a list of (id, cause, hint).
Ref reasons();

}  // namespace alternator::report
