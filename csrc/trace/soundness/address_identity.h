// Numbers and orders that come from where an object lies: they differ on every run.
#pragma once

#include "lift/lifting/lifter.h"

namespace alternator::trace {

// What id() gives in a trace, or hash() of an object that is hashed by its address: a number that may be a key or be
// compared with another such number, since that says which object it was. Everything else that could look at it is a
// break, and it never leaves the call.
extern PyTypeObject identity_type;

int init_identity();

inline bool is_identity(Borrowed object) { return Py_IS_TYPE(object.get(), &identity_type); }
// How many were made in this trace: what has seen none cannot depend on one.
size_t identities_made();
void forget_identities();  // a trace begins
// Another number that nobody knows while tracing was made: what may hold an identity may hold that.
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

// What the hash of a value goes by.
enum class HashKind : uint8_t {
  kValue,    // the same for everything that passes the guards
  kPython,   // a __hash__ of the user's is asked
  kAddress,  // where the object lies
  kNan,      // the same, of a value that guards do not tell from its equals
};
HashKind hash_kind(const lift::Lifter& lifter, Borrowed value, int depth = 0);

// A set whose order of iteration follows addresses; not one from outside that is as it was, whose order is guarded.
bool iterates_by_address(const lift::Lifter& lifter, Borrowed object);

// Whether a number that is somebody's address may stand among these keys or elements: then nothing is proved by
// looking an identity up.
bool may_hold_address(Borrowed container);

// Whether an identity is in it: a list, tuple or dict, down to some depth.
bool holds_identity(Borrowed value, int depth = 0);

}  // namespace alternator::trace
