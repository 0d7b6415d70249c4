#include "report/event.h"

namespace alternator::report {

struct Row {
  const char *name, *cause, *hint;
};
static constexpr Row kRows[] = {
#define ALT_REASON(id, cause, hint) {#id, cause, hint},
#include "report/reasons.def"
#undef ALT_REASON
};

const char* name(Reason reason) { return kRows[static_cast<size_t>(reason)].name; }
const char* cause(Reason reason) { return kRows[static_cast<size_t>(reason)].cause; }
const char* hint(Reason reason) { return kRows[static_cast<size_t>(reason)].hint; }

static std::string utf8(PyObject* text) {
  const char* bytes = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (bytes == nullptr) PyErr_Clear();
  return bytes != nullptr ? bytes : "";
}

static std::string source_line(PyObject* file, int line) {
  Ref module = Ref::steal(PyImport_ImportModule("linecache"));
  Ref text = module ? Ref::steal(PyObject_CallMethod(module.get(), "getline", "Oi", file, line)) : Ref();
  std::string result = utf8(text.get());
  PyErr_Clear();
  const size_t first = result.find_first_not_of(" \t");
  const size_t last = result.find_last_not_of(" \t\n");
  return first == std::string::npos ? "" : result.substr(first, last - first + 1);
}

std::string Break::text() const {
  std::string result;
  if (code) {
    Ref file = Ref::steal(PyObject_GetAttrString(code.get(), "co_filename"));
    Ref function = Ref::steal(PyObject_GetAttrString(code.get(), "co_name"));
    result +=
        "  File \"" + utf8(file.get()) + "\", line " + std::to_string(line) + ", in " + utf8(function.get()) + "\n";
    const std::string shown = source_line(file.get(), line);
    if (!shown.empty()) result += "    " + shown + "\n";
  }
  result += std::string("  Cause: ") + cause(reason);
  if (!context.empty()) result += " (" + context + ")";
  return result + "\n  Hint: " + hint(reason) + "\n  Reason: " + name(reason);
}

}  // namespace alternator::report
