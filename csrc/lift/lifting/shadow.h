// Private copies: what the program reads and writes instead of a pre-existing container, instance dict, cell or field.
#pragma once

#include "lift/sources/pointer_tables.h"
#include "lift/sources/source.h"

namespace alternator::lift {

enum class ShadowKind : uint8_t { kList, kDict, kSet, kDeque };

// A mutation of a set by one call of a set method.
enum class SetStepKind : uint8_t { kAdded, kDiscarded, kPopped, kCleared };
struct SetStep {
  SetStepKind kind;
  Ref element;  // null for the last two
};

// A private copy of a pre-existing container. `snapshot` is the copy as it was lifted: what differs from it, by
// identity, was written by the program. Slots that were not read yet hold the pre-existing objects in both.
struct Shadow {
  ShadowKind kind;
  Ref original, copy, snapshot;
  Source* source;
  Ref owner;                          // of an instance dict: the instance; else null
  bool is_namespace = false;          // a module's dict (globals)
  bool whole = false;                 // every slot is lifted; of a set: the layout of its table is guarded
  bool in_progress = false;           // ... is being lifted whole
  bool unseen = false;                // a set: its contents are not guarded yet
  Py_ssize_t slots_read = 0;          // lists, dicts, deques: how many were lifted one by one
  Py_ssize_t length = 0;              // of the original
  std::vector<bool> lifted_slots;     // lists, deques
  PointerSet<PyObject> lifted_keys;   // dicts: keys (interned str, or by identity) that were read or written
  PointerSet<PyObject> deleted_keys;  // dicts: keys that were deleted one by one; set again, they move to the end
  // Sets: their mutations in order, as far as known: methods that change many elements are not included. A set's table
  // keeps traces of removed elements, which decide the position of later ones.
  std::vector<SetStep> steps;
};

// A call that the program made for its side effect only, such as print: repeated with real values.
struct EffectCall {
  Ref callable;
  Ref arguments;  // a tuple
  Ref keywords;   // a dict, or null
};

// A write to a variable outside of containers: a cell, a __slots__ field, a class attribute, a function's field; or an
// iterator that was advanced.
enum class VariableKind : uint8_t { kCell, kField, kTypeAttribute, kIterator };
struct VariableWrite {
  VariableKind kind;
  Source* owner;  // the cell, the instance, the class, the iterator
  Ref name;       // null for a cell and an iterator
  Ref value;      // lifted; null: deleted. Of an iterator: how often it was advanced
};

}  // namespace alternator::lift
