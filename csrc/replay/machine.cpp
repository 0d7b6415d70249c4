#include "replay/machine.h"

namespace alternator::replay {

Machine::Machine(const Program& program, const std::vector<Ref>& needed, Borrowed outputs)
    : program_(program), needed_(needed), outputs_(nullptr), registers_(program.registers) {
  ALT_CHECK(needed.size() >= program.needed_texts.size(), "too few values for a residual program");
  if (program.outputs == 0) return;
  ALT_CHECK(PyList_Check(outputs.get()) || PyTuple_Check(outputs.get()), "graph outputs must be a list or a tuple");
  ALT_CHECK(PySequence_Fast_GET_SIZE(outputs.get()) >= static_cast<Py_ssize_t>(program.outputs),
            "too few graph outputs");
  outputs_ = PySequence_Fast_ITEMS(outputs.get());
}

PyObject* Machine::get(Operand operand) const {
  switch (operand.space()) {
    case Space::kNothing:
      return nullptr;
    case Space::kNeeded:
      return needed_[operand.index()].get();
    case Space::kConstant:
      return program_.constants[operand.index()].get();
    case Space::kOutput:
      return outputs_[operand.index()];
    case Space::kMade:
      return registers_[operand.index()].get();
  }
  return nullptr;
}

Ref Machine::Operands::tuple(size_t from) const {
  Ref items = checked(PyTuple_New(static_cast<Py_ssize_t>(count_ - from)));
  for (size_t i = from; i < count_; i++) {
    PyTuple_SET_ITEM(items.get(), static_cast<Py_ssize_t>(i - from), Py_NewRef((*this)[i]));
  }
  return items;
}

Ref Machine::Operands::list(size_t from) const {
  Ref items = checked(PyList_New(static_cast<Py_ssize_t>(count_ - from)));
  for (size_t i = from; i < count_; i++) {
    PyList_SET_ITEM(items.get(), static_cast<Py_ssize_t>(i - from), Py_NewRef((*this)[i]));
  }
  return items;
}

std::vector<PyObject*> Machine::Operands::array(size_t from) const {
  std::vector<PyObject*> items;
  for (size_t i = from; i < count_; i++) items.push_back((*this)[i]);
  return items;
}

void Machine::execute(const Instruction& instruction) {
  const Operands operands(*this, instruction);
  if (instruction.op <= Op::kTensor) {
    registers_[instruction.target] = make(instruction, operands);
  } else if (instruction.op <= Op::kAdvance) {
    fill(instruction, operands);
  } else {
    write(instruction, operands);
  }
}

}  // namespace alternator::replay
