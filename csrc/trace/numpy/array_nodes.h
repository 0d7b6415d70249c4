// TODO
#pragma once
#include <string>
#include <vector>
#include "py/error.h"

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class ArrayNodes {
 public:
  explicit ArrayNodes(Tracer& tracer) : t(tracer) {}
  bool is_symbolic_array(Borrowed value);
  bool holds_symbolic_array(Borrowed value, int depth = 0);
  Py_ssize_t length_of_symbolic(Borrowed array);
  Ref operate_on_symbolic(binaryfunc operation, Borrowed left, Borrowed right);
  Ref operate_on_symbolic(unaryfunc operation, Borrowed operand);
  Ref compare_symbolic(Borrowed left, Borrowed right, int operation);
  Ref item_of_symbolic(Borrowed array, Borrowed key);
  void set_item_of_symbolic(Borrowed array, Borrowed key, Borrowed value);
  Ref attribute_of_symbolic(Borrowed array, Borrowed name);
  Ref call_on_symbolic(const std::string& name, Borrowed callable, Borrowed self, PyObject* const* arguments,
                       size_t positional, Borrowed keyword_names, bool is_method);
  Ref call_builtin_on_symbolic(Borrowed callable, PyObject* const* arguments, size_t positional,
                               Borrowed keyword_names);
  Ref array_of_tensor(Borrowed callable, Borrowed tensor);
  Ref numpy_of_tensor(Borrowed callable, const std::string& name, PyObject* const* arguments, size_t count);
  Ref tensor_of_symbolic(const std::string& name, Borrowed callable, PyObject* const* arguments, size_t positional,
                         Borrowed keyword_names);

 private:
  Ref record_array_call(const std::string& what, Borrowed callable, const std::vector<PyObject*>& arguments,
                        size_t positional, Borrowed keyword_names, const std::vector<Borrowed>& written);
  void promote_array(Borrowed array, const std::string& what);
  Ref frozen_array(Borrowed array, const std::string& what);
  void note_symbolic_array(Borrowed array, const std::string& what);
  // A pre-existing array: its type, shape and strides are guarded, and it is a graph input.
  bool use_preexisting_array(Borrowed array);
  Tracer& t;
};

}  // namespace alternator::trace
