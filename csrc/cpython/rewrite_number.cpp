#include "cpython/rewrite_number.h"

#include "py/error.h"

#include <cstring>

namespace alternator::cpython {

static void rewrite_digits(PyLongObject* number, const PyLongObject* value) {
#if PY_VERSION_HEX >= 0x030C0000
  const size_t digits = value->long_value.lv_tag >> 3;
  number->long_value.lv_tag = value->long_value.lv_tag;
  std::memcpy(number->long_value.ob_digit, value->long_value.ob_digit, digits * sizeof(digit));
  if (digits == 0) number->long_value.ob_digit[0] = 0;
#else
  const Py_ssize_t size = Py_SIZE(value), digits = size < 0 ? -size : size;
  ALT_CHECK(digits <= (Py_SIZE(number) < 0 ? -Py_SIZE(number) : Py_SIZE(number)), "a number has too many digits");
  std::memcpy(number->ob_digit, value->ob_digit, static_cast<size_t>(digits) * sizeof(digit));
  if (digits == 0) number->ob_digit[0] = 0;
  Py_SET_SIZE(number, size);
#endif
}

void rewrite_number(PyObject* number, PyObject* value) {
  if (PyFloat_Check(number)) {
    reinterpret_cast<PyFloatObject*>(number)->ob_fval = PyFloat_AS_DOUBLE(value);
    Py_SET_TYPE(number, &PyFloat_Type);
    return;
  }
  rewrite_digits(reinterpret_cast<PyLongObject*>(number), reinterpret_cast<PyLongObject*>(value));
  Py_SET_TYPE(number, &PyLong_Type);
}

}  // namespace alternator::cpython
