// Convolutions: torch chooses the backend, the backend decides the memory format of the output.
#include "fake/rules/rules.h"

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>

namespace alternator::fake {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// A single value applies to all dimensions.
Sizes spread(c10::SymIntArrayRef values, size_t rank) {
  Sizes result = concrete(values);
  if (result.size() == 1 && rank > 1) result.assign(rank, result[0]);
  return result;
}

// A channels-last tensor of rank 3 would be the 4-d view of it that torch convolves, without the leading dimension.
at::MemoryFormat output_format(const Tensor& input, const Tensor& weight, at::native::ConvBackend backend) {
  if (input.dim() < 4) return at::MemoryFormat::Contiguous;
  return at::native::_determine_backend_memory_format(input, weight, backend);
}

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, c10::SymIntArrayRef stride,
                   c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                   c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const Maker make;
  // An unbatched input gets a batch dimension for the duration of the call.
  const bool batched = input.dim() == weight.dim();
  const int64_t rank = weight.dim() - 2;
  TORCH_CHECK(rank > 0, "weight should have at least three dimensions");
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.toString(), ") and weight type (",
              weight.toString(), ") should be the same");
  TORCH_CHECK(!bias.has_value() || !bias->defined() || input.scalar_type() == bias->scalar_type(), "Input type (",
              input.toString(), ") and bias type (", bias.has_value() && bias->defined() ? bias->toString() : "",
              ") should be the same");
  const Tensor whole = batched ? input : input.unsqueeze(0);
  // Also checks sizes and channels, with eager's messages.
  const at::native::ConvBackend backend = at::native::select_conv_backend(
      whole, weight, bias, stride, padding, dilation, transposed, output_padding, groups, std::nullopt);
  const Sizes strides = spread(stride, rank), paddings = spread(padding, rank), dilations = spread(dilation, rank),
              output_paddings = spread(output_padding, rank);
  std::vector<int64_t> sizes =
      transposed ? at::native::conv_input_size(whole.sizes(), weight.sizes(), paddings, output_paddings, strides,
                                               dilations, groups.expect_int())
                 : at::native::conv_output_size(whole.sizes(), weight.sizes(), paddings, strides, dilations);
  if (whole.size(1) == 0) sizes[1] = 0;
  for (const int64_t size : sizes)
    TORCH_CHECK(size >= 0, "Calculated output size is too small: ", at::IntArrayRef(sizes));
  const at::MemoryFormat format = output_format(whole, weight, backend);
  const at::IntArrayRef kept = at::IntArrayRef(sizes).slice(batched ? 0 : 1);
  if (batched) return make.formatted(kept, input.scalar_type(), format);
  const Tensor output = make.formatted(sizes, input.scalar_type(), format);
  return output.squeeze(0);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                        at::OptionalSymIntArrayRef, c10::SymIntArrayRef stride,
                                                        c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                                                        bool transposed, c10::SymIntArrayRef output_padding,
                                                        c10::SymInt groups, std::array<bool, 3> mask) {
  const Maker make;
  const at::native::ConvBackend backend = at::native::select_conv_backend(
      input, weight, std::nullopt, stride, padding, dilation, transposed, output_padding, groups, std::nullopt);
  const at::MemoryFormat format = output_format(input, weight, backend);
  const int64_t channels[] = {grad.size(1)};
  return {mask[0] ? make.formatted(input.sizes(), grad.scalar_type(), format) : Tensor(),
          mask[1] ? make.formatted(weight.sizes(), grad.scalar_type(), format) : Tensor(),
          mask[2] ? make.contiguous(channels, grad.scalar_type()) : Tensor()};
}

}  // namespace

void add_convolution_rules(RuleRegistry& rules) {
  rules.add<at::_ops::convolution>(convolution);
  rules.add<at::_ops::convolution_backward>(convolution_backward);
}

}  // namespace alternator::fake
