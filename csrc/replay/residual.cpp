#include "replay/residual.h"

#include "replay/builder.h"
#include "replay/machine.h"

namespace alternator::replay {

Ref Residual::run(const std::vector<Ref>& needed_values, Borrowed graph_outputs) const {
  Machine machine(program_, needed_values, graph_outputs);
  for (const Instruction& instruction : program_.instructions) machine.execute(instruction);
  return Ref::share(machine.get(program_.result));
}

Residual Residual::build(World& world, Borrowed result, std::vector<Ref>* graph_outputs,
                         std::vector<lift::Source*>* needed) {
  Builder builder(world, graph_outputs, needed);
  const Operand operand = builder.value(result);
  const std::vector<Write> effects = collect_effects(builder);
  builder.complete();
  for (const Write& write : effects) builder.emit(write.op, write.operands, write.number);
  Residual residual;
  residual.program_ = builder.finish(operand);
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
