// Vector products, and the error checks of torch.linalg.
#include "fake/rules/rules.h"

#include <ATen/ops/_linalg_check_errors_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/linalg_lu_solve_meta_dispatch.h>
#include <ATen/ops/linalg_lu_solve_ops.h>
#include <ATen/ops/vdot_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;

Tensor dot(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(), "D and ", other.dim(),
              "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "dot : expected both vectors to have same dtype, but found ",
              self.scalar_type(), " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [", self.numel(), "] and src [",
              other.numel(), "] to have the same number of elements, but got ", self.numel(), " and ", other.numel(),
              " elements respectively");
  return Maker().contiguous({}, self.scalar_type());
}

// Eager turns a product with conjugates into one without, and conjugates the result lazily.
Tensor dot_of_conjugates(const Tensor& self, const Tensor& other) {
  Tensor result = fake::dot(self, other);
  if (self.is_conj() && other.is_conj()) result.unsafeGetTensorImpl()->_set_conj(true);
  return result;
}
Tensor vdot_of_conjugates(const Tensor& self, const Tensor& other) {
  Tensor result = fake::dot(self, other);
  if (!self.is_conj() && other.is_conj()) result.unsafeGetTensorImpl()->_set_conj(true);
  return result;
}

// Of a matrix without rows eager returns what it adds to, in its own sizes.
Tensor addmv(const Tensor& self, const Tensor& matrix, const Tensor& vector, const at::Scalar&, const at::Scalar&) {
  TORCH_CHECK(matrix.dim() == 2 && vector.dim() == 1 && self.dim() <= 1, "vector + matrix @ vector expected, got ",
              self.dim(), ", ", matrix.dim(), ", ", vector.dim());
  TORCH_CHECK(matrix.size(1) == vector.size(0) && (matrix.size(0) == self.numel() || self.numel() == 1),
              "size mismatch, got input (", self.numel(), "), mat (", matrix.size(0), "x", matrix.size(1), "), vec (",
              vector.size(0), ")");
  const int64_t rows[] = {matrix.size(0)};
  return Maker().contiguous(rows[0] == 0 ? self.sizes() : at::IntArrayRef(rows), vector.scalar_type());
}

// X A = B is solved as A^H X^H = B^H, and the result is conjugated lazily: the meta kernel does not model that.
Tensor lu_solve(const Tensor& factors, const Tensor& pivots, const Tensor& right_side, bool left, bool adjoint) {
  const Maker make;
  Tensor result;
  {
    const AsMeta as_meta;
    result = at::meta::linalg_lu_solve(factors, pivots, right_side, left, adjoint);
  }
  result = make.adopt(result);
  if (!left && result.is_complex() && result.numel() != 0) result.unsafeGetTensorImpl()->_set_conj(true);
  return result;
}

// A singular matrix is a data-dependent error: it is raised when the program runs.
void check_errors(const Tensor&, std::string_view, bool) {}

}  // namespace

void add_linalg_rules(RuleRegistry& rules) {
  rules.add<at::_ops::addmv>(addmv);
  rules.add<at::_ops::dot>(dot_of_conjugates);
  rules.add<at::_ops::vdot>(vdot_of_conjugates);
  rules.add<at::_ops::linalg_lu_solve>(lu_solve);
  rules.add<at::_ops::_linalg_check_errors>(check_errors);
}

}  // namespace alternator::fake
