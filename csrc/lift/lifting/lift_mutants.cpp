#include "lift/lifting/lift_mutants.h"

#include "lift/lifting/layouts.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/numpy_types.h"
#include "lift/sources/optree_types.h"
#include "lift/sources/plain.h"

#include "fake/python_tensor.h"

namespace alternator::lift {

Switches& switches() {
  static auto* all = new Switches(
      {
#define ALT_ROW(name) #name,
#include "lift/lifting/lift_rows.def"
#undef ALT_ROW
      },
      "ALTERNATOR_WITHOUT_ROWS");
  return *all;
}

// In the order of lift_by_kind().
const char* row_of(Borrowed value) {
  PyObject* v = value.get();
  PyTypeObject* type = value.type();
  if (is_plain(v)) return is_enum_member(v) ? "enum_member" : "plain";
  if (fake::is_tensor_object(v)) return "tensor";
  if (PyType_Check(v)) return "class";
  if (PyFunction_Check(v)) return "function";
  if (type == known_types().pattern || type == known_types().generic_alias || type == known_types().union_type)
    return "immutable";
  if (PyTuple_Check(v)) return "tuple";
  if (PyList_Check(v)) return "list";
  if (PyDict_Check(v)) return "dict";
  if (PyAnySet_Check(v)) return "set";
  if (type == known_types().deque) return "deque";
  if (type == &PyMethod_Type) return "method";
  if (PyCFunction_Check(v)) return "builtin";
  if (type == known_types().partial) return "partial";
  if (PyWeakref_CheckRefExact(v)) return "weak_reference";
  if (PyModule_Check(v)) return "module";
  if (PyCell_Check(v)) return "cell";
  if (type->tp_descr_get != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return "descriptor";
  if (PyLong_Check(v) || PyUnicode_Check(v)) return "value_subclass";
  if (is_array(v)) return "array";
  if (is_tree_spec(v)) return "tree_spec";
  if (type == &PyDictProxy_Type) return "proxy";
  if (is_decimal(v)) return "decimal";
  if (is_decimal_context(v)) return "decimal_context";
  return has_plain_layout(type) || type == known_types().simple_namespace ? "instance" : "opaque";
}

}  // namespace alternator::lift
