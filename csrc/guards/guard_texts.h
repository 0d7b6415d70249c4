// How the expected and the found value of a failed guard are rendered: the text column of guards.def.
#pragma once

#include "guards/guard_node.h"

namespace alternator::guards {

// %w; `found` is null where nothing was found, or nothing was looked for.
std::string wanted_text(const Check& check, PyObject* found);
// %g
std::string got_text(const Check& check, lift::Access access, PyObject* found);
// TorchDynamo's message for a tensor mismatch, for users who search logs for it; empty: it has none.
std::string dynamo_message(const Check& check, PyObject* found, const std::string& source);

}  // namespace alternator::guards
