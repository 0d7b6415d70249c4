// Ints that a trace got as addresses (id(), hash()). Values computed from them differ on every run.
#pragma once

#include "py/ref.h"

namespace alternator::lift {

void forget_addresses();  // a trace begins
void note_address(Py_hash_t number);
bool is_address(Py_hash_t number);
bool any_addresses();

}  // namespace alternator::lift
