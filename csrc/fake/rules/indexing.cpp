// Embeddings and selections by index.
#include "fake/constants.h"
#include "fake/fake_errors.h"
#include "fake/rules/rules.h"

#include <ATen/ops/_shape_as_tensor_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/one_hot_ops.h>
#include <ATen/ops/roll_ops.h>
#include <ATen/ops/tensor.h>

namespace alternator::fake {
namespace {

using at::Tensor;

void check_index_type(const Tensor& indices, const char* op) {
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt, op,
              ": expected indices of type Long or Int, but got ", indices.scalar_type());
}

Tensor embedding(const Tensor& weight, const Tensor& indices, c10::SymInt, bool, bool) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  check_index_type(indices, "embedding");
  Sizes sizes = sizes_of(indices);
  sizes.push_back(weight.size(1));
  return Maker().contiguous(sizes, weight.scalar_type());
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, c10::SymInt rows, c10::SymInt, bool) {
  check_index_type(indices, "embedding_dense_backward");
  const int64_t sizes[] = {rows.expect_int(), grad.size(-1)};
  return Maker().contiguous(sizes, grad.scalar_type());
}

Tensor one_hot(const Tensor& self, int64_t classes) {
  TORCH_CHECK(self.scalar_type() == at::kLong, "one_hot is only applicable to index tensor of type LongTensor.");
  if (classes == -1)
    fail(FailureKind::DataDependent, "aten::one_hot", "the number of classes depends on the data of a tensor");
  TORCH_CHECK(classes > 0 || (classes == 0 && self.numel() == 0), "num_classes should be positive");
  Sizes sizes = sizes_of(self);
  sizes.push_back(classes);
  return Maker().contiguous(sizes, at::kLong);
}

// Its value is known, as the shape is.
Tensor shape_as_tensor(const Tensor& self) {
  const SessionState& session = *SessionState::current();
  const Inactive inactive;
  return make_constant(session, at::tensor(self.sizes(), at::kLong));
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  TORCH_CHECK(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  check_index_type(index, "index_select()");
  Sizes sizes = sizes_of(self);
  dim = wrap(dim, self.dim());
  if (!sizes.empty()) sizes[dim] = index.numel();
  return Maker().contiguous(sizes, self.scalar_type());
}

// On the CPU a copy of two parts along each dimension, which keeps their memory format; elsewhere contiguous.
Tensor roll(const Tensor& self, c10::SymIntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  TORCH_CHECK((dims.empty() && shifts.size() == 1) || shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  const Maker make;
  if (dims.empty() || make.device().type() != c10::DeviceType::CPU) {
    for (const int64_t dim : dims) wrap(dim, self.dim());
    return make.contiguous(self.sizes(), self.scalar_type());
  }
  Tensor rolled = self;
  for (size_t i = 0; i < dims.size(); i++) {
    const int64_t size = rolled.size(dims[i]);
    if (rolled.numel() == 0) {
      rolled = make.like(rolled);
      continue;
    }
    const int64_t start = (size - shifts[i].expect_int() % size) % size;
    rolled = at::cat({rolled.narrow(dims[i], start, size - start), rolled.narrow(dims[i], 0, start)}, dims[i]);
  }
  return rolled;
}

}  // namespace

void add_indexing_rules(RuleRegistry& rules) {
  rules.add<at::_ops::embedding>(embedding);
  rules.add<at::_ops::embedding_dense_backward>(embedding_dense_backward);
  rules.add<at::_ops::index_select>(index_select);
  rules.add<at::_ops::one_hot>(one_hot);
  rules.add<at::_ops::_shape_as_tensor>(shape_as_tensor);
  rules.add<at::_ops::roll>(roll);
}

}  // namespace alternator::fake
