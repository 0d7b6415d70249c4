// Sources: where the values of a trace came from, and which guards they have.
//
// A source is a root (the called function, a slot of its frame, an object of the process) and a chain of accessors.
// Sources form a tree that shares prefixes. Guards are attached to sources; a trace results in a tree of both.
#pragma once

#include "lift/sources/plain.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace alternator::lift {

enum class Access : uint8_t {
#define ALT_ACCESSOR(kind, text, ...) kind,
#include "lift/sources/accessors.def"
#undef ALT_ACCESSOR
};

enum class GuardKind : uint8_t {
#define ALT_GUARD(kind, sentence, ...) kind,
#include "lift/sources/guards.def"
#undef ALT_GUARD
};

class Source;
struct TensorSpec;  // lift/sources/tensor_spec.h

// The user's instruction that caused a guard.
struct Site {
  Ref code;       // null: none
  int index = 0;  // of the instruction in the code
};

struct Guard {
  GuardKind kind;
  // The expected value: see guards.def. kEquals on a list, dict, set or deque: filled by SourceTree::guard() with its
  // contents as a tuple and its type.
  Ref object, second;
  Py_ssize_t number = 0;
  Source* other = nullptr;
  std::shared_ptr<const TensorSpec> tensor;
  uint32_t site = 0;  // into SourceTree::sites
};

class Source {
 public:
  Access access;
  Source* parent;  // null for roots
  Ref key;         // dict key, attribute name, constant object, name of a slot
  Py_ssize_t index;
  uint32_t id;  // position in SourceTree::sources
  std::vector<Guard> guards;
  std::vector<Source*> children;
  // Objects whose identity is observable (tensors, containers, instances): two such sources stand for two objects
  // unless kSame says otherwise.
  bool bears_identity = false;
  bool labeled = false;  // `key` is a description of an object that is not kept: see SourceTree::close()

  // As a user would write it: "self.layers[3].weight".
  std::string text() const;
  // A variable (free variables included), an attribute or a global: its value goes to the program, not to native code.
  bool is_variable() const;
  // Where a number may become a symbol: what a variable, an attribute or a container holds.
  bool holds_values() const;
  // ... even the first time that it is seen: an argument, a variable of the function's, and what they consist of. Of a
  // module or an optimizer it configures the program.
  bool is_of_arguments() const;
};

class SourceTree {
 public:
  SourceTree() { known_types(); }
  SourceTree(const SourceTree&) = delete;
  SourceTree& operator=(const SourceTree&) = delete;

  Source* function() { return root(Access::kFunction, {}, 0); }
  Source* slot(Py_ssize_t index, Borrowed name) { return root(Access::kSlot, name, index); }
  Source* constant(Borrowed object) { return root(Access::kConstant, object, 0); }
  // The child with this accessor; made on first use. Keys are compared by identity, strings by value.
  Source* child(Source* parent, Access access, Borrowed key = {}, Py_ssize_t index = 0);

  // Adds a guard unless the same one exists. kEquals copies a container; its elements must be plain values or tuples
  // and frozensets of such, never a list, dict or set: those are objects with sources of their own.
  void guard(Source* source, Guard guard);
  // Called before a guard is added: sets the instruction that caused it by set_site().
  std::function<void()> locate;
  // For guards added from now on. `code` must live until then or until the next call.
  void set_site(Borrowed code, int index) {
    site_code_ = code.get();
    site_index_ = index;
  }

  const std::deque<Source>& sources() const { return sources_; }
  Source* at(uint32_t id) { return &sources_[id]; }
  const std::vector<Source*>& roots() const { return roots_; }
  const Site& site(uint32_t number) const { return sites_[number]; }
  // The number of the instruction that causes guards now.
  uint32_t current_site();

  // Called after the last source and guard by the new owner of the guards: no child() or guard() may follow. Keys for
  // which `may_keep` is false are dropped and replaced by a description.
  void close(bool (*may_keep)(PyObject* object));

 private:
  Source* root(Access access, Borrowed key, Py_ssize_t index);
  Source* make(Access access, Source* parent, Borrowed key, Py_ssize_t index);

  struct Key {
    const Source* parent;
    Access access;
    PyObject* key;  // interned if it is a str
    Py_ssize_t index;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct GuardKey {
    const Source* source;
    GuardKind kind;
    const void *object, *second;
    Py_ssize_t number;
    const Source* other;
    bool operator==(const GuardKey&) const = default;
  };
  struct GuardKeyHash {
    size_t operator()(const GuardKey& key) const;
  };
  bool note_new(const Source* source, const Guard& guard);

  std::deque<Source> sources_;  // stable addresses
  std::vector<Source*> roots_;
  std::unordered_map<Key, Source*, KeyHash> by_key_;
  std::unordered_set<GuardKey, GuardKeyHash> guards_;  // of sources that have many
  std::vector<Site> sites_{1};
  PyObject* site_code_ = nullptr;
  int site_index_ = 0;
};

// What a root or an accessor finds now, by reading only: no user code, no allocation for borrowed results. The result
// is borrowed from the parent unless `owner` is filled. Null: not there. The parent of kFunction and kSlot is the
// object itself. kDict finds the object itself as long as that has no dict yet: see lift/sources/source_step.h.
PyObject* follow(const Source& source, PyObject* parent, Ref* owner);

// The names that kSpecialMethods covers: __x__, except those that are data (__doc__, __module__, ...).
bool is_special_method_name(PyObject* name);

// "kLength", "its length is %w, not %g".
const char* name_of(GuardKind kind);
const char* sentence_of(GuardKind kind);
const char* name_of(Access access);

}  // namespace alternator::lift
