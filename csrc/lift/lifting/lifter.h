// Lifting: a trace's view of the world before it.
#pragma once

#include "fake/backed_symbols.h"
#include "fake/fake.h"
#include "lift/lifting/shadow.h"
#include "lift/lifting/symbolic_arrays.h"
#include "lift/sources/pointer_tables.h"
#include "shapes/expression.h"

#include <functional>
#include <memory>
#include <utility>

namespace alternator::lift {

class Cells;
class Classes;
class Containers;
class DecimalContexts;
class Fields;
class Functions;
class Iterators;
class LazyValues;
class Namespaces;
class PlainOrigins;
class SymbolicInputs;
class Unspecialized;
class WriteLog;

// State of a lifted pre-existing object.
struct Known {
  Source* source = nullptr;
  Ref original;                  // the pre-existing object; often the lifted object itself
  Shadow* shadow = nullptr;      // if it is the private copy of a container
  Shadow* attributes = nullptr;  // its private instance dict
  bool instance = false;         // an object with attributes: reads and writes go to `attributes`
  bool opaque = false;           // it may be moved; any use of it breaks
};

// A value cannot be lifted: a graph break at the instruction that read it.
class CannotLift : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Lifter {
 public:
  Lifter(SourceTree& tree, fake::Session& session);
  ~Lifter();
  Lifter(const Lifter&) = delete;
  Lifter& operator=(const Lifter&) = delete;

  // The program's view of `value`, found at `source`; adds the guards of the design's table. The same object gives the
  // same view. Throws CannotLift, or PyError.
  Ref lift(Borrowed value, Source* source);
  // Null: the object was made in the trace, or is a plain constant.
  Known* known(Borrowed lifted) {
    auto found = known_.find(lifted.get());
    return found != known_.end() ? found->second : nullptr;
  }
  const Known* known(Borrowed lifted) const { return const_cast<Lifter*>(this)->known(lifted); }
  // The program's view of a pre-existing object; null: it was not lifted.
  Borrowed lifted(Borrowed original) const {
    auto found = lifted_.find(original.get());
    return found != lifted_.end() ? Borrowed(found->second) : Borrowed();
  }
  bool is_lifted(PyObject* original) const { return lifted_.count(original) != 0; }
  // A container that escapes the value stack and the locals is lifted whole.
  void escape(Borrowed lifted);
  // Keeps an object alive until the trace ends; returns it.
  PyObject* keep(Ref object);

  // The features, each of which owns its state.
  const std::unique_ptr<Containers> containers;
  const std::unique_ptr<LazyValues> lazy;
  const std::unique_ptr<Namespaces> namespaces;
  const std::unique_ptr<Cells> cells;
  const std::unique_ptr<Fields> fields;
  const std::unique_ptr<Iterators> iterators;
  const std::unique_ptr<Classes> classes;
  const std::unique_ptr<Functions> functions;
  const std::unique_ptr<PlainOrigins> origins;
  const std::unique_ptr<Unspecialized> unspecialized;
  const std::unique_ptr<SymbolicInputs> symbolic;
  const std::unique_ptr<DecimalContexts> decimals;
  const std::unique_ptr<WriteLog> write_log;
  SymbolicArrays symbolic_arrays;

  // A class or a function that the trace made.
  bool made_here(Borrowed object) const;
  void note_made_here(Borrowed object);
  bool has_made() const { return !made_.empty(); }
  // The same object on every run.
  void note_constant(Borrowed object);
  bool is_noted_constant(Borrowed object) const { return constants_.count(object.get()) != 0; }
  // The source of an object that lives as long as the process, or is reached through one that cannot change.
  Source* constant(Borrowed object) { return tree_.constant(object); }

  // Must not be lifted: a run writes its output there, which the trace does not see.
  void withhold(Borrowed object) { withheld_ = Ref::share(object); }
  // Whether there are pre-existing values that native code must not find in a container: numpy arrays, which are
  // read-only copies, opaque objects, and namespaces.
  bool has_arrays() const { return has_arrays_; }
  // (fake, source) of the tensors that were lifted, in order.
  const std::vector<std::pair<Ref, Source*>>& tensors() const { return tensors_; }
  SourceTree& tree() { return tree_; }
  fake::Session& session() { return session_; }

  // Only functions, classes and modules may be read. Anything else cannot be lifted.
  bool only_lasting = false;
  // Called with each fake that is made for a pre-existing tensor; `sizes`: see SymbolicInputs::sizes_of.
  std::function<void(const at::Tensor& fake, Source* source, fake::SymbolicGeometry geometry)> on_tensor;
  // Runs work that may run Python code which is not part of the program.
  std::function<void(const std::function<void()>& work)> untraced;

  // --- for the features and the rows of the lifting table ---
  void guard(Source* source, GuardKind kind, Borrowed object = {}, Py_ssize_t number = 0);
  void guard_type(Source* source, Borrowed object) {
    guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(object.type()));
  }
  void guard_same(Source* source, Source* other);
  Known& know(Borrowed lifted, Borrowed original, Source* source);
  Known& known_as(Borrowed lifted);
  // From now on `lifted` is the program's view of `original`; both are kept.
  Ref remember(Borrowed original, Ref lifted, Source* source);
  // An object that the program may see itself.
  Ref lift_itself(Borrowed object, Source* source, bool instance, bool opaque = false);
  // A private copy of a dict that is reached through its owner: attributes, globals, a class's own dict.
  Shadow& shadow_dict(Borrowed dict, Source* source);
  void note_tensor(Borrowed fake, Source* source);
  void note_hidden_from_natives() { has_arrays_ = true; }
  void note_read(Borrowed value) const {
    if (only_lasting) check_lasting(value);
  }
  void check_lasting(Borrowed value) const;
  // One representative for all keys that find the same slot.
  Ref intern_key(Borrowed key);
  // Calls `visit(lifted, known)` for each known object; it may add others.
  template <class Visit>
  void each_known(Visit visit) {
    for (size_t i = 0; i < all_known_.size(); i++) visit(all_known_[i].lifted, all_known_[i].known);
  }

 private:
  SourceTree& tree_;
  fake::Session& session_;
  struct KnownObject {
    PyObject* lifted;
    Known known;
  };
  std::deque<KnownObject> all_known_;       // stable addresses
  PointerMap<PyObject, Known*> known_;      // by lifted object
  PointerMap<PyObject, PyObject*> lifted_;  // by original
  std::vector<Ref> kept_;
  PointerSet<PyObject> made_, constants_;
  Ref withheld_;
  Ref keys_;  // dict: plain keys that were looked up -> the first equal one
  std::vector<std::pair<Ref, Source*>> tensors_;
  bool has_arrays_ = false;
};

class OnlyLasting {
 public:
  explicit OnlyLasting(Lifter& lifter) : lifter_(lifter), before_(std::exchange(lifter.only_lasting, true)) {}
  ~OnlyLasting() { lifter_.only_lasting = before_; }
  OnlyLasting(const OnlyLasting&) = delete;
  OnlyLasting& operator=(const OnlyLasting&) = delete;

 private:
  Lifter& lifter_;
  bool before_;
};

}  // namespace alternator::lift
