#include "replay/residual.h"

#include "replay/builder.h"
#include "replay/replay_mutants.h"
#include "replay/residual_run.h"

namespace alternator::replay {

void Program::place_numbers(size_t first, const std::vector<std::string>& texts) {
  const auto place = [&](Operand& operand) {
    if (operand.space() == Space::kNumber) operand = Operand::of(Space::kNeeded, first + operand.index());
  };
  for (Operand& operand : operands) place(operand);
  for (Operand& result : results) place(result);
  needed_texts.resize(first, "?");
  needed_texts.insert(needed_texts.end(), texts.begin(), texts.end());
}

Ref Residual::run(const std::vector<Ref>& needed_values, Borrowed graph_outputs) const {
  const bool is_sequence = PyList_Check(graph_outputs.get()) || PyTuple_Check(graph_outputs.get());
  ALT_CHECK(is_sequence || program_.outputs == 0, "graph outputs must be a list or a tuple");
  if (!is_sequence) return std::move(run_all(needed_values, nullptr, 0)[0]);
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(graph_outputs.get()));
  return std::move(run_all(needed_values, PySequence_Fast_ITEMS(graph_outputs.get()), count)[0]);
}

Residual::Results Residual::run_all(const std::vector<Ref>& needed_values, PyObject* const* graph_outputs,
                                    size_t count) const {
  Machine machine(program_, needed_values, graph_outputs, count);
  for (const Instruction& instruction : program_.instructions) machine.execute(instruction);
  Results results;
  results.resize(program_.results.size());
  Ref* to = results.data();
  for (const Operand operand : program_.results) *to++ = Ref::share(machine.get(operand));
  return results;
}

void raise_again(Ref exception) {
  // Set directly: its __context__ was set when the program raised it.
  PyObject* type = Ref::share(exception.type()).release();
  PyObject* traceback = PyException_GetTraceback(exception.get());
  PyErr_Restore(type, exception.release(), traceback);
  throw PyError();
}

Residual Residual::build(World& world, const std::vector<Borrowed>& results, std::vector<Ref>* graph_outputs,
                         std::vector<lift::Source*>* needed, bool raises, const Frames& frames) {
  Builder builder(world, graph_outputs, needed);
  for (Borrowed frame : frames.go_on) builder.admit_frame(frame);
  std::vector<Operand> operands;
  operands.reserve(results.size());
  for (Borrowed result : results) operands.push_back(builder.value(result));
  std::vector<Write> effects = collect_effects(builder);
  for (Borrowed frame : frames.ended) {
    if (!is_disabled(name_of(Op::kEndFrame))) effects.push_back(end_of_frame(builder, frame));
  }
  builder.complete_most();
  for (const Write& write : effects) {
    if (!write.hashes) builder.emit(write.op, write.operands, write.number);
  }
  builder.complete();
  for (const Write& write : effects) {
    if (write.hashes) builder.emit(write.op, write.operands, write.number);
  }
  Residual residual;
  residual.program_ = builder.finish(std::move(operands));
  residual.program_.raises = raises;
  return residual;
}

int Residual::traverse(visitproc visit, void* argument) const {
  for (const Ref& constant : program_.constants) {
    if (int status = visit(constant.get(), argument)) return status;
  }
  return 0;
}

void Residual::clear() {
  std::vector<Ref> constants = std::move(program_.constants);
  program_ = Program();
}

}  // namespace alternator::replay
