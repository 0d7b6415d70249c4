#include "py/error.h"

namespace alternator {

void internal_error(const char* condition, const char* file, int line, const std::string& message) {
  std::string text = "alternator: internal error: ";
  text += message.empty() ? condition : message + " (" + condition + ")";
  throw InternalError(text + " at " + file + ":" + std::to_string(line));
}

}  // namespace alternator
