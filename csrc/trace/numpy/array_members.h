// What a trace may do with numpy's functions and with the members of an array, by identity.
#pragma once

#include "lift/sources/pointer_tables.h"
#include "py/ref.h"

namespace alternator::trace {

struct ArrayCall {
  bool computes = false;      // a trace may run this method on concrete arrays
  bool warns = false;         // on empty input, or where the degrees of freedom are <= 0
  bool reads_layout = false;  // its result depends on the shape alone
  bool writes = false;        // to the array whose method it is
  size_t symbolic = 0;  // how many arguments, counted from the first, may hold symbolic arrays; 0: the call is a break
  PyObject* descriptor = nullptr;  // of a method
};

enum class ArrayAttribute : uint8_t {
  kRefused,
  kLayout,  // known without the contents
  kView,
  kImaginary,
  kBase,
};

// numpy's functions and the methods of numpy.ndarray that have a meaning of their own.
struct ArrayMembers {
  static const ArrayMembers& table();

  const ArrayCall& function(Borrowed callable) const;
  // Of a method, bound or not, or of its descriptor.
  const ArrayCall& method(Borrowed callable) const;
  ArrayAttribute attribute(Borrowed descriptor) const;
  bool is_ufunc(Borrowed callable) const { return callable.type() == ufunc; }

  PyTypeObject* ufunc = nullptr;
  PyObject *where = nullptr, *nan_to_num = nullptr, *asarray = nullptr;

 private:
  ArrayMembers();
  void add_functions();
  void add_methods();
  void add_attributes(const char* names, ArrayAttribute attribute);
  ArrayCall* named_function(const char* name);
  ArrayCall* named_method(const char* name);

  lift::PointerMap<PyObject, ArrayCall> functions_;
  lift::PointerMap<PyMethodDef, ArrayCall> methods_;
  lift::PointerMap<PyObject, ArrayAttribute> attributes_;
};

}  // namespace alternator::trace
