// torch.compiler.set_stance: how calls of compiled functions currently behave.
#pragma once

#include "py/error.h"

#include <cstdint>

namespace alternator::dispatch {

enum class Stance : uint8_t {
  kDefault,
  kEager,         // force_eager: they run eagerly
  kEagerFirst,    // eager_then_compile: the first call of each runs eagerly
  kOtherBackend,  // force_backend: they are compiled with another backend than their own
  kKnownOnly,     // eager_on_recompile: nothing is traced; a call without a matching entry runs eagerly
  kMustBeKnown    // fail_on_recompile: ... is an error
};
Stance stance();
[[noreturn]] void raise_unknown_call(Borrowed function);

}  // namespace alternator::dispatch
