#include "lift/sources/source.h"

#include "lift/sources/tensor_spec.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace alternator::lift {

bool Source::is_variable() const {
  // The globals of a resumed frame's code have a source of their own.
  const bool is_attribute = access == Access::kItem && parent != nullptr &&
                            (parent->access == Access::kDict || parent->access == Access::kGlobals ||
                             (parent->access == Access::kConstant && PyDict_CheckExact(parent->key.get())));
  // What a loop assigns to its variables.
  const bool is_next = access == Access::kNext && parent->access == Access::kSlot;
  const bool is_element = access == Access::kIndex && parent != nullptr &&
                          (parent->access == Access::kSlot || parent->access == Access::kNext);
  if (is_next) return true;
  return access == Access::kSlot || access == Access::kContents || is_attribute || is_element;
}

// Whether native code gets it only through the program: not the parts of iterators, partials and defaults.
static bool is_within_variable(const Source& source) {
  for (const Source* at = &source; at != nullptr; at = at->parent) {
    switch (at->access) {
      case Access::kSlot:
      case Access::kContents:
      case Access::kGlobals:
      case Access::kDict:
        return true;
      case Access::kConstant:
        return PyDict_CheckExact(at->key.get());  // the globals of another module
      case Access::kItem:
      case Access::kIndex:
      case Access::kNext:
        continue;
      default:
        return false;
    }
  }
  return false;
}

// By its name: the guards of a source that is in use are in a guard program.
static bool is_part_of_slice(const Source& source) {
  if (source.access != Access::kField || !PyUnicode_Check(source.key.get())) return false;
  return std::ranges::any_of(std::array{"start", "stop", "step"}, [&](const char* name) {
    return PyUnicode_CompareWithASCIIString(source.key.get(), name) == 0;
  });
}

bool Source::holds_values() const {
  if (access == Access::kField) return is_part_of_slice(*this) && is_within_variable(*parent);
  return is_variable() || ((access == Access::kItem || access == Access::kIndex || access == Access::kNext) &&
                           is_within_variable(*this));
}

// Of a class of torch's, or of a subclass.
static bool is_configured(const Source& source) {
  return std::ranges::any_of(source.guards, [](const Guard& guard) {
    if (guard.kind != GuardKind::kType || !PyType_Check(guard.object.get())) return false;
    auto* type = guard.object.as<PyTypeObject>();
    return PyType_IsSubtype(type, known_types().module) != 0 || PyType_IsSubtype(type, known_types().optimizer) != 0;
  });
}

bool Source::is_of_arguments() const {
  if (access == Access::kItem && parent != nullptr && parent->access == Access::kGlobals) return true;
  for (const Source* at = this; at != nullptr; at = at->parent) {
    switch (at->access) {
      case Access::kSlot:
      case Access::kCell:
        return !is_configured(*at);
      case Access::kContents:
      case Access::kItem:
      case Access::kIndex:
      case Access::kNext:
      case Access::kDict:
      case Access::kField:
        if (is_configured(*at)) return false;
        break;
      default:
        return false;
    }
  }
  return false;
}

namespace {

size_t mix(size_t seed, size_t value) { return (seed ^ value) * 0x9E3779B97F4A7C15u + (seed >> 29); }
size_t mix(size_t seed, const void* pointer) { return mix(seed, reinterpret_cast<size_t>(pointer) >> 4); }

constexpr size_t kFewGuards = 8;

// Guards whose object is created for them: equal guards have different objects.
bool is_compared_by_value(GuardKind kind) {
  return kind == GuardKind::kEquals || kind == GuardKind::kKeys || kind == GuardKind::kSpecialMethods ||
         kind == GuardKind::kTensor;
}

bool same_object(const Ref& a, const Ref& b) {
  return a == b || (a.get() != nullptr && b.get() != nullptr && plain_equal(a.get(), b.get()));
}

bool same_value(const Guard& a, const Guard& b) {
  if (a.kind == GuardKind::kTensor) return a.tensor == b.tensor || *a.tensor == *b.tensor;
  return same_object(a.object, b.object) && same_object(a.second, b.second);
}

// A guard compares with a past state, and so must not hold a mutable object.
bool holds_what_can_change(PyObject* object, int depth = 0) {
  if (PyList_Check(object) || PyDict_Check(object) || PySet_Check(object) ||
      PyObject_TypeCheck(object, known_types().deque)) {
    return true;
  }
  if (depth > 64) return true;
  if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
      if (holds_what_can_change(PyTuple_GET_ITEM(object, i), depth + 1)) return true;
    }
  }
  return false;
}

}  // namespace

size_t SourceTree::KeyHash::operator()(const Key& key) const {
  size_t hash = mix(static_cast<size_t>(key.access), key.parent);
  hash = mix(hash, key.key);
  return mix(hash, static_cast<size_t>(key.index));
}

size_t SourceTree::GuardKeyHash::operator()(const GuardKey& key) const {
  size_t hash = mix(static_cast<size_t>(key.kind), key.source);
  hash = mix(hash, key.object);
  hash = mix(hash, key.second);
  hash = mix(hash, static_cast<size_t>(key.number));
  return mix(hash, key.other);
}

Source* SourceTree::make(Access access, Source* parent, Borrowed key, Py_ssize_t index) {
  Ref name = Ref::share(key);
  if (key && PyUnicode_CheckExact(key.get())) {
    PyObject* interned = name.release();
    PyUnicode_InternInPlace(&interned);
    name = Ref::steal(interned);
  }
  auto [found, added] = by_key_.try_emplace(Key{parent, access, name.get(), index}, nullptr);
  if (!added) return found->second;
  Source& source = sources_.emplace_back();
  source.access = access;
  source.parent = parent;
  source.key = std::move(name);
  source.index = index;
  source.id = static_cast<uint32_t>(sources_.size() - 1);
  found->second = &source;
  (parent != nullptr ? parent->children : roots_).push_back(&source);
  return &source;
}

Source* SourceTree::root(Access access, Borrowed key, Py_ssize_t index) { return make(access, nullptr, key, index); }

Source* SourceTree::child(Source* parent, Access access, Borrowed key, Py_ssize_t index) {
  ALT_CHECK(parent != nullptr, "a step needs a source to start from");
  return make(access, parent, key, index);
}

uint32_t SourceTree::current_site() {
  if (locate) locate();
  if (site_code_ == nullptr) return 0;
  const Site& last = sites_.back();
  if (last.code.get() != site_code_ || last.index != site_index_)
    sites_.push_back({Ref::share(site_code_), site_index_});
  return static_cast<uint32_t>(sites_.size() - 1);
}

// False: the same guard exists already. Most sources have a few guards, which are searched linearly; those of a source
// with many are in a hash table.
bool SourceTree::note_new(const Source* source, const Guard& guard) {
  if (is_compared_by_value(guard.kind)) {
    for (const Guard& other : source->guards) {
      if (other.kind == guard.kind && same_value(other, guard)) return false;
    }
    return true;
  }
  auto key_of = [&](const Guard& of) {
    return GuardKey{source, of.kind, of.object.get(), of.second.get(), of.number, of.other};
  };
  const GuardKey key = key_of(guard);
  if (source->guards.size() < kFewGuards) {
    for (const Guard& other : source->guards) {
      if (other.kind == guard.kind && key_of(other) == key) return false;
    }
    return true;
  }
  if (source->guards.size() == kFewGuards) {
    for (const Guard& other : source->guards) guards_.insert(key_of(other));
  }
  return guards_.insert(key).second;
}

void SourceTree::guard(Source* source, Guard guard) {
  if (guard.kind == GuardKind::kEquals) {
    if (Ref contents = frozen_contents(guard.object)) {
      guard.second = Ref::share(reinterpret_cast<PyObject*>(guard.object.type()));
      guard.object = std::move(contents);
    }
    ALT_CHECK(!holds_what_can_change(guard.object.get()), "an equality guard on a container inside of a container");
  }
  if (!note_new(source, guard)) return;
  guard.site = current_site();
  if (source->guards.empty()) source->guards.reserve(2);
  source->guards.push_back(std::move(guard));
}

void SourceTree::close(bool (*may_keep)(PyObject* object)) {
  by_key_.clear();
  guards_.clear();
  locate = nullptr;
  site_code_ = nullptr;
  for (Source& source : sources_) {
    if (!source.key || may_keep(source.key.get())) continue;
    const std::string text = show(source.key.get());
    source.key = checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
    source.labeled = true;
  }
}

bool is_special_method_name(PyObject* name) {
  if (!PyUnicode_CheckExact(name)) return false;
  const Py_ssize_t length = PyUnicode_GET_LENGTH(name);
  auto at = [&](Py_ssize_t i) { return PyUnicode_READ_CHAR(name, i); };
  const bool has_lines = length >= 5 && at(0) == '_' && at(1) == '_' && at(length - 1) == '_' && at(length - 2) == '_';
  if (!PyUnicode_IS_ASCII(name)) return has_lines;
  const std::string_view text(reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(name)), static_cast<size_t>(length));
  // Native code looks these up by name too: dict(x), {**x}, `match x`.
  if (!has_lines) return text == "keys" || text == "items" || text == "get";
  return text != "__dict__" && text != "__weakref__" && text != "__doc__" && text != "__module__" &&
         text != "__annotations__" && text != "__slots__";
}

const char* name_of(GuardKind kind) {
  static constexpr const char* kNames[] = {
#define ALT_GUARD(kind, sentence, ...) #kind,
#include "lift/sources/guards.def"
#undef ALT_GUARD
  };
  return kNames[static_cast<size_t>(kind)];
}

const char* sentence_of(GuardKind kind) {
  static constexpr const char* kSentences[] = {
#define ALT_GUARD(kind, sentence, ...) sentence,
#include "lift/sources/guards.def"
#undef ALT_GUARD
  };
  return kSentences[static_cast<size_t>(kind)];
}

const char* name_of(Access access) {
  static constexpr const char* kNames[] = {
#define ALT_ACCESSOR(kind, text, ...) #kind,
#include "lift/sources/accessors.def"
#undef ALT_ACCESSOR
  };
  return kNames[static_cast<size_t>(access)];
}

}  // namespace alternator::lift
