// torch.compiler.set_stance: what calls of compiled functions do for now.
#pragma once

#include "py/error.h"

#include <cstdint>

namespace alternator::dispatch {

enum class Stance : uint8_t {
  kDefault,
  kEager,         // force_eager: they run as they are
  kEagerFirst,    // eager_then_compile: the first call of each runs as it is
  kOtherBackend,  // force_backend: they are compiled with another backend than their own
  kKnownOnly,     // eager_on_recompile: nothing is traced; a call that no entry fits runs as it is
  kMustBeKnown    // fail_on_recompile: ... is an error
};
Stance stance();
[[noreturn]] void raise_unknown_call(Borrowed function);

}  // namespace alternator::dispatch
