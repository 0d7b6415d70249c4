#include "lift/sources/addresses.h"

#include <unordered_set>

namespace alternator::lift {

static thread_local std::unordered_set<Py_hash_t> addresses;

void forget_addresses() { addresses.clear(); }
void note_address(Py_hash_t number) { addresses.insert(number); }
bool is_address(Py_hash_t number) { return addresses.count(number) != 0; }
bool any_addresses() { return !addresses.empty(); }

}  // namespace alternator::lift
