// Fourier transforms. Their results are not contiguous: each library transforms a batch of dense signals, and the
// result keeps the order in which it processed the dimensions. Torch's meta functions had that order wrong before 2.13.
#include "fake/rules/rules.h"

#include <ATen/Context.h>
#include <ATen/ops/_fft_c2c_ops.h>
#include <ATen/ops/_fft_c2r_ops.h>
#include <ATen/ops/_fft_r2c_ops.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace alternator::fake {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Dims = std::vector<int64_t>;

// A tensor's sizes and strides between two transforms.
struct Laid {
  Dims sizes, strides;
};

Laid laid(const Tensor& tensor) { return {tensor.sizes().vec(), tensor.strides().vec()}; }
Laid contiguous(IntArrayRef sizes) {
  Laid result{sizes.vec(), Dims(sizes.size(), 0)};
  int64_t stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0; stride *= std::max<int64_t>(sizes[dim], 1)) result.strides[dim] = stride;
  return result;
}

void sort_outermost_first(Dims::iterator begin, Dims::iterator end, const Laid& by) {
  std::sort(begin, end, [&](int64_t a, int64_t b) { return by.strides[a] > by.strides[b]; });
}

// The result of one call of MKL or cuFFT: the batch outermost, in the order of the input's strides; the signal dense
// innermost, in the order of `dims`. The same algorithms as in torch, so that equal strides are ordered the same.
Laid transformed(const Laid& input, IntArrayRef sizes, IntArrayRef dims) {
  const size_t rank = input.sizes.size();
  Dims order(rank);
  std::iota(order.begin(), order.end(), 0);
  const auto batch_end =
      std::ranges::partition(order, [&](int64_t dim) { return std::ranges::find(dims, dim) == dims.end(); }).begin();
  sort_outermost_first(order.begin(), batch_end, input);
  std::ranges::copy(dims, batch_end);
  Laid result{sizes.vec(), Dims(rank, 0)};
  int64_t stride = 1;
  size_t at = rank;
  for (; at > rank - dims.size(); at--) {
    result.strides[order[at - 1]] = stride;
    stride *= std::max<int64_t>(sizes[order[at - 1]], 1);
  }
  for (; at > 0; at--) {
    result.strides[order[at - 1]] = stride;
    stride *= sizes[order[at - 1]];
  }
  return result;
}

constexpr size_t kMostDimsOfCufft = 3;

bool in_one_go(IntArrayRef dims) {
  const bool outermost_two = dims.size() >= 2 && dims[0] == 0 && dims[1] == 1;
  return dims.size() <= kMostDimsOfCufft && !outermost_two;
}

// The innermost dimensions first, as many as cuFFT takes at a time; sorted again each time.
Laid transformed_in_steps(Laid tensor, IntArrayRef sizes, Dims dims) {
  while (!dims.empty()) {
    sort_outermost_first(dims.begin(), dims.end(), tensor);
    const size_t count = std::min(kMostDimsOfCufft, dims.size());
    const size_t rest = dims.size() - count;
    tensor = transformed(tensor, sizes, IntArrayRef(dims).slice(rest, count));
    dims.resize(rest);
  }
  return tensor;
}

enum class Library { kMkl, kPocketfft, kCufft };

Library library_of(const Maker& make) {
  if (make.device().is_cuda()) return Library::kCufft;
  return at::globalContext().hasMKL() ? Library::kMkl : Library::kPocketfft;
}

Laid complex_to_complex(Library library, const Laid& self, IntArrayRef dims) {
  if (library == Library::kPocketfft) return contiguous(self.sizes);
  Dims sorted = dims.vec();
  if (library == Library::kCufft) return transformed_in_steps(self, self.sizes, std::move(sorted));
  sort_outermost_first(sorted.begin(), sorted.end(), self);
  return transformed(self, self.sizes, sorted);
}

void check_dims(const Tensor& self, IntArrayRef dims) {
  for (int64_t dim : dims) {
    TORCH_CHECK(dim >= 0 && dim < self.dim() && std::ranges::count(dims, dim) == 1,
                "no dimensions of a transform: ", dims);
  }
}

Tensor made(const Maker& make, const Laid& result, at::ScalarType dtype) {
  return make.strided(result.sizes, result.strides, dtype);
}

Tensor fft_c2c(const Tensor& self, c10::SymIntArrayRef dim, int64_t, bool) {
  TORCH_CHECK(self.is_complex());
  const Maker make;
  if (dim.empty()) return make.like(self);
  const Sizes dims = concrete(dim);
  check_dims(self, dims);
  return made(make, complex_to_complex(library_of(make), laid(self), dims), self.scalar_type());
}

Tensor fft_r2c(const Tensor& self, IntArrayRef dims, int64_t, bool onesided) {
  TORCH_CHECK(self.is_floating_point() && !dims.empty());
  check_dims(self, dims);
  const Maker make;
  const Library library = library_of(make);
  const int64_t last = dims.back();
  Laid input = laid(self);
  Dims half = input.sizes;
  half[last] = half[last] / 2 + 1;
  const Dims& sizes = onesided ? half : input.sizes;
  Laid result;
  if (library == Library::kPocketfft) {
    result = contiguous(sizes);
  } else if (library == Library::kMkl) {
    Dims sorted = dims.vec();
    sort_outermost_first(sorted.begin(), sorted.end() - 1, input);
    result = transformed(input, sizes, sorted);
  } else {
    if (self.storage_offset() % 2 != 0) {
      // cuFFT requires real data to be aligned like complex data: they are copied, the last transformed dimension
      // innermost.
      Dims order(input.sizes.size());
      std::iota(order.begin(), order.end(), 0);
      std::rotate(order.begin() + last, order.begin() + last + 1, order.end());
      int64_t stride = 1;
      for (size_t at = order.size(); at-- > 0; stride *= std::max<int64_t>(input.sizes[order[at]], 1)) {
        input.strides[order[at]] = stride;
      }
    }
    if (in_one_go(dims)) {
      result = transformed(input, sizes, dims);
    } else {
      result = transformed(input, dims.size() == 1 ? sizes : half, last);
      result = transformed_in_steps(std::move(result), half, Dims(dims.begin(), dims.end() - 1));
      if (result.sizes[last] != sizes[last]) result = contiguous(sizes);
    }
  }
  return made(make, result, c10::toComplexType(self.scalar_type()));
}

Tensor fft_c2r(const Tensor& self, IntArrayRef dims, int64_t, c10::SymInt last_size) {
  TORCH_CHECK(self.is_complex() && !dims.empty());
  check_dims(self, dims);
  const Maker make;
  const Library library = library_of(make);
  const IntArrayRef first = dims.slice(0, dims.size() - 1), last = dims.slice(dims.size() - 1);
  Laid input = laid(self);
  Dims sizes = input.sizes;
  sizes[last[0]] = last_size.expect_int();
  Laid result;
  if (library == Library::kPocketfft) {
    result = contiguous(sizes);
  } else if (library == Library::kCufft && (first.empty() || in_one_go(dims))) {
    // The transform may overwrite its input: it gets a contiguous copy.
    result = transformed(contiguous(input.sizes), sizes, dims);
  } else {
    if (!first.empty()) input = complex_to_complex(library, input, first);
    result = transformed(input, sizes, last);
  }
  return made(make, result, c10::toRealValueType(self.scalar_type()));
}

}  // namespace

void add_fourier_rules(RuleRegistry& rules) {
  rules.add_of_devices<at::_ops::_fft_c2c>(fft_c2c);
  rules.add_of_devices<at::_ops::_fft_r2c>(fft_r2c);
  rules.add_of_devices<at::_ops::_fft_c2r>(fft_c2r);
}

}  // namespace alternator::fake
