// Events: what happened while capturing. Text and JSON are rendered from them.
#pragma once

#include "py/ref.h"

#include <string>

namespace alternator::report {

enum class Reason : uint8_t {
#define ALT_REASON(id, cause, hint) id,
#include "report/reasons.def"
#undef ALT_REASON
};
const char* name(Reason reason);
const char* cause(Reason reason);
const char* hint(Reason reason);

// Something could not be captured.
struct Break {
  Reason reason;
  std::string context;  // what it was: "time.sleep"
  Ref code;             // where; null: nowhere in particular
  int line = 0;

  // Several lines: file and line, the user's code, cause, context, hint.
  std::string text() const;
};

}  // namespace alternator::report
