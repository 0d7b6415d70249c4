// Arguments of recorded calls as flat values: without Python containers and tensors.
#pragma once

#include "py/error.h"

#include <cstdint>
#include <vector>

namespace alternator::graph {

enum class ValueKind : uint8_t {
  Object,  // a plain constant (None, an int, a str, a dtype, an enum, ...), stored as an object
  Opaque,  // any other object that holds no tensor; the same object is used on every replay
  Symbol,  // torch.SymInt, SymFloat, SymBool
  Tensor,  // index: a tensor of the program; or another object that it identifies by index
  Tuple,   // count children from index; torch.Size and torch.return_types become plain tuples
  List,
  Dict,   // count pairs: key, value, key, value, ...
  Slice,  // three children
  Named,  // a namedtuple: the first child is its type
};

struct Value {
  uint32_t kind_and_count = 0;
  uint32_t index = 0;

  static Value of(ValueKind kind, uint32_t index, uint32_t count = 0) {
    return Value{static_cast<uint32_t>(kind) | count << 8, index};
  }
  ValueKind kind() const { return static_cast<ValueKind>(kind_and_count & 0xff); }
  uint32_t count() const { return kind_and_count >> 8; }
  bool is_tensor() const { return kind() == ValueKind::Tensor; }
  // The number of values at `index` in the arena: 0 for a leaf.
  uint32_t children() const {
    switch (kind()) {
      case ValueKind::Tuple:
      case ValueKind::List:
      case ValueKind::Slice:
      case ValueKind::Named:
        return count();
      case ValueKind::Dict:
        return 2 * count();
      default:
        return 0;
    }
  }
};

// How many elements a container may have: the width of Value's count.
inline constexpr size_t kMostChildren = (1u << 24) - 1;

// All values of a program, and the constants among them.
class Arena {
 public:
  struct Mark {
    size_t values, objects;
  };
  Mark mark() const { return {values_.size(), objects_.size()}; }
  void rewind(Mark mark);

  // Allocates `count` adjacent children; they are filled with set().
  uint32_t reserve(size_t count);
  void set(uint32_t at, Value value) { values_[at] = value; }
  uint32_t keep(Borrowed object);

  const Value& operator[](uint32_t at) const { return values_[at]; }
  Borrowed object(Value value) const { return objects_[value.index]; }
  size_t size() const { return values_.size(); }
  const std::vector<Ref>& objects() const { return objects_; }
  void drop_objects() { objects_.clear(); }

 private:
  std::vector<Value> values_;
  std::vector<Ref> objects_;
};

// Gives the index of a tensor argument in the program. Throws if the program does not know it.
class TensorNames {
 public:
  virtual uint32_t tensor_id(Borrowed tensor) = 0;
  // Called before a number is stored. What cannot be one there becomes a plain number.
  virtual void prepare(Borrowed) {}
  // The index of an object that each run creates or receives; kNone: it is no such object.
  static constexpr uint32_t kNone = UINT32_MAX;
  virtual uint32_t object_id(Borrowed) { return kNone; }
  // An array that nobody mutates.
  virtual bool is_kept(Borrowed) { return false; }

 protected:
  ~TensorNames() = default;
};

// Stores `object` in the arena. Throws RecordError for a tensor inside of an object that cannot be inspected.
Value capture(Arena& arena, Borrowed object, TensorNames& names);

// Rebuilds the Python object of a value; `leaf` converts a leaf (a tensor, a constant) into an object.
template <class Leaf>
Ref rebuild(const Arena& arena, Value value, Leaf&& leaf) {
  const uint32_t first = value.index;
  auto child = [&](uint32_t i) { return rebuild(arena, arena[first + i], leaf); };
  switch (value.kind()) {
    case ValueKind::Tuple: {
      Ref tuple = checked(PyTuple_New(value.count()));
      for (uint32_t i = 0; i < value.count(); ++i) PyTuple_SET_ITEM(tuple.get(), i, child(i).release());
      return tuple;
    }
    case ValueKind::List: {
      Ref list = checked(PyList_New(value.count()));
      for (uint32_t i = 0; i < value.count(); ++i) PyList_SET_ITEM(list.get(), i, child(i).release());
      return list;
    }
    case ValueKind::Dict: {
      Ref dict = checked(PyDict_New());
      for (uint32_t i = 0; i < value.count(); ++i) {
        Ref key = child(2 * i);
        Ref item = child(2 * i + 1);
        check_status(PyDict_SetItem(dict.get(), key.get(), item.get()));
      }
      return dict;
    }
    case ValueKind::Slice: {
      Ref start = child(0), stop = child(1), step = child(2);
      return checked(PySlice_New(start.get(), stop.get(), step.get()));
    }
    case ValueKind::Named: {
      // Not by calling the class: its __new__ has run already.
      auto* type = reinterpret_cast<PyTypeObject*>(arena.object(arena[first]).get());
      Ref fields = checked(PyTuple_New(value.count() - 1));
      for (uint32_t i = 1; i < value.count(); ++i) PyTuple_SET_ITEM(fields.get(), i - 1, child(i).release());
      Ref arguments = checked(PyTuple_Pack(1, fields.get()));
      return checked(PyTuple_Type.tp_new(type, arguments.get(), nullptr));
    }
    default:
      return leaf(value);
  }
}

// Calls visit(value) for every leaf below `value`, in the order of evaluation.
template <class Visit>
void each_leaf(const Arena& arena, Value value, Visit&& visit) {
  const uint32_t children = value.children();
  if (children == 0 && value.kind() != ValueKind::Tuple && value.kind() != ValueKind::List &&
      value.kind() != ValueKind::Dict) {
    visit(value);
    return;
  }
  for (uint32_t i = 0; i < children; ++i) each_leaf(arena, arena[value.index + i], visit);
}

}  // namespace alternator::graph
