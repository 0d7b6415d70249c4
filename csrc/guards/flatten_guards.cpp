// Makes a binding from a successful walk.
#include "cpython/dict_words.h"
#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "guards/guard_kinds.h"
#include "guards/guard_program.h"

#include <cstring>
#include <utility>

namespace alternator::guards {

using lift::Access;
using lift::GuardKind;

namespace {

// Deeper subtrees are walked.
constexpr int kMaxDepth = 200;

bool is_weakly_referable(PyObject* object) { return PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) != 0; }

// __class__ cannot be assigned.
bool has_fixed_type(PyObject* object) {
  return (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 && !PyModule_Check(object);
}

// The order of an OrderedDict can change without a new version.
bool has_order_of_its_own(PyObject* dict) { return PyODict_Check(dict) && PyDict_GET_SIZE(dict) > 1; }

// A comparison with the contents of a container: `second` is its type.
bool is_of_contents(const Check& check) {
  return facts_of(check.kind).proof == Proof::kValue && check.second.get() != nullptr;
}

bool is_immutable_container(PyObject* object) { return PyTuple_Check(object) || PyFrozenSet_Check(object); }

}  // namespace

class Flattener {
 public:
  Flattener(GuardProgram& program, const Unit& unit, Binding& binding)
      : program_(program), unit_(unit), binding_(binding), is_visited_(unit.end - unit.begin) {}

  void run() {
    for (uint32_t root = unit_.begin; root < unit_.end; root = node(root).end) {
      if (found(root) == nullptr) {
        walk(root);  // an empty slot
        continue;
      }
      const bool is_constant = node(root).step.access == Access::kConstant;
      if (is_constant && node(root).key.is_weak()) alive(root, found(root));
      flatten(root, is_constant || binding_.has_pinned_key, 0);
    }
    binding_.found.assign(program_.found_.begin() + unit_.begin, program_.found_.begin() + unit_.end);
    for (uint32_t position : unit_.needed) {
      const uint32_t number = program_.needed_[position];
      binding_.values.push_back(found(number));
      if (!binding_.is_stable[number - unit_.begin]) binding_.fresh.push_back(position);
    }
  }

 private:
  // What the operations so far prove about a node.
  struct Proved {
    uint32_t number;
    PyObject* value;
    bool is_same;  // the node finds the object that it found now; otherwise only its address is known to be the same
    int depth;
    bool has_type = false;           // it has the same type
    bool has_version = false;        // a dict with the same version
    bool has_class_version = false;  // a class with the same version
  };

  const Node& node(uint32_t number) const { return program_.nodes_[number]; }
  PyObject* found(uint32_t number) const { return program_.found_[number]; }

  void emit(OpKind kind, uint32_t number, void* object, const void* want) {
    binding_.ops.push_back({kind, number, object, reinterpret_cast<uintptr_t>(want)});
  }
  void emit(OpKind kind, uint32_t number, void* object, uint64_t want) {
    binding_.ops.push_back({kind, number, object, static_cast<uintptr_t>(want)});
  }
  // The word must keep its current value.
  void word(uint32_t number, const void* address, WordKind kind = WordKind::kPointer) {
    std::vector<Op>& ops = binding_.ops;
    if (ops.empty() || ops.back().kind != OpKind::kWords)
      ops.push_back({OpKind::kWords, static_cast<uint32_t>(binding_.words.size()), nullptr, 0});
    uintptr_t now;
    std::memcpy(&now, address, sizeof(now));
    binding_.words.push_back({address, now});
    binding_.notes.push_back({number, kind});
    ops.back().want = binding_.words.size();
  }
  void alive(uint32_t number, PyObject* object) {
    const Pin& pin = binding_.pins.emplace_back(object);
    if (pin.is_weak()) word(number, pin.word());
  }
  void hold(PyObject* object) { binding_.held.push_back(Ref::share(object)); }

  // The memo of an earlier check of the node's container is invalid.
  void visit(uint32_t number) {
    if (number == kNone || node(number).memo == kNone || is_visited_[number - unit_.begin]) return;
    is_visited_[number - unit_.begin] = true;
    emit(OpKind::kVisit, number, nullptr, uint64_t{0});
  }

  // The node's parent is proved; the node itself is found again each time, with its whole subtree.
  void walk(uint32_t number) {
    visit(node(number).parent);
    emit(OpKind::kWalk, number, nullptr, uint64_t{0});
    for (uint32_t i = number; i < node(number).end; i++) binding_.is_stable[i - unit_.begin] = false;
  }

  // A constant that is compared by value, without children; or a value that the call only replaces.
  bool is_plain_leaf(uint32_t number) const {
    if (node(number).end != number + 1) return false;
    if (found(number) == nullptr) return true;
    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) {
      const Check& check = program_.checks_[c];
      if (check.kind == GuardKind::kUnobserved) return true;
      const Proof proof = facts_of(check.kind).proof;
      const bool by_value =
          proof == Proof::kType || proof == Proof::kIdentity || (proof == Proof::kValue && !is_of_contents(check));
      if (!by_value) return false;
    }
    return may_hold(found(number));
  }

  bool is_volatile(uint32_t number) const { return program_.changes_[number] >= GuardProgram::kVolatileAfter; }

  // --- what a node's version would prove ---
  bool wants_dict_version(uint32_t number) const {
    PyObject* value = found(number);
    if (!PyDict_Check(value) || is_volatile(number)) return false;
    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) {
      const Check& check = program_.checks_[c];
      if (facts_of(check.kind).is_about_contents() || is_of_contents(check)) return true;
    }
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) {
      if (proof_of(c) == &Flattener::by_dict_item || proof_of(c) == &Flattener::by_dict_part) return true;
    }
    return false;
  }

  // Whether all that the version of this dict would prove follows from the dict being empty.
  bool is_about_emptiness(uint32_t number) const {
    if (PyDict_GET_SIZE(found(number)) != 0) return false;
    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) {
      if (facts_of(program_.checks_[c].kind).proof == Proof::kValue) return false;
    }
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) {
      if (found(c) != nullptr) return false;
    }
    return true;
  }

  bool wants_type_version(uint32_t number) const {
    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) {
      if (facts_of(program_.checks_[c].kind).proof == Proof::kClassVersion) return true;
    }
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) {
      if (proof_of(c) == &Flattener::by_class_version) return true;
    }
    return false;
  }

  // --- a node: what it is, its checks, its children ---
  void flatten(uint32_t number, bool is_same, int depth) {
    Proved proved{number, found(number), is_same, depth};
    if (depth > kMaxDepth || lift::is_stand_in(node(number).step.access, proved.value)) return walk(number);
    if (!prove_object(proved) || !prove_versions(proved)) return walk(number);
    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) prove_check(proved, c);
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) (this->*proof_of(c))(proved, c);
  }

  void type_word(Proved& proved) {
    if (std::exchange(proved.has_type, true)) return;
    hold(reinterpret_cast<PyObject*>(Py_TYPE(proved.value)));
    word(proved.number, &proved.value->ob_type);
  }

  // That the object is the same, or of a type whose contents may be compared. False: neither can be proved.
  bool prove_object(Proved& proved) {
    PyObject* value = proved.value;
    if (proved.is_same) return true;
    if (may_hold(value)) {
      hold(value);
      proved.is_same = true;
    } else if (is_weakly_referable(value)) {
      alive(proved.number, value);
      proved.is_same = true;
    } else if (node(proved.number).step.access == Access::kDict && wants_dict_version(proved.number)) {
      // An instance dict is a dict: its version may be read, and proves the rest.
    } else if (PyDict_CheckExact(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
      type_word(proved);  // then its contents are compared
    } else {
      return false;
    }
    return true;
  }

  bool prove_versions(Proved& proved) {
    const uint32_t number = proved.number;
    PyObject* value = proved.value;
    if (PyDict_Check(value) && is_volatile(number)) binding_.watched.emplace_back(number, cpython::dict_version(value));
    proved.has_version = wants_dict_version(number);
    if (proved.has_version && proved.is_same && is_about_emptiness(number)) {
      binding_.empty.push_back(cpython::dict_count_word(value));
    } else if (proved.has_version) {
      word(number, cpython::dict_version_word(value), WordKind::kDictVersion);
      proved.is_same = true;
    }
    if (!PyType_Check(value) || !wants_type_version(number)) return true;
    const uint32_t version = cpython::type_version(reinterpret_cast<PyTypeObject*>(value));
    if (version == 0) return false;
    proved.has_class_version = true;
    emit(OpKind::kTypeVersion, number, value, static_cast<uint64_t>(version));
    return true;
  }

  bool proves_contents(const Proved& proved) const {
    return PyDict_Check(proved.value) ? proved.has_version : proved.is_same && is_immutable_container(proved.value);
  }

  // Whether what is proved implies that the check holds; otherwise it is checked every time.
  bool is_implied(Proved& proved, const Check& check, uint32_t c) {
    PyObject* value = proved.value;
    switch (facts_of(check.kind).proof) {
      case Proof::kType:
        if (!proved.is_same || !has_fixed_type(value)) type_word(proved);
        return true;
      case Proof::kIdentity:
        return proved.is_same;
      case Proof::kValue:
        return is_of_contents(check) ? proved.has_version && !PyODict_Check(value) : proved.is_same;
      case Proof::kTensor:
        if (proved.is_same) binding_.tensors.add(value, *check.tensor, c);
        return proved.is_same;
      case Proof::kContents:
        return proves_contents(proved);
      case Proof::kOrder:
        return proves_contents(proved) && !has_order_of_its_own(value);
      case Proof::kClassVersion:
        return proved.has_class_version;
      case Proof::kCode:
        if (proved.is_same) word(proved.number, &reinterpret_cast<PyFunctionObject*>(value)->func_code);
        return proved.is_same;
      case Proof::kStep:
        return true;
      case Proof::kNever:
        return false;
    }
    return false;
  }

  void prove_check(Proved& proved, uint32_t c) {
    if (is_implied(proved, program_.checks_[c], c)) return;
    visit(proved.number);
    emit(OpKind::kCheck, proved.number, proved.value, static_cast<uint64_t>(c));
  }

  // --- the steps to its children: the proof column of accessors.def ---
  using StepProof = void (Flattener::*)(Proved& parent, uint32_t number);
  StepProof proof_of(uint32_t number) const {
    static constexpr StepProof kProofs[] = {
#define ALT_ACCESSOR(kind, text, finder, proof) &Flattener::by_##proof,
#include "lift/sources/accessors.def"
#undef ALT_ACCESSOR
    };
    return kProofs[static_cast<size_t>(node(number).step.access)];
  }

  // The child is the same object if it is there.
  void same(const Proved& parent, uint32_t number) {
    if (found(number) != nullptr) flatten(number, true, parent.depth + 1);
  }
  void same_if(bool is_proved, const Proved& parent, uint32_t number) {
    return is_proved && found(number) != nullptr ? same(parent, number) : walk(number);
  }

  // The word that holds the pointer to the child is unchanged.
  void pointer(const Proved& parent, uint32_t number, const void* slot) {
    if (found(number) == nullptr || is_plain_leaf(number)) return walk(number);
    word(number, slot);
    flatten(number, false, parent.depth + 1);
  }

  static PyFunctionObject* same_function(const Proved& parent) {
    return PyFunction_Check(parent.value) && parent.is_same ? reinterpret_cast<PyFunctionObject*>(parent.value)
                                                            : nullptr;
  }

  void by_walk(Proved&, uint32_t number) { walk(number); }

  void by_type_word(Proved& parent, uint32_t number) {
    type_word(parent);
    flatten(number, true, parent.depth + 1);
  }

  void by_class_version(Proved& parent, uint32_t number) {
    return parent.has_class_version ? same(parent, number) : walk(number);
  }

  void by_instance_dict(Proved& parent, uint32_t number) {
    PyObject *owner = parent.value, *value = found(number);
    if (value == nullptr || !parent.is_same || lift::is_stand_in(Access::kDict, value)) return walk(number);
    if (PyType_Check(owner)) return same(parent, number);
    if (cpython::is_thread_local(Py_TYPE(owner))) return walk(number);  // another thread has another dict
    // Another class may store the dict at another offset.
    if (!has_fixed_type(owner)) type_word(parent);
    word(number, cpython::instance_dict_slot(owner));
    flatten(number, false, parent.depth + 1);
  }

  void by_dict_item(Proved& parent, uint32_t number) {
    if (!PyDict_Check(parent.value)) return walk(number);
    if (parent.has_version) return same(parent, number);
    if (is_plain_leaf(number)) return walk(number);
    visit(parent.number);
    emit(OpKind::kDictItem, number, parent.value, found(number));
    flatten(number, false, parent.depth + 1);
  }

  void by_dict_part(Proved& parent, uint32_t number) {
    same_if(parent.has_version && !PyODict_Check(parent.value), parent, number);
  }

  void by_sequence_item(Proved& parent, uint32_t number) {
    PyObject *owner = parent.value, *value = found(number);
    if (value == nullptr) return walk(number);
    if (PyTuple_Check(owner) && parent.is_same) return same(parent, number);
    if (is_plain_leaf(number) || !(PyList_Check(owner) || PyTuple_Check(owner))) return walk(number);
    emit(PyList_Check(owner) ? OpKind::kListItem : OpKind::kTupleItem, number, owner, value);
    flatten(number, false, parent.depth + 1);
  }

  void by_set_element(Proved& parent, uint32_t number) {
    same_if(PyFrozenSet_Check(parent.value) && parent.is_same, parent, number);
  }

  void by_cell_contents(Proved& parent, uint32_t number) {
    if (!PyCell_Check(parent.value) || !parent.is_same) return walk(number);
    pointer(parent, number, &reinterpret_cast<PyCellObject*>(parent.value)->ob_ref);
  }

  // A part of a function that cannot be assigned.
  void by_function_part(Proved& parent, uint32_t number) { same_if(same_function(parent) != nullptr, parent, number); }

  void by_defaults(Proved& parent, uint32_t number) {
    PyFunctionObject* function = same_function(parent);
    return function != nullptr ? pointer(parent, number, &function->func_defaults) : walk(number);
  }

  void by_keyword_defaults(Proved& parent, uint32_t number) {
    PyFunctionObject* function = same_function(parent);
    return function != nullptr ? pointer(parent, number, &function->func_kwdefaults) : walk(number);
  }

  void by_code(Proved& parent, uint32_t number) {
    PyFunctionObject* function = same_function(parent);
    return function != nullptr ? pointer(parent, number, &function->func_code) : walk(number);
  }

  void by_method_part(Proved& parent, uint32_t number) {
    same_if(parent.is_same && (PyMethod_Check(parent.value) || PyCFunction_Check(parent.value)), parent, number);
  }

  GuardProgram& program_;
  const Unit& unit_;
  Binding& binding_;
  std::vector<bool> is_visited_;
};

std::unique_ptr<Binding> GuardProgram::bind(const Unit& unit, PyObject* key) {
  static uint64_t last_id = 0;
  auto binding = std::make_unique<Binding>();
  binding->id = ++last_id;
  binding->review_at = 32;
  if (unit.has_key) {
    binding->address = key;
    binding->has_pinned_key = is_weakly_referable(key) || may_hold(key);
    if (binding->has_pinned_key) binding->key = Pin(key);
  }
  binding->is_stable.assign(unit.end - unit.begin, true);
  Flattener(*this, unit, *binding).run();
  return binding;
}

}  // namespace alternator::guards
