#include "fake/python_tensor.h"

#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>
#include <type_traits>

namespace alternator::fake {

static_assert(offsetof(PythonTensor, cdata) == offsetof(THPVariable, cdata),
              "torch lays out its Python tensors differently: see fake/python_tensor.h");
static_assert(std::is_same_v<decltype(PythonTensor::cdata), decltype(THPVariable::cdata)>,
              "torch lays out its Python tensors differently: see fake/python_tensor.h");

}  // namespace alternator::fake
