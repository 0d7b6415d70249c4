// Makes a binding from a successful walk.
#include "cpython/dict_words.h"
#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "guards/guard_program.h"

#include <cstring>

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

bool is_about_contents(GuardKind kind) {
  return kind == GuardKind::kLength || kind == GuardKind::kTruth || kind == GuardKind::kSetLayout ||
         kind == GuardKind::kKeys || kind == GuardKind::kHasKey || kind == GuardKind::kLacksKey;
}

// The order of an OrderedDict can change without a new version.
bool has_order_of_its_own(PyObject* dict) { return PyODict_Check(dict) && PyDict_GET_SIZE(dict) > 1; }

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
      const bool by_value = check.kind == GuardKind::kType || check.kind == GuardKind::kIs ||
                            (check.kind == GuardKind::kEquals && check.second.get() == nullptr);
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
      if (is_about_contents(check.kind) || (check.kind == GuardKind::kEquals && check.second.get() != nullptr))
        return true;
    }
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) {
      const Access access = node(c).step.access;
      if (access == Access::kItem || access == Access::kKey || access == Access::kValue) return true;
    }
    return false;
  }

  // Whether all that the version of this dict would prove follows from the dict being empty.
  bool is_about_emptiness(uint32_t number) const {
    if (PyDict_GET_SIZE(found(number)) != 0) return false;
    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) {
      if (program_.checks_[c].kind == GuardKind::kEquals) return false;
    }
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) {
      if (found(c) != nullptr) return false;
    }
    return true;
  }

  bool wants_type_version(uint32_t number) const {
    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) {
      if (program_.checks_[c].kind == GuardKind::kSpecialMethods) return true;
    }
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) {
      if (node(c).step.access == Access::kTypeAttribute || node(c).step.access == Access::kMro) return true;
    }
    return false;
  }

  // `is_same`: earlier operations prove that the node finds the object that it found now. Otherwise only its address is
  // known to be the same.
  void flatten(uint32_t number, bool is_same, int depth) {
    PyObject* value = found(number);
    if (depth > kMaxDepth || lift::is_stand_in(node(number).step.access, value)) return walk(number);
    bool has_type_op = false;
    auto type_op = [&] {
      if (has_type_op) return;
      has_type_op = true;
      hold(reinterpret_cast<PyObject*>(Py_TYPE(value)));
      word(number, &value->ob_type);
    };
    if (!is_same) {
      if (may_hold(value)) {
        hold(value);
        is_same = true;
      } else if (is_weakly_referable(value)) {
        alive(number, value);
        is_same = true;
      } else if (node(number).step.access == Access::kDict && wants_dict_version(number)) {
        // An instance dict is a dict: its version may be read, and proves the rest.
      } else if (PyDict_CheckExact(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        type_op();  // then its contents are compared
      } else {
        return walk(number);
      }
    }
    if (PyDict_Check(value) && is_volatile(number)) binding_.watched.emplace_back(number, cpython::dict_version(value));
    const bool has_version = wants_dict_version(number);
    if (has_version && is_same && is_about_emptiness(number)) {
      binding_.empty.push_back(cpython::dict_count_word(value));
    } else if (has_version) {
      word(number, cpython::dict_version_word(value), WordKind::kDictVersion);
      is_same = true;
    }
    bool has_type_version = false;
    if (PyType_Check(value) && wants_type_version(number)) {
      const uint32_t version = cpython::type_version(reinterpret_cast<PyTypeObject*>(value));
      if (version == 0) return walk(number);
      has_type_version = true;
      emit(OpKind::kTypeVersion, number, value, static_cast<uint64_t>(version));
    }

    for (uint32_t c = node(number).first_check; c < node(number).last_check; c++) {
      const Check& check = program_.checks_[c];
      auto ask = [&] {
        visit(number);
        emit(OpKind::kCheck, number, value, static_cast<uint64_t>(c));
      };
      switch (check.kind) {
        case GuardKind::kType:
          if (!is_same || !has_fixed_type(value)) type_op();
          break;
        case GuardKind::kIs:
          if (!is_same) ask();
          break;
        case GuardKind::kEquals:
          if (check.second.get() != nullptr ? !has_version || PyODict_Check(value) : !is_same) ask();
          break;
        case GuardKind::kTensor:
          if (is_same) {
            binding_.tensors.add(value, *check.tensor, c);
          } else {
            ask();
          }
          break;
        case GuardKind::kLength:
        case GuardKind::kTruth:
        case GuardKind::kSetLayout:
        case GuardKind::kKeys:
        case GuardKind::kHasKey:
        case GuardKind::kLacksKey: {
          const bool is_proved = PyDict_Check(value)
                                     ? has_version && !(check.kind == GuardKind::kKeys && has_order_of_its_own(value))
                                     : is_same && is_immutable_container(value);
          if (!is_proved) ask();
          break;
        }
        case GuardKind::kCode:
          if (is_same) {
            word(number, &reinterpret_cast<PyFunctionObject*>(value)->func_code);
          } else {
            ask();
          }
          break;
        case GuardKind::kUnobserved:
          ask();
          break;
        case GuardKind::kSpecialMethods:
          if (!has_type_version) ask();
          break;
        case GuardKind::kAbsent:
        case GuardKind::kSame:
        case GuardKind::kDistinct:
          break;
      }
    }
    for (uint32_t c = number + 1; c < node(number).end; c = node(c).end) {
      child(number, c, is_same, has_version, has_type_version, type_op, depth + 1);
    }
  }

  template <class TypeOp>
  void child(uint32_t parent, uint32_t number, bool is_same, bool has_version, bool has_type_version, TypeOp&& type_op,
             int depth) {
    PyObject *owner = found(parent), *value = found(number);
    auto* function = PyFunction_Check(owner) && is_same ? reinterpret_cast<PyFunctionObject*>(owner) : nullptr;
    auto pointer = [&](PyObject** slot) {
      if (value == nullptr || is_plain_leaf(number)) return walk(number);
      word(number, slot);
      flatten(number, false, depth);
    };
    switch (node(number).step.access) {
      case Access::kType:
        type_op();
        return flatten(number, true, depth);
      case Access::kMro:
      case Access::kTypeAttribute:
        if (!has_type_version) return walk(number);
        return value != nullptr ? flatten(number, true, depth) : void();
      case Access::kDict:
        return instance_dict(parent, number, is_same, type_op, depth);
      case Access::kItem:
        if (!PyDict_Check(owner)) return walk(number);
        if (has_version) return value != nullptr ? flatten(number, true, depth) : void();
        if (is_plain_leaf(number)) return walk(number);
        visit(parent);
        emit(OpKind::kDictItem, number, owner, value);
        return flatten(number, false, depth);
      case Access::kKey:
      case Access::kValue:
        if (!has_version || PyODict_Check(owner) || value == nullptr) return walk(number);
        return flatten(number, true, depth);
      case Access::kIndex:
        if (value == nullptr) return walk(number);
        if (PyTuple_Check(owner) && is_same) return flatten(number, true, depth);
        if (is_plain_leaf(number) || !(PyList_Check(owner) || PyTuple_Check(owner))) return walk(number);
        emit(PyList_Check(owner) ? OpKind::kListItem : OpKind::kTupleItem, number, owner, value);
        return flatten(number, false, depth);
      case Access::kElement:
        if (value == nullptr || !PyFrozenSet_Check(owner) || !is_same) return walk(number);
        return flatten(number, true, depth);
      case Access::kCell:
      case Access::kGlobals:  // these two cannot be assigned
        if (function == nullptr || value == nullptr) return walk(number);
        return flatten(number, true, depth);
      case Access::kContents:
        if (!PyCell_Check(owner) || !is_same) return walk(number);
        return pointer(&reinterpret_cast<PyCellObject*>(owner)->ob_ref);
      case Access::kDefaults:
        return function != nullptr ? pointer(&function->func_defaults) : walk(number);
      case Access::kKeywordDefaults:
        return function != nullptr ? pointer(&function->func_kwdefaults) : walk(number);
      case Access::kCode:
        return function != nullptr ? pointer(&function->func_code) : walk(number);
      case Access::kMethodSelf:
      case Access::kMethodFunction:
        if (!is_same || value == nullptr || !(PyMethod_Check(owner) || PyCFunction_Check(owner))) return walk(number);
        return flatten(number, true, depth);
      default:
        return walk(number);
    }
  }

  template <class TypeOp>
  void instance_dict(uint32_t parent, uint32_t number, bool is_same, TypeOp&& type_op, int depth) {
    PyObject *owner = found(parent), *value = found(number);
    if (value == nullptr || !is_same || lift::is_stand_in(Access::kDict, value)) return walk(number);
    if (PyType_Check(owner)) return flatten(number, true, depth);
    if (cpython::is_thread_local(Py_TYPE(owner))) return walk(number);  // another thread has another dict
    // Another class may store the dict at another offset.
    if (!has_fixed_type(owner)) type_op();
    word(number, cpython::instance_dict_slot(owner));
    flatten(number, false, depth);
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
