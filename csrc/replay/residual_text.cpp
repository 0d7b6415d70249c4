// The program as readable text.
#include "replay/rebuild_kinds.h"
#include "replay/residual.h"
#include "replay/residual_program.h"

#include "lift/sources/source.h"

namespace alternator::replay {

static constexpr struct {
  const char* name;
  const char* text;
} instructions[] = {
#define ALT_INSTRUCTION(kind, text) {#kind, text},
#include "replay/residual_instructions.def"
#undef ALT_INSTRUCTION
};

const char* name_of(Op op) { return instructions[static_cast<size_t>(op)].name + 1; }
const char* text_of(Op op) { return instructions[static_cast<size_t>(op)].text; }

static std::string name_attribute(Borrowed object, const char* attribute) {
  Ref name = Ref::steal(PyObject_GetAttrString(object.get(), attribute));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text == nullptr) PyErr_Clear();
  return text != nullptr ? text : "?";
}

static std::string constant_text(Borrowed constant) {
  static constexpr size_t kLongest = 60;
  PyObject* object = constant.get();
  if (PyType_Check(object)) return full_name(constant.as<PyTypeObject>());
  if (PyFunction_Check(object)) return name_attribute(constant, "__qualname__");
  if (PyCFunction_Check(object)) return name_attribute(constant, "__qualname__");
  if (PyModule_Check(object)) return name_attribute(constant, "__name__");
  if (PyCode_Check(object)) return "<code " + name_attribute(constant, "co_qualname") + ">";
  if (!lift::is_plain(object) && !PyTuple_CheckExact(object)) return "<" + full_name(constant.type()) + ">";
  Ref shown = Ref::steal(PyObject_Repr(object));
  const char* text = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
  if (text == nullptr) PyErr_Clear();
  std::string result = text != nullptr ? text : "?";
  if (result.size() > kLongest) result.replace(kLongest, std::string::npos, "...");
  return result;
}

static std::string constant_text(const Program& program, uint32_t index) {
  const Borrowed constant = program.constants[index];
  const bool weak = std::find(program.weak.begin(), program.weak.end(), index) != program.weak.end();
  return constant_text(Borrowed(weak ? PyWeakref_GET_OBJECT(constant.get()) : constant.get()));
}

static std::string operand_text(const Program& program, Operand operand) {
  switch (operand.space()) {
    case Space::kNothing:
      return "<nothing>";
    case Space::kNeeded:
      return program.needed_texts[operand.index()];
    case Space::kConstant:
      return constant_text(program, operand.index());
    case Space::kOutput:
      return "graph[" + std::to_string(operand.index()) + "]";
    case Space::kMade:
      return "t" + std::to_string(operand.index());
    case Space::kNumber:
      return "n" + std::to_string(operand.index());
  }
  return "?";
}

static std::string instruction_text(const Program& program, const Instruction& instruction) {
  const Operand* operands = program.operands_of(instruction);
  auto operand = [&](size_t i) {
    return i < instruction.count ? operand_text(program, operands[i]) : std::string("<nothing>");
  };
  std::string line;
  for (const char* at = text_of(instruction.op); *at != 0; at++) {
    if (*at != '%') {
      line += *at;
      continue;
    }
    at++;
    if (*at == 't') {
      line += "t" + std::to_string(instruction.target);
    } else if (*at == 'n') {
      line += std::to_string(instruction.number);
    } else if (*at == 'm') {
      line += program.natives[static_cast<size_t>(instruction.number)]->ml_name;
    } else {
      const auto from = static_cast<size_t>(*at - '0');
      if (at[1] == '*') {
        for (size_t i = from; i < instruction.count; i++) line += (i > from ? ", " : "") + operand(i);
        at++;
      } else if (at[1] == ':') {
        for (size_t i = from; i + 1 < instruction.count; i += 2) {
          line += (i > from ? ", " : "") + operand(i) + ": " + operand(i + 1);
        }
        at++;
      } else {
        line += operand(from);
      }
    }
  }
  return line;
}

bool Residual::acts() const {
  for (const Instruction& instruction : program_.instructions) {
    if (instruction.op >= Op::kEffect) return true;  // acting and writing back are last in the table
  }
  return false;
}

std::vector<std::string> lines_of(const Program& program) {
  std::vector<std::string> lines;
  for (const Instruction& instruction : program.instructions) lines.push_back(instruction_text(program, instruction));
  return lines;
}

std::vector<std::string> results_of(const Program& program) {
  std::vector<std::string> texts;
  for (Operand result : program.results) texts.push_back(operand_text(program, result));
  return texts;
}

std::string text_of(const Program& program) {
  std::string text;
  for (const std::string& line : lines_of(program)) text += line + "\n";
  text += program.raises ? "raise " : "return ";
  const std::vector<std::string> results = results_of(program);
  for (size_t i = 0; i < results.size(); i++) text += (i > 0 ? ", " : "") + results[i];
  return text + "\n";
}

}  // namespace alternator::replay
