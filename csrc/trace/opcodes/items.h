// Items, membership, truth, globals and cells: the language's rules, over private copies and open containers.
#pragma once

#include "py/error.h"

#include <string>

namespace alternator::trace {

class Tracer;

// How a message names what uses a value: a text, or a native function, whose name is composed for a message only.
class UsedBy {
 public:
  UsedBy(const char* text) : text_(text) {}           // NOLINT(google-explicit-constructor): every use is named by one
  UsedBy(Borrowed function) : function_(function) {}  // NOLINT(google-explicit-constructor)
  std::string text() const;

 private:
  const char* text_ = nullptr;
  Borrowed function_;
};

Ref get_item(Tracer& t, Borrowed container, Borrowed key);
void set_item(Tracer& t, Borrowed container, Borrowed key, Borrowed value);  // null: delete
bool contains(Tracer& t, Borrowed container, Borrowed value);
Tri truth(Tracer& t, Borrowed value);

Ref load_global(Tracer& t, Borrowed globals, Borrowed builtins, Borrowed name);
void guard_import(Tracer& t, Borrowed name);
void store_global(Tracer& t, Borrowed globals, Borrowed name, Borrowed value);  // null: delete
void store_cell(Tracer& t, Borrowed cell, Ref value);                           // a pre-existing one

void note_identity_test(Tracer& t, Borrowed left, Borrowed right);
bool are_one_small_int(Borrowed left, Borrowed right);
// Before native code itself inspects a value: stops on an opaque object, or one whose string shows its address.
void check_use(Tracer& t, Borrowed value, const UsedBy& by);

}  // namespace alternator::trace
