// The residual program as data: instructions over registers.
#pragma once

#include "py/error.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace alternator::replay {

enum class Op : uint8_t {
#define ALT_INSTRUCTION(kind, text) kind,
#include "replay/residual_instructions.def"
#undef ALT_INSTRUCTION
};

// The name of an instruction, without its k: the name of its mutant switch.
const char* name_of(Op op);
const char* text_of(Op op);

// Where an instruction finds a value.
enum class Space : uint8_t {
  kNothing,   // no value: a deleted name, an empty field
  kNeeded,    // a pre-existing object, found by its source before the call
  kConstant,  // the same object on every run
  kOutput,    // a result of the graph
  kMade,      // made by this run
  kNumber,    // an int or float over backed symbols, which the guards compute; kNeeded once Program::place_numbers ran
};

struct Operand {
  uint32_t bits = 0;

  static Operand of(Space space, size_t index) {
    return Operand{static_cast<uint32_t>(space) | static_cast<uint32_t>(index) << 3};
  }
  Space space() const { return static_cast<Space>(bits & 7); }
  uint32_t index() const { return bits >> 3; }
  bool operator==(const Operand&) const = default;
};

struct Instruction {
  Op op;
  uint32_t target = 0;  // the register that it fills; only if it makes an object
  uint32_t first = 0;   // its operands
  uint32_t count = 0;
  int64_t number = 0;
};

// The fields of a function that are not determined by its code object.
enum class FunctionField : uint8_t { kName, kDefaults, kKeywordDefaults, kAnnotations, kDoc, kModule };

struct Program {
  std::vector<Instruction> instructions;
  std::vector<Operand> operands;
  std::vector<Ref> constants;
  std::vector<uint32_t> weak;             // constants that are weak references to the actual value: functions
  std::vector<PyMethodDef*> natives;      // of bound builtins; they live as long as their type
  std::vector<std::string> needed_texts;  // how a user would write each needed source
  uint32_t registers = 0;
  uint32_t outputs = 0;
  std::vector<Operand> results;
  bool raises = false;  // the result is an exception that the call raises

  // The numbers follow the needed objects: the first is at this position. Once, after the last object was added.
  void place_numbers(size_t first, const std::vector<std::string>& texts);

  // Whether all weakly held objects are alive.
  bool is_alive() const {
    return std::all_of(weak.begin(), weak.end(),
                       [&](uint32_t i) { return PyWeakref_GET_OBJECT(constants[i].get()) != Py_None; });
  }
  const Operand* operands_of(const Instruction& instruction) const { return operands.data() + instruction.first; }
};

// Readable pseudo-Python.
std::string text_of(const Program& program);
std::vector<std::string> lines_of(const Program& program);    // side effects, one instruction per line
std::vector<std::string> results_of(const Program& program);  // its results

}  // namespace alternator::replay
