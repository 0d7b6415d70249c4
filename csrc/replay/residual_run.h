// One run of a residual program.
#pragma once

#include "replay/residual_program.h"

namespace alternator::replay {

class Machine {
 public:
  Machine(const Program& program, const std::vector<Ref>& needed, PyObject* const* outputs, size_t output_count);

  void execute(const Instruction& instruction);
  // Null: no value.
  PyObject* get(Operand operand) const {
    switch (operand.space()) {
      case Space::kNothing:
        return nullptr;
      case Space::kNeeded:
        return needed_[operand.index()].get();
      case Space::kConstant:
        return constants_[operand.index()].get();
      case Space::kNumber:  // Program::place_numbers has placed them
        break;
      case Space::kOutput:
        return outputs_[operand.index()];
      case Space::kMade:
        return registers_[operand.index()].get();
    }
    return nullptr;
  }

 private:
  // The operands of an instruction.
  class Operands {
   public:
    Operands(const Machine& machine, const Instruction& instruction)
        : machine_(machine), first_(machine.program_.operands_of(instruction)), count_(instruction.count) {}
    size_t size() const { return count_; }
    PyObject* operator[](size_t i) const { return machine_.get(first_[i]); }
    PyTypeObject* type(size_t i) const { return reinterpret_cast<PyTypeObject*>((*this)[i]); }
    Ref tuple(size_t from) const;
    Ref list(size_t from) const;
    std::vector<PyObject*> array(size_t from) const;

   private:
    const Machine& machine_;
    const Operand* first_;
    size_t count_;
  };

  Ref make(const Instruction& instruction, const Operands& operands);
  Ref make_function(const Operands& operands);
  Ref make_class(const Operands& operands);
  Ref make_set(const Operands& operands, int64_t table, bool frozen);
  Ref make_frame(const Operands& operands, int64_t line);
  Ref make_traceback(const Operands& operands, int64_t line);
  void fill(const Instruction& instruction, const Operands& operands);
  void fill_function(const Operands& operands, FunctionField field);
  static void fill_frame(const Operands& operands, bool called_from_here);
  static void end_frame(const Operands& operands, int64_t line);
  void fill_exception(const Operands& operands, bool suppress_context);
  void write(const Instruction& instruction, const Operands& operands);

  // The old value dies after the last write: its finalizer must not observe a partial state.
  void drop_later(Ref old) {
    if (old) dropped_.push_back(std::move(old));
  }
  void set_item(Borrowed dict, Borrowed key, Borrowed value, bool ordered);
  void delete_item(Borrowed dict, Borrowed key, bool ordered);
  void set_attribute(Borrowed owner, Borrowed name, Borrowed value);
  void set_type_attribute(Borrowed type, Borrowed name, Borrowed value);
  void set_field(Borrowed owner, Borrowed name, Borrowed value);
  void splice(Borrowed list, Py_ssize_t from, Py_ssize_t to, Borrowed items);

  std::vector<Ref> dropped_;  // declared first, so that it is destroyed last
  const Program& program_;
  const std::vector<Ref>& needed_;
  PyObject* const* outputs_;
  std::vector<Ref> registers_;
  std::vector<Ref> strong_;  // the constants, if the program holds some weakly
  const Ref* constants_;
};

// Stores an attribute into the instance's dict: no __setattr__, no property. Null: deletes.
void store_attribute(Borrowed owner, Borrowed name, Borrowed value);
// deque.extend itself, whatever a subclass overrides.
void extend_deque(Borrowed deque, Borrowed items);

}  // namespace alternator::replay
