// The last tensor whose .item() was requested and has no known value: the caller of torch may substitute an unbacked
// symbol.
#pragma once

#include <c10/core/TensorImpl.h>

namespace alternator::fake {

// For comparison only: it may be freed. Null: the last failure on this thread had another cause.
const c10::TensorImpl* last_asked();

}  // namespace alternator::fake
