// What a native function, method or constructor does with its arguments: the flags column of natives.def. Without flags
// it reads them, in their order, and calls none of them; a method of a container moves them.
#pragma once

#include <cstdint>

namespace alternator::trace {

namespace native {

enum Flags : uint64_t {
  kPlain = 0,
  // --- whether it runs ---
  kListed = 1ULL << 0,   // a function of the table; set by ALT_FUNCTIONS itself
  kDenied = 1ULL << 1,   // reads the clock, the time zone, the locale or the system: does not run, though its type may
  kDecimal = 1ULL << 2,  // a type of the module decimal, whose structure must be known

  // --- the values of its arguments ---
  // Reads no value of its arguments or of what they hold: it moves, stores or returns them. An unbacked symbol may be
  // among them.
  kMoves = 1ULL << 3,
  kReadsType = 1ULL << 4,     // ... and of its first argument, which may itself be a symbol, reads the type alone
  kJoinsText = 1ULL << 5,     // ... but for the text of strings
  kAdds = 1ULL << 6,          // adds what it is given, or tests its truth, and inspects nothing else of it
  kFolds = 1ULL << 7,         // computes with its elements through its first argument alone
  kNoElements = 1ULL << 8,    // computes nothing with the elements of its arguments
  kKeeps = 1ULL << 9,         // stores or returns its last argument unchanged; a constructor: all of them
  kTakesValues = 1ULL << 10,  // ... and none of its arguments is a position
  // Methods of containers, which else move what they are given and what they hold.
  kCompares = 1ULL << 11,     // compares elements
  kReadsValues = 1ULL << 12,  // compares, counts, shows or hashes elements, or takes a position

  // --- the order of a set among its arguments ---
  kUnordered = 1ULL << 13,  // inspects no element of its arguments, or all of them in no observable order
  kOrdered = 1ULL << 14,    // a method of a set: its result depends on the order of the set

  // --- text ---
  kShows = 1ULL << 15,         // converts its arguments, or `self`, to strings
  kShowsAddress = 1ULL << 16,  // ... with their addresses
  kFormats = 1ULL << 17,       // reads the attributes and items that the format string, its `self`, names
  kEncodes = 1ULL << 18,       // takes an encoding and an error handler, which may be user code

  // --- what it calls ---
  kCallsArguments = 1ULL << 19,   // calls its arguments, or the object that it makes does
  kComparesResults = 1ULL << 20,  // ... and compares what they return
  kPassesOn = 1ULL << 21,         // the iterator that it makes passes elements to whatever iterates over it

  // --- objects ---
  kReflects = 1ULL << 22,      // reads objects by name, or depends on addresses: not to be called by native code
  kReadsState = 1ULL << 23,    // reads the state of its object as a whole, as copy and pickle do
  kReduces = 1ULL << 24,       // ... and looks up builtins by name
  kReadsRelated = 1ULL << 25,  // a method of a class: reports its bases, subclasses or attributes
  kConstructs = 1ULL << 26,    // a __new__
  kSeeds = 1ULL << 27,         // sets the seed of a random generator
  kThrows = 1ULL << 28,        // raises an exception that it is given, inside of a suspended frame
  kSplitsGroup = 1ULL << 29,   // splits an exception group
  kMakesCode = 1ULL << 30,     // its result is a code object that did not exist before

  // --- state ---
  kReadsGradMode = 1ULL << 31,
  kSetsGradMode = 1ULL << 32,
  kMutatesUnread = 1ULL << 33,  // changes its container without reading an element, or the order of a set
  // Methods that change at most one element of a set, or remove all.
  kAddsElement = 1ULL << 34,
  kDiscardsElement = 1ULL << 35,
  kClearsSet = 1ULL << 36,
  kPopsElement = 1ULL << 37,
};

}  // namespace native

struct NativeFlags {
  uint64_t bits = native::kPlain;

  bool has(uint64_t any) const { return (bits & any) != 0; }
};

}  // namespace alternator::trace
