// The tensor whose number was asked for last where nobody knows it: who called torch may say what stands for it.
#pragma once

#include <c10/core/TensorImpl.h>

namespace alternator::fake {

// Only to be compared with: it may be gone. Null: it was something else that failed last on this thread.
const c10::TensorImpl* last_asked();

}  // namespace alternator::fake
