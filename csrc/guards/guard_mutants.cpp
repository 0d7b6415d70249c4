#include "guards/guard_mutants.h"

namespace alternator::guards {

Switches& switches() {
  static auto* all = new Switches(
      {
#define ALT_GUARD(kind, sentence, ...) #kind,
#include "lift/sources/guards.def"
#undef ALT_GUARD
          "identity",
          "sizes.conditions",
          "sizes.assumptions",
          "sizes.ranges",
          "sizes.layouts",
#define ALT_AMBIENT(field, type, expression, words) "ambient." #field,
#include "guards/ambient.def"
#undef ALT_AMBIENT
          "ambient.flags",
          "ambient.function_modes",
          "ambient.dispatch_modes",
      },
      "ALTERNATOR_WITHOUT_GUARDS");
  return *all;
}

}  // namespace alternator::guards
