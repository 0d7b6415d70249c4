// Imports and the interactive prompt.
#pragma once

#include "interpreter/machine.h"

namespace alternator {

ALT_OP(IMPORT_NAME) {
  return m.replace(2, m.semantics.import_name(m.ts, m.frame, m.name(oparg), m.peek(1), m.peek(2)));
}

ALT_OP(IMPORT_FROM) { return m.push_or_fail(m.semantics.import_from(m.peek(1), m.name(oparg))); }

ALT_OP(IMPORT_STAR) { return m.consume(1, m.semantics.import_star(m.frame->f_locals, m.peek(1))); }

ALT_OP(PRINT_EXPR) {
  Borrowed hook = PySys_GetObject("displayhook");
  if (!hook) {
    PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
    return Flow::kError;
  }
  PyObject* arguments[] = {nullptr, m.peek(1)};
  return m.consume(1, m.semantics.call(hook, arguments + 1, 1, nullptr) ? 0 : -1);
}

}  // namespace alternator
