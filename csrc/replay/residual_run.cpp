#include "replay/residual_run.h"

namespace alternator::replay {

Machine::Machine(const Program& program, const std::vector<Ref>& needed, PyObject* const* outputs, size_t output_count)
    : program_(program),
      needed_(needed),
      outputs_(outputs),
      registers_(program.registers),
      constants_(program.constants.data()) {
  ALT_CHECK(needed.size() >= program.needed_texts.size(), "too few values for a residual program");
  ALT_CHECK(output_count >= program.outputs, "too few graph outputs");
  if (program.weak.empty()) return;
  ALT_CHECK(program.is_alive(), "a function of a residual program is gone");
  strong_ = program.constants;
  for (const uint32_t i : program.weak) strong_[i] = Ref::share(PyWeakref_GET_OBJECT(strong_[i].get()));
  constants_ = strong_.data();
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
