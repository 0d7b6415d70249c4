// The operations of BINARY_OP, and their names in the module `operator`.
#pragma once

#include "cpython/version.h"

#include <iterator>

namespace alternator {

inline PyObject* power(PyObject* base, PyObject* exponent) { return PyNumber_Power(base, exponent, Py_None); }
inline PyObject* power_in_place(PyObject* base, PyObject* exponent) {
  return PyNumber_InPlacePower(base, exponent, Py_None);
}

struct BinaryOperation {
  binaryfunc function;
  const char* name;
};

// In the order of BINARY_OP's oparg (opcode.h, NB_ADD ...).
inline constexpr BinaryOperation kBinaryOperations[] = {
    {PyNumber_Add, "add"},
    {PyNumber_And, "and_"},
    {PyNumber_FloorDivide, "floordiv"},
    {PyNumber_Lshift, "lshift"},
    {PyNumber_MatrixMultiply, "matmul"},
    {PyNumber_Multiply, "mul"},
    {PyNumber_Remainder, "mod"},
    {PyNumber_Or, "or_"},
    {power, "pow"},
    {PyNumber_Rshift, "rshift"},
    {PyNumber_Subtract, "sub"},
    {PyNumber_TrueDivide, "truediv"},
    {PyNumber_Xor, "xor"},
    {PyNumber_InPlaceAdd, "iadd"},
    {PyNumber_InPlaceAnd, "iand"},
    {PyNumber_InPlaceFloorDivide, "ifloordiv"},
    {PyNumber_InPlaceLshift, "ilshift"},
    {PyNumber_InPlaceMatrixMultiply, "imatmul"},
    {PyNumber_InPlaceMultiply, "imul"},
    {PyNumber_InPlaceRemainder, "imod"},
    {PyNumber_InPlaceOr, "ior"},
    {power_in_place, "ipow"},
    {PyNumber_InPlaceRshift, "irshift"},
    {PyNumber_InPlaceSubtract, "isub"},
    {PyNumber_InPlaceTrueDivide, "itruediv"},
    {PyNumber_InPlaceXor, "ixor"},
};
static_assert(std::size(kBinaryOperations) == NB_INPLACE_XOR + 1);
inline constexpr size_t kFirstInPlace = NB_INPLACE_ADD;  // the distance from each binary operation to its in-place one

}  // namespace alternator
