#include "lift/sources/addresses.h"

#include <unordered_set>

namespace alternator::lift {

static thread_local std::unordered_set<Py_hash_t> numbers;

void forget_addresses() { numbers.clear(); }
void note_address(Py_hash_t number) { numbers.insert(number); }
bool is_address(Py_hash_t number) { return numbers.count(number) != 0; }
bool any_addresses() { return !numbers.empty(); }

}  // namespace alternator::lift
