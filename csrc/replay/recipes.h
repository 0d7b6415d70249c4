// Recipes: how an object is made, and what is stored into it once it exists.
#pragma once

#include "replay/cannot_rebuild.h"
#include "replay/rebuild_kinds.h"
#include "replay/residual_program.h"

namespace alternator::replay {

// One instruction, its operands still objects of the trace.
struct Step {
  Op op = Op::kNew;
  std::vector<Ref> operands;  // null: no value
  int64_t number = 0;
  bool hashes = false;  // it reads its operands (for their hash): they must be complete
  bool last = false;    // ... after everything else is filled
};

struct Recipe {
  Step make;
  std::vector<Step> fill;  // the object itself is prepended to the operands
  bool keep = false;       // no recipe: the object itself, on every run
};

// One function for each word of the recipe column of rebuild.def; several rows may share one.
namespace recipes {
#define ALT_REBUILD(name, type, recipe) Recipe recipe(Builder& builder, Borrowed object);
#define ALT_NEVER(type, what)
#include "replay/rebuild.def"
#undef ALT_REBUILD
#undef ALT_NEVER
// By family, not by exact type.
Recipe exception(Builder& builder, Borrowed object);
Recipe struct_sequence(Builder& builder, Borrowed object);
Recipe made_class(Builder& builder, Borrowed object);
}  // namespace recipes

// The recipe of an object that is neither pre-existing, nor a constant, nor a tensor. Throws CannotRebuild.
Recipe describe(Builder& builder, Borrowed object, const char** kind_name);

// State of any instance besides its layout: an instance dict and __slots__ fields.
void add_attributes(Builder& builder, Recipe& recipe, Borrowed object);
void add_slots(Recipe& recipe, Borrowed object);
// The writable members of the layout itself, such as defaultdict.default_factory or SystemExit.code.
void add_members(Recipe& recipe, Borrowed object, PyTypeObject* layout);

// make: tp_new of the layout. finish_instance adds attributes and slots, after the rest.
Recipe new_instance(Borrowed object, std::vector<Ref> arguments = {});
void finish_instance(Builder& builder, Recipe& recipe, Borrowed object);

// A field of a native object by its name, read through its layout: no user code. Null: empty.
Ref read_member(Borrowed object, const char* name);

// The objects that a native object refers to, by tp_traverse.
std::vector<Ref> referents(Borrowed object);

// Whether hashing the key needs more state than making it sets.
bool hash_needs_fields(Builder& builder, Borrowed key);
// Whether hashing the key may read what the program has written to pre-existing objects.
bool hash_needs_writes(Builder& builder, Borrowed key);

inline bool is_exact(Borrowed object) { return layout_of(object.type()) == object.type(); }
// Throws unless the object is exactly of the type of its row.
void require_exact(Borrowed object);

[[noreturn]] void cannot_rebuild(Borrowed object, const std::string& why = {});

}  // namespace alternator::replay
