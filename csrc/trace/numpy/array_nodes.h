// Symbolic numpy arrays: calls, operators and items of them become nodes of the graph.
#pragma once

#include "trace/core/call.h"

#include <string>
#include <vector>

namespace alternator::trace {

struct ArrayCall;
class Tracer;

constexpr Py_ssize_t kMostExampleElements = 1 << 24;  // of an example array

class ArrayNodes {
 public:
  explicit ArrayNodes(Tracer& tracer) : t(tracer) {}

  bool is_symbolic_array(Borrowed value);
  bool holds_symbolic_array(Borrowed value, int depth = 0);
  // Records a view that was made of an array before that array was promoted.
  void note_symbolic_array(Borrowed array, const std::string& what);

  Ref operate_on_symbolic(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate_on_symbolic(unaryfunc operation, Borrowed operand);
  Ref compare_symbolic(Borrowed left, Borrowed right, int operation);
  Ref absolute(Borrowed abs, Borrowed array);
  Py_ssize_t length_of_symbolic(Borrowed array);
  Ref item_of_symbolic(Borrowed array, Borrowed key);
  void set_item_of_symbolic(Borrowed array, Borrowed key, Borrowed value);
  // `member`: what its type has under this name.
  Ref attribute_of_symbolic(Borrowed array, Borrowed name, Borrowed member);
  // `self`: the array that a method is bound to; null: it is a function, or an unbound method.
  Ref call_on_symbolic(const std::string& name, const Call& call, const ArrayCall& row, Borrowed self);

 private:
  Ref record_array_call(const std::string& what, Borrowed callable, const std::vector<PyObject*>& arguments,
                        size_t positional, Borrowed keyword_names, const std::vector<Borrowed>& written);
  Ref call_on_examples(const std::string& what, Borrowed callable, const std::vector<PyObject*>& arguments,
                       size_t positional, Borrowed keyword_names);
  void use_written(const std::string& what, const std::vector<Borrowed>& written);
  void check_keyword(const std::string& name, Borrowed keyword_name, Borrowed value, std::vector<Borrowed>* written);
  void check_concrete(const std::string& name, Borrowed value);
  void promote_array(Borrowed array, const std::string& what);
  Ref frozen_array(Borrowed array, const std::string& what);
  // A pre-existing array: its type, shape and strides are guarded, and it is a graph input.
  bool use_preexisting_array(Borrowed array);

  Tracer& t;
};

// The rows of a symbolic array, as a list. Null: it is not one, or its elements are scalars.
Ref rows_of_symbolic(Tracer& tracer, Borrowed value);

}  // namespace alternator::trace
