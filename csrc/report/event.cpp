#include "report/event.h"

#include "py/error.h"
#include "py/import.h"
#include "report/reason_flags.h"

#include <algorithm>

namespace alternator::report {

struct Row {
  const char* name;
  unsigned flags;
  const char *cause, *hint;
};
static constexpr Row kRows[] = {
#define ALT_REASON(id, flags, cause, hint) {#id, flags, cause, hint},
#include "report/reasons.def"
#undef ALT_REASON
};

const char* name(Reason reason) { return kRows[static_cast<size_t>(reason)].name; }
const char* cause(Reason reason) { return kRows[static_cast<size_t>(reason)].cause; }
const char* hint(Reason reason) { return kRows[static_cast<size_t>(reason)].hint; }

bool has(Reason reason, unsigned flags) { return (kRows[static_cast<size_t>(reason)].flags & flags) != 0; }

static std::string utf8(PyObject* text) {
  const char* bytes = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (bytes == nullptr) PyErr_Clear();
  return bytes != nullptr ? bytes : "";
}

// The line as it is in the file, or empty.
static std::string source_line(PyObject* file, int line) {
  Ref text;
  try {
    text = Ref::steal(PyObject_CallMethod(import_module("linecache").get(), "getline", "Oi", file, line));
  } catch (const PyError&) {
    PyErr_Clear();
  }
  std::string result = utf8(text.get());
  PyErr_Clear();
  const size_t last = result.find_last_not_of(" \t\n");
  return result.substr(0, last == std::string::npos ? 0 : last + 1);
}

namespace {

struct Shown {
  Ref file, function;
  std::string text;           // without its indentation
  size_t begin = 0, end = 0;  // of the part that the instruction belongs to
};

Shown show(const Line& line) {
  Shown shown;
  auto* code = line.code.as<PyCodeObject>();
  shown.file = Ref::share(code->co_filename);
  shown.function = Ref::share(code->co_qualname);
  const std::string whole = source_line(code->co_filename, line.line);
  const size_t first = std::min(whole.find_first_not_of(" \t"), whole.size());
  shown.text = whole.substr(first);
  int from, from_column, to, to_column;
  if (line.index < 0 || PyCode_Addr2Location(code, line.index * static_cast<int>(sizeof(uint16_t)), &from, &from_column,
                                             &to, &to_column) == 0)
    return shown;
  if (from != line.line || from_column < 0 || to_column < 0) return shown;
  const size_t begin = static_cast<size_t>(from_column),
               end = from == to ? static_cast<size_t>(to_column) : whole.size();
  if (begin < first || end > whole.size() || begin >= end) return shown;
  shown.begin = begin - first;
  shown.end = end - first;
  return shown;
}

std::string location(const Line& line, const Shown& shown) {
  return "  File \"" + utf8(shown.file.get()) + "\", line " + std::to_string(line.line) + ", in " +
         utf8(shown.function.get()) + "\n" + (shown.text.empty() ? "" : "    " + shown.text + "\n");
}

}  // namespace

std::string Break::text() const {
  std::string result;
  // As in tracebacks, recursion is abbreviated.
  constexpr size_t kShownRepeats = 3;
  size_t repeats = 0;
  const auto end_repeats = [&] {
    if (repeats > kShownRepeats)
      result += "  [Previous line repeated " + std::to_string(repeats - kShownRepeats) + " more times]\n";
  };
  for (size_t i = callers.size(); i-- > 0;) {
    const bool again = i + 1 < callers.size() && callers[i].code.get() == callers[i + 1].code.get() &&
                       callers[i].line == callers[i + 1].line;
    if (!again) {
      end_repeats();
      repeats = 0;
    }
    if (++repeats <= kShownRepeats) result += location(callers[i], show(callers[i]));
  }
  end_repeats();
  if (code) {
    const Line at{code, line, index};
    const Shown shown = show(at);
    result += location(at, shown);
    // As in tracebacks, the part is marked if it is not the whole line.
    if (shown.end > shown.begin && shown.end - shown.begin < shown.text.size())
      result += "    " + std::string(shown.begin, ' ') + std::string(shown.end - shown.begin, '^') + "\n";
  }
  result += std::string("  Cause: ") + cause(reason);
  if (!context.empty()) result += " (" + context + ")";
  return result + "\n  Hint: " + hint(reason) + "\n  Reason: " + name(reason);
}

Ref as_dict(const Line& line) {
  const Shown shown = show(line);
  Ref text = checked(PyUnicode_DecodeUTF8(shown.text.data(), static_cast<Py_ssize_t>(shown.text.size()), "replace"));
  Ref mark = checked(PyUnicode_DecodeUTF8(shown.text.data() + shown.begin,
                                          static_cast<Py_ssize_t>(shown.end - shown.begin), "replace"));
  return checked(Py_BuildValue("{s:O,s:i,s:O,s:O,s:O}", "file", shown.file.get(), "line", line.line, "function",
                               shown.function.get(), "text", text.get(), "mark", mark.get()));
}

Ref Break::as_dict() const {
  Ref at = code ? report::as_dict(Line{code, line, index}) : Ref::share(Py_None);
  Ref stack = checked(PyList_New(0));
  for (size_t i = callers.size(); i-- > 0;) check_status(PyList_Append(stack.get(), report::as_dict(callers[i]).get()));
  const std::string shown = text();
  auto decoded = [](const std::string& bytes) {
    return checked(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
  };
  return checked(Py_BuildValue("{s:s,s:s,s:N,s:s,s:O,s:O,s:N}", "reason", name(reason), "cause", cause(reason),
                               "context", decoded(context).release(), "hint", hint(reason), "at", at.get(), "callers",
                               stack.get(), "text", decoded(shown).release()));
}

Ref reasons() {
  Ref list = checked(PyList_New(0));
  for (const Row& row : kRows) {
    Ref tuple = checked(Py_BuildValue("(sss)", row.name, row.cause, row.hint));
    check_status(PyList_Append(list.get(), tuple.get()));
  }
  return list;
}

}  // namespace alternator::report
