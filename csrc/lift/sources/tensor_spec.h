// What a guard checks of a tensor: all metadata that influences what torch does with it.
//
// Not included: .grad (kGrad is a source of its own), the version, grad_fn, attributes, the storage. Hooks and the
// storage offset only on demand. Code that lets a program read one of those adds a guard on it.
#pragma once

#include "py/error.h"

#include <ATen/core/Tensor.h>
#include "fake/python_tensor.h"
#include "lift/sources/dimension_marks.h"
#include "lift/sources/stride_rules.h"

#include <optional>
#include <string>
#include <vector>

namespace alternator::lift {

// Cheaper than THPVariable_Check, which calls into the metaclass.
inline bool is_tensor(Borrowed object) {
  return PyObject_TypeCheck(object.get(), reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

// Among bits for the strides of a tensor: its storage offset.
inline constexpr uint16_t kOffsetBit = 63;

struct TensorSpec {
  Ref type;                  // of the Python object
  c10::DispatchKeySet keys;  // includes layout, conjugate and negative bits, inference, __torch_dispatch__
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::kCPU;
  c10::Layout layout = c10::kStrided;
  bool has_geometry = true;  // false (nested, symbolic, ...): matches no tensor, not even itself
  bool requires_grad = false;
  bool is_leaf = true;
  bool is_wrapped_number = false;
  bool has_tangent = false;  // of forward-mode AD
  // If it requires grad, whether and how it is a view decides which in-place operations are allowed.
  bool is_view = false;
  bool base_is_leaf = false;
  uint8_t view_origin = 0;  // torch::autograd::CreationMeta
  std::vector<int64_t> sizes, strides;
  // Bit d: dimension d has any size. Symbols of the guard program read such sizes (fake/backed_symbols.h).
  uint64_t free_sizes = 0;
  StrideRules stride_rules;       // if a size or a stride is free; empty: all are as they were
  std::optional<int64_t> offset;  // into the storage; only if it was read
  // The dimensions that were marked as dynamic. A tensor with further marks does not match, unless such sizes are free.
  uint64_t marks = 0;
  bool reads_marks = false;    // false: marks mean nothing
  bool without_hooks = false;  // no hook sees its gradient; only if that matters

  bool operator==(const TensorSpec&) const = default;

  // Nanoseconds; reads fields of the TensorImpl only.
  bool matches(const at::Tensor& tensor, PyTypeObject* python_type) const noexcept;
  bool matches(PyObject* object) const noexcept {
    return is_tensor(object) && matches(fake::unpack(object), Py_TYPE(object)) &&
           (!reads_marks || (dynamic_marks_of(object) & ~(marks | free_sizes)) == 0);
  }
  // If the tensor differs in sizes, strides and offset only: a bit for each size that does, and for each stride that
  // does and follows from no size, or kOffsetBit.
  struct Difference {
    uint64_t sizes = 0, layout = 0;
  };
  Difference difference(PyObject* object) const;
  // "a torch.nn.parameter.Parameter of dtype float32, of size [2, 3], on cpu, requiring grad"
  std::string text() const;
  // The part of text() in which this one differs from another.
  std::string text_against(const TensorSpec& other) const;
};

TensorSpec describe_tensor(Borrowed tensor);

// Stands for a tensor among the expected keys of a dict; other guards check which one it is.
PyObject* any_tensor();
// ... and for a key that has its own guards.
PyObject* any_key();

}  // namespace alternator::lift
