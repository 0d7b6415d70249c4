// Sources: where the values of a trace came from, and what must hold of them.
//
// A source is a root (the called function, a slot of its frame, an object of the process) and a chain of accessors.
// Sources form a tree that shares prefixes. Guards hang on the sources; a trace ends as a tree of both.
#pragma once

#include "py/error.h"

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace alternator::lift {

enum class Access : uint8_t {
#define ALT_ACCESSOR(kind, text) kind,
#include "lift/accessors.def"
#undef ALT_ACCESSOR
};

enum class GuardKind : uint8_t {
#define ALT_GUARD(kind, sentence) kind,
#include "lift/guards.def"
#undef ALT_GUARD
};

class Source;
struct TensorSpec;  // guards/tensor_spec.h: opaque here

// The user's instruction that made a guard.
struct Site {
  Ref code;       // null: none
  int index = 0;  // of the instruction in the code
};

struct Guard {
  GuardKind kind;
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
  // Objects whose identity the program could notice (tensors, containers, instances): two such sources stand for two
  // objects unless kSame says otherwise.
  bool bears_identity = false;

  // As a user would write it: "self.layers[3].weight".
  std::string text() const;
};

class SourceTree {
 public:
  SourceTree() = default;
  SourceTree(const SourceTree&) = delete;
  SourceTree& operator=(const SourceTree&) = delete;

  Source* function() { return root(Access::kFunction, {}, 0); }
  Source* slot(Py_ssize_t index, Borrowed name) { return root(Access::kSlot, name, index); }
  Source* constant(Borrowed object) { return root(Access::kConstant, object, 0); }
  // The child with this accessor; made on first use. Keys are compared by identity, strings by value.
  Source* child(Source* parent, Access access, Borrowed key = {}, Py_ssize_t index = 0);

  // Adds a guard unless the same one is there.
  void guard(Source* source, Guard guard);
  void set_site(Borrowed code, int index);  // of guards added from now on

  const std::deque<Source>& sources() const { return sources_; }
  Source* at(uint32_t id) { return &sources_[id]; }
  const std::vector<Source*>& roots() const { return roots_; }
  const Site& site(uint32_t number) const { return sites_[number]; }

 private:
  Source* root(Access access, Borrowed key, Py_ssize_t index);
  Source* make(Access access, Source* parent, Borrowed key, Py_ssize_t index);

  struct Key {
    const Source* parent;
    Access access;
    PyObject* key;  // interned where it is a str
    Py_ssize_t index;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  std::deque<Source> sources_;  // addresses stay
  std::vector<Source*> roots_;
  std::unordered_map<Key, Source*, KeyHash> by_key_;
  std::vector<Site> sites_{1};
};

// What a root or an accessor finds now, by reading only: no user code, no allocation for borrowed results. `result` is
// borrowed from the parent unless `owner` is filled. Null: not there.
PyObject* follow(const Source& source, PyObject* parent, Ref* owner);

// Exact type and bits: True is not 1, -0.0 is not 0.0, NaN is itself. Deep for tuples, lists, dicts, sets and frozensets of
// plain values; never calls a user's __eq__. Objects that are not plain are compared by identity.
bool plain_equal(PyObject* a, PyObject* b);
// None, bool, int, float, complex, str, bytes, Ellipsis, NotImplemented, range, slice of such, dtype, device, layout, memory format,
// torch.Size, enum members: immutable, compared by value.
bool is_plain(PyObject* object);

}  // namespace alternator::lift
