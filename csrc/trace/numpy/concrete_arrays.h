// numpy arrays that native code reaches on its own, inside containers and iterators.
#pragma once
#include <string>
#include <vector>

#include "py/error.h"

namespace alternator::trace {

class Tracer;

// To be called before native code computes with the contents of a container or an iterator: marks pre-existing arrays
// among them as used.
void check_arrays_within(Tracer& tracer, Borrowed value);

// The rows of a symbolic array, as a list. Null: it is not one, or its elements are scalars.
Ref rows_of_symbolic(Tracer& tracer, Borrowed value);

struct SharedMemory {
  Ref array;  // that has the memory
  std::string bytes;
  Ref tensor;
  size_t position;  // the number of nodes so far
  bool outside;
};
class ConcreteArrays {
 public:
  explicit ConcreteArrays(Tracer& tracer) : t(tracer) {}
  static bool is_array_operation(Borrowed left, Borrowed right);
  Ref operate_on_arrays(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate_on_array(unaryfunc operation, Borrowed operand);
  Ref compare_arrays(Borrowed left, Borrowed right, int operation);
  // One of these tensors, which outlive the trace, shares memory with an array that is still referenced.
  bool leaves_with_array(const std::vector<Ref>& tensors) const;
  // concrete_arrays.cpp. Null: it is no numpy function, no numpy scalar type, and no method of a numpy scalar or array.
  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref get_from_array(Borrowed array, Borrowed name);
  Ref item_of_array(Borrowed array, Borrowed key);
  void set_item_of_array(Borrowed array, Borrowed key, Borrowed value);  // null: delete
  bool array_contains(Borrowed array, Borrowed value);
  Tri truth_of_array(Borrowed array);
  bool may_compute_with(Borrowed value, int depth = 0);
  void check_numpy_error(const std::string& what);
  bool check_array_arguments(const std::string& name, PyObject* const* arguments, size_t count);
  bool check_array_arguments(PyTypeObject* type, PyTypeObject* base, PyObject* const* arguments, size_t count);
  void use_array(Borrowed array);
  Ref tensor_of_array(const std::string& name, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref torch_type(Borrowed array);
  bool shared_changed();
  std::vector<SharedMemory> shared;

 private:
  // A numpy operation; a warning from it is a break.
  template <class Operation>
  Ref compute(const std::string& what, Operation&& operation);
  bool has_written_memory();
  size_t nodes_seen_ = 0;  // by has_written_memory()
  bool memory_written_ = false;
  Tracer& t;
};

}  // namespace alternator::trace
