#include "replay/replay_mutants.h"

#include "replay/residual_program.h"

namespace alternator::replay {

static std::vector<std::string> all_names() {
  std::vector<std::string> names = {
#define ALT_REBUILD(name, type, recipe) #name,
#define ALT_NEVER(type, what)
#include "replay/rebuild.def"
#undef ALT_REBUILD
#undef ALT_NEVER
      "class", "exception", "struct_sequence", "tensor_attributes"};
  constexpr Op ops[] = {
#define ALT_INSTRUCTION(kind, text) Op::kind,
#include "replay/residual_instructions.def"
#undef ALT_INSTRUCTION
  };
  // An instruction that makes an object cannot be omitted: its row can be switched off.
  for (Op op : ops) {
    if (op > Op::kTensor) names.emplace_back(name_of(op));
  }
  return names;
}

Switches& switches() {
  static auto* all = new Switches(all_names(), "ALTERNATOR_WITHOUT_REPLAY");
  return *all;
}

}  // namespace alternator::replay
