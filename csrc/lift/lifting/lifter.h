// Lifting: a trace's view of the world before it.
#pragma once

#include "fake/fake.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/pointer_tables.h"
#include "lift/lifting/shadow.h"
#include "lift/lifting/symbolic_arrays.h"

#include <functional>
#include <unordered_set>
#include <utility>

namespace alternator::lift {

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

// A pre-existing cell, __slots__ field or class attribute, as the program sees it.
struct Place {
  Ref value;             // lifted; null: empty or deleted
  bool written = false;  // by the program
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
  // A container that escapes the value stack and the locals is lifted whole.
  void escape(Borrowed lifted) {
    if (!open_.empty()) close(lifted);
    if (Known* k = known(lifted); k != nullptr && k->shadow != nullptr) lift_whole(*k->shadow);
  }
  // Keeps an object alive until the trace ends; returns it.
  PyObject* keep(Ref object);

  // --- lazy values (lazy_objects.cpp) ---
  Ref unread(Borrowed value, Source* source);  // a lazy object
  PyObject* read(Borrowed stand_in);           // the lifted value of a lazy object; borrowed
  // As lift(), but the elements of a tuple are lifted when they are read: for values that go to the value stack only.
  // Code that stores an open container anywhere else calls escape().
  Ref lift_open(Borrowed value, Source* source);
  bool has_open() const { return !open_.empty(); }
  bool is_open(Borrowed container) const { return !open_.empty() && open_.contains(container.get()); }
  // A tuple or list that was built from values that are is_partly_read().
  void note_open(Borrowed made);
  bool is_partly_read(Borrowed value) const;
  Ref open_item(Borrowed container, Py_ssize_t index);  // null: there is none
  void guard_open_length(Borrowed container);
  void guard_open_truth(Borrowed container);

  // --- containers: slots are lifted when they are first read ---
  Ref dict_item(Shadow& shadow, Borrowed key);  // null: absent, and guarded so
  bool dict_contains(Shadow& shadow, Borrowed key);
  void dict_store(Shadow& shadow, Borrowed key, Borrowed value);  // null value: delete an existing key
  Ref list_item(Shadow& shadow, Py_ssize_t index);                // of a deque too
  bool set_contains(Shadow& shadow, Borrowed element);
  void before_set_step(Borrowed set, SetStepKind kind, Borrowed element);  // any set
  void note_set_step(Borrowed set, SetStepKind kind, Borrowed element);    // any set; after the step
  void lift_whole(Shadow& shadow);
  void guard_length(Shadow& shadow);
  void guard_truth(Shadow& shadow);
  // The keys of a dict, or of a class's own dict.
  void guard_names(Shadow& shadow);
  void guard_names(PyTypeObject* type);

  // --- instances, modules, namespaces ---
  // The private instance dict of a pre-existing object; null if its type has none.
  Shadow* attributes(Borrowed instance);
  // Attributes of an OrderedDict or a partial, which few have: lifted on demand only.
  void open_attributes(Borrowed container);
  // The private view of a module's dict.
  Shadow& name_space(Borrowed dict);
  // A variable as the program sees it now, without lifting it; null: there is none.
  Borrowed peek(Borrowed name_space, Borrowed name) const;
  // A private view of a class's own dict, lifted whole; for a mapping proxy, which is read-only.
  Ref class_dict(PyTypeObject* type);
  bool is_name_space(Borrowed dict) const {
    auto found = name_spaces_.find(dict.get());
    return found != name_spaces_.end() && found->second->original.get() == dict.get();
  }

  // --- variables ---
  // A lazy frame slot: `stand_in` is reconstructed as the value found at `source`.
  void know_lazy(Borrowed stand_in, Borrowed value, Source* source) {
    know(stand_in, value, source);
    keep(Ref::share(stand_in));
  }
  // A pre-existing cell, found at `source`.
  Ref use_cell(Borrowed cell, Source* source);
  // A function's closure cells, before its frame takes them over.
  void use_closure(Borrowed function);
  bool is_preexisting_cell(Borrowed cell) const { return cells_.count(cell.get()) != 0; }
  bool is_written_cell(Borrowed cell) const { return cells_.at(cell.get()).place.written; }
  Ref load_cell(Borrowed cell);  // a pre-existing one; null: empty
  void store_cell(Borrowed cell, Ref value);
  Ref load_field(Borrowed instance, Borrowed name, Borrowed descriptor);  // null: empty
  void store_field(Borrowed instance, Borrowed name, Ref value);
  std::optional<Ref> written_field(Borrowed instance, Borrowed name);  // none: the program did not write it
  // Lifts the default arguments that a call used, in the callee's slots.
  void use_defaults(PyFunctionObject* function, PyObject** slots);
  // A call may have failed for lack of default arguments: guards which ones the known functions have.
  void guard_defaults();

  // The next value of a pre-existing iterator over a tuple or range. Null without an error: it is exhausted.
  Ref next_of(Borrowed iterator);

  // Variables whose value differed at each recent trace, by source text (Source::text). Such a scalar is lifted as an
  // unspecialized symbol (fake/unbacked_symbol.h), under a guard on its class: it may be moved and stored, and reading
  // its value stops the trace. Strings and containers cannot be lifted then. Null: there are none.
  const std::unordered_set<std::string>* unspecialized = nullptr;
  std::function<void()> on_unspecialized;  // called when one of them was lifted

  // Only functions, classes and modules may be read. Anything else cannot be lifted.
  bool only_lasting = false;

  // --- classes ---
  // The attribute of `type` under `name`, bases included (null: none), unlifted; the result is guarded. Plain data
  // still has to be lifted from attribute_source().
  PyObject* type_attribute(PyTypeObject* type, Borrowed name);
  // Null: a class of the trace defines it.
  Source* attribute_source(PyTypeObject* type, Borrowed name);
  // False: one of them is an object that native code would call or bind unlifted.
  bool use_special_methods(PyTypeObject* type);
  // An attribute of a pre-existing class that the program wrote: its value is not found through a source.
  void store_class_attribute(PyTypeObject* type, Borrowed name, Ref value, bool writes);  // null: deleted
  const Place* class_place(PyTypeObject* type, Borrowed name);  // of this very class; null: not written
  // Whether looking up `name` on `type` finds what the program wrote: then `value` is that (null: deleted).
  bool find_written(PyTypeObject* type, Borrowed name, PyObject** value);
  bool has_class_writes() const { return !class_order_.empty(); }
  bool made_here(Borrowed object) const;
  void note_made_here(Borrowed object);
  // Around the construction of a class: before, for each base, so that the class is recognized while its hooks run;
  // after, for the class, whose pre-existing bases are guarded and no longer list it.
  void begin_class(Borrowed base);
  void finish_class(Borrowed cls);
  void forget_unfinished_classes() const;
  // Must not be lifted: a run writes its output there, which the trace does not see.
  void withhold(Borrowed object) { withheld_ = Ref::share(object); }
  bool has_new_subclasses(Borrowed base) const { return subclasses_before_.count(base.get()) != 0; }
  bool is_lifted(PyObject* original) const { return lifted_.count(original) != 0; }
  bool existed_before(Borrowed cls) const;  // one of the bases passed to begin_class() listed it then
  // A code object whose instructions run: its constants are the same objects in every call.
  void note_code(Borrowed code);
  bool is_code_constant(Borrowed object);
  // A plain value that came from one source only: wherever the program meets this object, it is that value passed on.
  bool has_one_origin(Borrowed plain);
  // Guards the identity of a plain value at all its sources. False: it was computed in the trace.
  bool guard_identity(Borrowed plain);
  // The same, also for strings that were computed in the trace from values that are guarded in this way: an equal
  // pre-existing one would be another object. False: a container under a single guard holds it.
  bool guard_text_identity(Borrowed plain);
  // The source of a plain value that the program may distinguish by identity from an equal one; null: it is a constant.
  // Adds the guard that ensures this.
  Source* origin_of(Borrowed plain);
  // An object that lives as long as the process, or is reached through one that cannot change.
  Source* constant(Borrowed object) { return tree_.constant(object); }

  // CPython's messages that the program may see: guards the names of the pre-existing classes and functions in them.
  void guard_names_in(const std::unordered_set<std::string>& texts);

  // --- calls that are made for their side effect, in order ---
  void add_effect(EffectCall call) { effects_.push_back(std::move(call)); }
  // Removes the recorded call of `callable` with this first argument, if there is one.
  void drop_effect(Borrowed callable, Borrowed first) {
    std::erase_if(effects_, [&](const EffectCall& call) {
      return Borrowed(call.callable) == callable && PyTuple_GET_SIZE(call.arguments.get()) > 0 &&
             PyTuple_GET_ITEM(call.arguments.get(), 0) == first.get();
    });
  }
  const std::vector<EffectCall>& effects() const { return effects_; }
  // The same object on every run.
  void note_constant(Borrowed object) {
    if (constants_.insert(object.get()).second) keep(Ref::share(object));
  }
  bool is_noted_constant(Borrowed object) const { return constants_.count(object.get()) != 0; }

  // --- decimal contexts (decimal_contexts.cpp) ---
  // A private copy. Until the program reads the context itself, the copy has none of its flags: computations only add
  // some.
  Ref lift_decimal_context(Borrowed context, Source* source, bool seen);
  void see_decimal_flags(Borrowed copy);
  struct DecimalContext {
    Ref original, copy;
    Ref before;  // what the copy was made of: see parts_of_context()
    Source* source;
    bool seen = false;
  };
  const std::vector<DecimalContext>& decimal_contexts() const { return decimal_contexts_; }
  // Called before the program gets an object that may compute with decimals.
  std::function<void()> on_decimal;

  // --- for replay ---
  const std::deque<Shadow>& shadows() const { return shadows_; }
  std::vector<PlaceWrite> writes() const;
  // Whether the program has mutated any pre-existing object so far.
  bool has_writes() const;
  // The mutations of pre-existing objects so far, for comparison.
  struct WriteMark {
    size_t effects;
    std::vector<PlaceWrite> places;
    std::vector<std::vector<Ref>> shadows;  // for each, the added contents: see difference()
    std::vector<Ref> decimals;              // for each context, its parts
  };
  WriteMark mark_writes() const;
  bool has_writes_since(const WriteMark& mark) const;
  // Whether there are pre-existing values that native code must not find in a container: numpy arrays, which are
  // read-only copies, opaque objects, and namespaces.
  bool has_arrays() const { return has_arrays_; }
  SymbolicArrays symbolic_arrays;
  // (fake, source) of the tensors that were lifted, in order.
  const std::vector<std::pair<Ref, Source*>>& tensors() const { return tensors_; }
  SourceTree& tree() { return tree_; }
  fake::Session& session() { return session_; }
  // Called with each fake that is made for a pre-existing tensor.
  std::function<void(const at::Tensor& fake, Source* source)> on_tensor;
  // Runs work that may run Python code which is not part of the program.
  std::function<void(const std::function<void()>& work)> untraced;

 private:
  Ref remember(Borrowed original, Ref lifted, Source* source);
  Known& known_as(Borrowed lifted);
  Known& know(Borrowed lifted, Borrowed original, Source* source);
  void guard(Source* source, GuardKind kind, Borrowed object = {}, Py_ssize_t number = 0);
  void guard_same(Source* source, Source* other);
  void note_origin(Borrowed plain, Source* source);
  void note_read(Borrowed value) const {
    if (only_lasting) check_lasting(value);
  }
  void check_lasting(Borrowed value) const;

  Ref lift_tensor(Borrowed tensor, Source* source);
  bool is_unspecialized(Borrowed value, const Source& source) const;
  Ref lift_unspecialized(Borrowed number, Source* source);
  Ref lift_tuple(Borrowed tuple, Source* source);
  Ref lift_container(Borrowed container, Source* source);
  Ref lift_set(Borrowed set, Source* source);
  Ref lift_dict_by_place(Borrowed dict, Source* source);
  Ref lift_deque(Borrowed deque, Source* source);
  Ref lift_method(Borrowed method, Source* source);
  Ref lift_builtin(Borrowed builtin, Source* source);
  Ref lift_super(Borrowed super, Source* source);
  Ref lift_partial(Borrowed partial, Source* source);
  Ref lift_weak_reference(Borrowed reference, Source* source);
  Ref lift_tree_spec(Borrowed spec, Source* source);
  Ref lift_proxy(Borrowed proxy, Source* source);
  Ref lift_view(Borrowed view, Source* source);
  Ref lift_function(Borrowed function, Source* source);
  Ref lift_itself(Borrowed object, Source* source, bool instance, bool opaque = false);
  void close(Borrowed container);
  void read_slot(Borrowed container, Open& open, Py_ssize_t index);
  void guard_contents(Shadow& set);
  bool guard_element(Shadow& set, Borrowed element);
  bool is_one_guard(const Shadow& shadow) const;
  Shadow& add_shadow(ShadowKind kind, Borrowed original, Borrowed copy, Source* source);
  void lift_dict_whole(Shadow& shadow);
  void lift_default_factory(Borrowed original, Borrowed copy, Source* source);
  void lift_container_attributes(Borrowed original, Borrowed copy, Source* source);
  Ref intern_key(Borrowed key);
  void guard_inherited(PyTypeObject* type, Borrowed name);

  SourceTree& tree_;
  fake::Session& session_;
  PointerSet<PyObject> defaults_guarded_;  // functions
  struct KnownObject {
    PyObject* lifted;
    Known known;
  };
  std::deque<KnownObject> all_known_;                     // stable addresses
  PointerMap<PyObject, Known*> known_;                    // by lifted object
  PointerMap<PyObject, PyObject*> lifted_;                // by original
  PointerMap<PyObject, std::vector<Source*>> origins_;    // of plain values, which lift to themselves
  std::unordered_map<const Source*, Ref> unspecialized_;  // their symbols
  std::vector<Ref> kept_;
  std::vector<Ref> guarded_whole_;  // containers of plain values under one guard: their elements have no origin
  PointerSet<PyObject> made_;
  std::unordered_map<PyObject*, std::unordered_set<PyObject*>> subclasses_before_;  // by base
  PointerSet<PyObject> codes_, code_constants_, constants_;
  std::vector<EffectCall> effects_;
  Ref withheld_;
  PointerSet<PyTypeObject> special_, odd_;
  std::deque<Shadow> shadows_;
  std::unordered_map<PyObject*, Open> open_;
  Ref keys_;  // dict: plain keys that were looked up -> the first equal one
  PointerMap<PyObject, Shadow*> name_spaces_;
  struct Cell {
    Source* source;
    bool read = false;
    Place place;
  };
  std::unordered_map<PyObject*, Cell> cells_;
  struct FieldKey {
    PyObject *instance, *name;
    bool operator==(const FieldKey&) const = default;
  };
  struct FieldHash {
    size_t operator()(const FieldKey& key) const {
      return std::hash<void*>()(key.instance) ^ (std::hash<void*>()(key.name) * 31);
    }
  };
  struct TypeFact {
    Source* source = nullptr;
    bool guarded = false;
  };
  TypeFact& preexisting_fact(PyTypeObject* type, Borrowed name);
  std::unordered_map<FieldKey, TypeFact, FieldHash> type_facts_;  // of pre-existing classes; names are interned, kept
  std::unordered_map<FieldKey, Place, FieldHash> fields_;
  std::unordered_map<FieldKey, Place, FieldHash> class_places_;
  std::vector<FieldKey> class_order_;
  struct Iterator {
    Source* source;
    Ref copy;
    Py_ssize_t asked = 0;
  };
  std::unordered_map<PyObject*, Iterator> iterators_;
  std::vector<PyObject*> cell_order_, iterator_order_;
  std::vector<FieldKey> field_order_;
  std::vector<std::pair<Ref, Source*>> tensors_;
  std::vector<DecimalContext> decimal_contexts_;
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

// Every dunder attribute that a class has, bases included: name -> attribute.
Ref special_methods(PyTypeObject* type);

// The arguments that an operator.itemgetter, attrgetter or methodcaller was made with.
struct Words {
  Ref positional, named;  // a tuple; a dict, or null
};
Words words_of_getter(Borrowed getter);

// A Python class without C state above `object` (or an exception): instances are __dict__ and __slots__ only.
bool has_plain_layout(PyTypeObject* type);
// The nearest base that is not a Python class: object, list, dict, BaseException, ...
PyTypeObject* layout_base(PyTypeObject* type);

}  // namespace alternator::lift
