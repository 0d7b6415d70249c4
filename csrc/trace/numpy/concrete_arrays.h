// Concrete numpy arrays and numpy scalars: numpy computes with them while tracing.
#pragma once

#include "py/error.h"
#include "trace/core/call.h"
#include "trace/numpy/native_array_use.h"

#include <string>
#include <vector>

namespace alternator::trace {

struct ArrayCall;
class Tracer;

// A tensor and an array that share memory.
struct SharedMemory {
  Ref array;  // that has the memory
  std::string bytes;
  Ref tensor;
  size_t position;  // the number of nodes so far
  bool outside;
};

// What of numpy is called. kNumber: the type of a scalar, or a method that is bound to one.
enum class Callee : uint8_t { kFunction, kNumber, kMethod };

class ConcreteArrays {
 public:
  explicit ConcreteArrays(Tracer& tracer) : t(tracer) {}

  // `self`: the array that a method is bound to.
  Ref call(const Call& call, Callee callee, Borrowed self);
  static bool is_array_operation(Borrowed left, Borrowed right);
  Ref operate_on_arrays(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate_on_array(unaryfunc operation, Borrowed operand);
  Ref compare_arrays(Borrowed left, Borrowed right, int operation);
  Ref get_from_array(Borrowed array, Borrowed name);
  Ref item_of_array(Borrowed array, Borrowed key);
  void set_item_of_array(Borrowed array, Borrowed key, Borrowed value);  // null: delete
  bool array_contains(Borrowed array, Borrowed value);
  Tri truth_of_array(Borrowed array);

  // Arguments that numpy may receive: known values without user-defined methods.
  bool may_compute_with(Borrowed value, int depth = 0);
  void use_array(Borrowed array);
  // An exception is set: a warning of numpy is a break.
  void check_numpy_error(const std::string& what);

  // Whether a tensor, or the array that shares its memory, was written to.
  bool shared_changed();
  // One of these tensors, which outlive the trace, shares memory with an array that is still referenced.
  bool leaves_with_array(const std::vector<Ref>& tensors) const;
  std::vector<SharedMemory> shared;

 private:
  // A numpy operation; a warning from it is a break.
  template <class Operation>
  Ref compute(const std::string& what, Operation&& operation);
  void check_arguments(const Call& call, const ArrayCall& row, Borrowed self, const std::string& name);
  bool has_written_memory();

  Tracer& t;
  size_t nodes_seen_ = 0;  // by has_written_memory()
  bool memory_written_ = false;
};

}  // namespace alternator::trace
