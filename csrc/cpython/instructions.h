// Iterates over the instructions of a code object without running it.
#pragma once

#include "cpython/operations.h"
#include "py/ref.h"

namespace alternator::cpython {

struct Instruction {
  int opcode;
  int argument;
  int index;  // of the opcode itself, after its EXTENDED_ARGs
  int next;
};

inline Instruction decode(PyCodeObject* code, int index) {
  const CodeUnit* units = first_instruction(code);
  int argument = 0;
  for (;; index++) {
    argument = argument << 8 | cpython::argument(units[index]);
    const int opcode = base_opcode(units[index]);
    if (opcode != EXTENDED_ARG) return {opcode, argument, index, index + 1 + caches(opcode)};
  }
}

inline Borrowed name_at(PyCodeObject* code, int position) {
  return position < PyTuple_GET_SIZE(code->co_names) ? PyTuple_GET_ITEM(code->co_names, position) : nullptr;
}

inline bool loads_variable(int opcode) { return opcode == LOAD_NAME || opcode == LOAD_GLOBAL; }

inline bool loads_attribute(int opcode) {
#ifdef LOAD_METHOD
  if (opcode == LOAD_METHOD) return true;
#endif
  return opcode == LOAD_ATTR;
}

// The name that an instruction loads from a namespace or an object; null: it does something else.
inline Borrowed loaded_name(PyCodeObject* code, const Instruction& instruction) {
  switch (instruction.opcode) {
    case LOAD_NAME:
      return name_at(code, instruction.argument);
    case LOAD_GLOBAL:
      return name_at(code, instruction.argument >> 1);
    case LOAD_ATTR:
      return name_at(code, instruction.argument >> (kLoadAttrHasMethodBit ? 1 : 0));
#ifdef LOAD_METHOD
    case LOAD_METHOD:
      return name_at(code, instruction.argument);
#endif
    default:
      return nullptr;
  }
}

}  // namespace alternator::cpython
