// Values and iteration orders that depend on an object's address: they differ in every run.
#pragma once
#include <unordered_map>

#include "lift/lifting/lifter.h"

namespace alternator::trace {

class Tracer;

// What id() returns in a trace, or hash() of an object that is hashed by its address: an int that may be used as a key
// or compared with another identity, since that only shows which object it was. Any other use is a break, and it never
// leaves the call.
extern PyTypeObject identity_type;

int init_identity();

inline bool is_identity(Borrowed object) { return Py_IS_TYPE(object.get(), &identity_type); }
// How many were made in this trace: if none, nothing can depend on one.
size_t identities_made();
void forget_identities();  // at the start of a trace
// Another value that is unknown while tracing was made: what may hold an identity may hold it.
void note_unbacked_symbol();
Ref make_identity(Py_ssize_t number);

// A key is looked up, not stored.
class LookingUp {
 public:
  explicit LookingUp(Borrowed key) : before_(now) { now = is_identity(key); }
  ~LookingUp() { now = before_; }
  LookingUp(const LookingUp&) = delete;
  LookingUp& operator=(const LookingUp&) = delete;
  static thread_local bool now;

 private:
  bool before_;
};

// What the hash of a value depends on.
enum class HashKind : uint8_t {
  kValue,    // the same for everything that passes the guards
  kPython,   // a user-defined __hash__ is called
  kAddress,  // the object's address
  kNan,      // the address too, of a NaN, which guards do not distinguish from other NaNs
};
HashKind hash_kind(const lift::Lifter& lifter, Borrowed value, int depth = 0);

// A set whose iteration order depends on addresses; not an unmodified pre-existing one, whose order is guarded.
bool iterates_by_address(const lift::Lifter& lifter, Borrowed object);

// Whether an int that is an object's address may be among these keys or elements: then looking an identity up proves
// nothing.
bool may_hold_address(Borrowed container);

// Whether it is or contains an identity: in lists, tuples and dicts, down to some depth.
bool holds_identity(Borrowed value, int depth = 0);

struct AddressIdentities {
  // id() results of plain values: they may be looked up where they are not found; any other use is a break.
  std::unordered_map<PyObject*, PyObject*> unguarded;  // -> the value
  std::unordered_map<PyObject*, PyObject*> guarded;    // of other objects -> the object
  // Once one of them is stored, all of them are guarded.
  bool stores_plain = false;
};

}  // namespace alternator::trace
