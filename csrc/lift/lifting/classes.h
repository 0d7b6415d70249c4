// Attributes of classes: what the program reads of pre-existing ones, what it writes to them, and the classes it makes.
#pragma once

#include "lift/lifting/shadow.h"
#include "lift/lifting/variables.h"

#include <unordered_map>
#include <unordered_set>

namespace alternator::lift {

class Lifter;

class Classes {
 public:
  explicit Classes(Lifter& lifter) : lifter_(lifter) {}

  // The attribute of `type` under `name`, bases included (null: none), unlifted; the result is guarded. Plain data
  // still has to be lifted from attribute_source().
  PyObject* attribute(PyTypeObject* type, Borrowed name);
  // Null: a class of the trace defines it.
  Source* attribute_source(PyTypeObject* type, Borrowed name);
  // False: one of them is an object that native code would call or bind unlifted.
  bool use_special_methods(PyTypeObject* type);
  // The classes of use_special_methods().
  const PointerSet<PyTypeObject>& with_special_methods() const { return special_; }
  // A private view of a class's own dict, lifted whole; for a mapping proxy, which is read-only.
  Ref dict(PyTypeObject* type);
  // The keys of a class's own dict.
  void guard_names(PyTypeObject* type);

  // An attribute of a pre-existing class that the program wrote: its value is not found through a source.
  void store(PyTypeObject* type, Borrowed name, Ref value, bool writes);  // null: deleted
  const Variable* class_variable(PyTypeObject* type, Borrowed name);      // of this very class; null: not written
  // Whether looking up `name` on `type` finds what the program wrote: then `value` is that (null: deleted).
  bool find_written(PyTypeObject* type, Borrowed name, PyObject** value);
  bool has_writes() const { return !written_.empty(); }
  void add_writes(std::vector<VariableWrite>& writes) const;

  // Around the construction of a class: before, for each base, so that the class is recognized while its hooks run;
  // after, for the class, whose pre-existing bases are guarded and no longer list it.
  void begin(Borrowed base);
  void finish(Borrowed cls);
  void forget_unfinished() const;
  // A class of the trace whose construction has not finished.
  bool is_unfinished(Borrowed cls) const;
  bool has_new_subclasses(Borrowed base) const { return subclasses_before_.count(base.get()) != 0; }
  bool existed_before(Borrowed cls) const;  // one of the bases passed to begin() listed it then

 private:
  struct TypeFact {
    Source* source = nullptr;
    bool guarded = false;
  };
  TypeFact& preexisting_fact(PyTypeObject* type, Borrowed name);
  void guard_inherited(PyTypeObject* type, Borrowed name);

  Lifter& lifter_;
  std::unordered_map<VariableKey, TypeFact, VariableHash> facts_;  // of pre-existing classes; names are kept
  PointerSet<PyTypeObject> special_, unsafe_;  // whose special methods are guarded; ... are not for native code
  std::unordered_map<VariableKey, Variable, VariableHash> variables_;
  std::vector<VariableKey> written_;                                                // in order
  std::unordered_map<PyObject*, std::unordered_set<PyObject*>> subclasses_before_;  // by base
};

// Every dunder attribute that a class has, bases included: name -> attribute.
Ref special_methods(PyTypeObject* type);

}  // namespace alternator::lift
