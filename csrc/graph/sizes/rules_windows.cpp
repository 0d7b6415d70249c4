// Convolutions, pools, padding, resizing.
#include "graph/sizes/rule_call.h"

#include <algorithm>
#include <cmath>

namespace alternator::graph {

using shapes::Expression;

namespace {

// One number for each of `count` dimensions: given as one, or as that many. Nothing: not given, or an empty sequence.
std::optional<Sizes> per_dimension(RuleCall& call, uint32_t position, std::string_view names, size_t count) {
  const std::optional<Value> value = call.find(position, names);
  if (!value) return std::nullopt;
  Sizes numbers;
  if (value->kind() == ValueKind::Tuple || value->kind() == ValueKind::List) {
    for (const Value item : call.children(*value)) numbers.push_back(call.number_of(item));
    if (numbers.empty()) return std::nullopt;
  } else {
    numbers.push_back(call.number_of(*value));
  }
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  RuleCall::check(numbers.size() == count);
  return numbers;
}

Sizes per_dimension(RuleCall& call, uint32_t position, std::string_view names, size_t count, int64_t otherwise) {
  std::optional<Sizes> given = per_dimension(call, position, names, count);
  return given ? std::move(*given) : Sizes(count, call.constant(otherwise));
}

struct Window {
  Expression kernel, stride, padding, dilation;
};

// size + 2 * padding - dilation * (kernel - 1) - 1
Expression span(RuleCall& call, Expression size, const Window& window) {
  shapes::ShapeEnvironment& environment = call.environment();
  const Expression reach = environment.multiply(window.dilation, environment.subtract(window.kernel, call.constant(1)));
  const Expression padded = environment.add(size, environment.scale(window.padding, 2));
  return environment.subtract(environment.subtract(padded, reach), call.constant(1));
}

Expression windows(RuleCall& call, Expression size, const Window& window, bool rounds_up = false) {
  shapes::ShapeEnvironment& environment = call.environment();
  const Expression reach = span(call, size, window);
  if (!rounds_up) {
    return environment.add(environment.floor_divide(reach, window.stride), call.constant(1));
  }
  const Expression count = environment.add(call.ceil_divide(reach, window.stride), call.constant(1));
  // The last one begins within the size or the padding before it.
  const Expression begin = environment.multiply(environment.subtract(count, call.constant(1)), window.stride);
  if (!call.holds(environment.less_equal(environment.add(size, window.padding), begin))) return count;
  return environment.subtract(count, call.constant(1));
}

size_t first_window(const Sizes& sizes, size_t count) {
  RuleCall::check(sizes.size() == count + 1 || sizes.size() == count + 2);
  return sizes.size() - count;
}

// conv(input, weight, bias, stride, padding, dilation, groups)
Sizes convolve(RuleCall& call, size_t count) {
  Sizes sizes = call.sizes(0, "input");
  const Sizes weight = call.sizes(1, "weight");
  call.ignore(2, "bias");
  const Sizes stride = per_dimension(call, 3, "stride", count, 1);
  const Sizes dilation = per_dimension(call, 5, "dilation", count, 1);
  call.ignore(6, "groups");
  const size_t first = first_window(sizes, count);
  RuleCall::check(weight.size() == count + 2);
  sizes[first - 1] = weight[0];
  const std::optional<Value> padding = call.find(4, "padding");
  PyObject* text = padding && padding->kind() == ValueKind::Object ? call.object(*padding).get() : nullptr;
  if (text != nullptr && PyUnicode_Check(text)) {
    if (PyUnicode_CompareWithASCIIString(text, "same") == 0) return sizes;
    RuleCall::check(PyUnicode_CompareWithASCIIString(text, "valid") == 0);
    text = nullptr;
    for (size_t i = 0; i < count; i++) {
      sizes[first + i] = windows(call, sizes[first + i], {weight[2 + i], stride[i], call.constant(0), dilation[i]});
    }
    return sizes;
  }
  const Sizes around = per_dimension(call, 4, "padding", count, 0);
  for (size_t i = 0; i < count; i++) {
    sizes[first + i] = windows(call, sizes[first + i], {weight[2 + i], stride[i], around[i], dilation[i]});
  }
  return sizes;
}

// conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)
Sizes convolve_back(RuleCall& call, size_t count) {
  shapes::ShapeEnvironment& environment = call.environment();
  Sizes sizes = call.sizes(0, "input");
  const Sizes weight = call.sizes(1, "weight");
  call.ignore(2, "bias");
  const Sizes stride = per_dimension(call, 3, "stride", count, 1);
  const Sizes padding = per_dimension(call, 4, "padding", count, 0);
  const Sizes more = per_dimension(call, 5, "output_padding", count, 0);
  const int64_t groups = call.integer(6, "groups", 1);
  const Sizes dilation = per_dimension(call, 7, "dilation", count, 1);
  const size_t first = first_window(sizes, count);
  RuleCall::check(weight.size() == count + 2);
  sizes[first - 1] = environment.scale(weight[1], groups);
  for (size_t i = 0; i < count; i++) {
    Expression size = environment.multiply(environment.subtract(sizes[first + i], call.constant(1)), stride[i]);
    size = environment.subtract(size, environment.scale(padding[i], 2));
    const Expression reach = environment.multiply(dilation[i], environment.subtract(weight[2 + i], call.constant(1)));
    size = environment.add(environment.add(size, reach), environment.add(more[i], call.constant(1)));
    sizes[first + i] = size;
  }
  return sizes;
}

// max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices), avg_pool without a dilation
Sizes pool(RuleCall& call, size_t count, bool has_dilation) {
  Sizes sizes = call.sizes(0, "input|self");
  const std::optional<Sizes> kernel = per_dimension(call, 1, "kernel_size", count);
  RuleCall::check(kernel.has_value());
  const Sizes stride = per_dimension(call, 2, "stride", count).value_or(*kernel);
  const Sizes padding = per_dimension(call, 3, "padding", count, 0);
  const Sizes dilation = has_dilation ? per_dimension(call, 4, "dilation", count, 1) : Sizes(count, call.constant(1));
  const bool rounds_up = call.flag(has_dilation ? 5 : 4, "ceil_mode", false);
  call.ignore_rest();  // return_indices, count_include_pad, divisor_override
  const size_t first = first_window(sizes, count);
  for (size_t i = 0; i < count; i++) {
    const Window window{(*kernel)[i], stride[i], padding[i], dilation[i]};
    sizes[first + i] = windows(call, sizes[first + i], window, rounds_up);
  }
  return sizes;
}

// adaptive_pool(input, output_size): None keeps a size.
Sizes pool_to(RuleCall& call, size_t count) {
  Sizes sizes = call.sizes(0, "input|self");
  const Value output = call.require(1, "output_size");
  call.ignore(2, "return_indices");
  const size_t first = first_window(sizes, count);
  std::vector<Value> wanted{output};
  if (output.kind() == ValueKind::Tuple || output.kind() == ValueKind::List) wanted = call.children(output);
  if (wanted.size() == 1) wanted.resize(count, wanted[0]);
  RuleCall::check(wanted.size() == count);
  for (size_t i = 0; i < count; i++) {
    if (!call.is_none(wanted[i])) sizes[first + i] = call.number_of(wanted[i]);
  }
  return sizes;
}

}  // namespace

Sizes conv1d(RuleCall& call) { return convolve(call, 1); }
Sizes conv2d(RuleCall& call) { return convolve(call, 2); }
Sizes conv3d(RuleCall& call) { return convolve(call, 3); }
Sizes conv_transpose1d(RuleCall& call) { return convolve_back(call, 1); }
Sizes conv_transpose2d(RuleCall& call) { return convolve_back(call, 2); }
Sizes conv_transpose3d(RuleCall& call) { return convolve_back(call, 3); }
Sizes max_pool1d(RuleCall& call) { return pool(call, 1, true); }
Sizes max_pool2d(RuleCall& call) { return pool(call, 2, true); }
Sizes max_pool3d(RuleCall& call) { return pool(call, 3, true); }
Sizes avg_pool1d(RuleCall& call) { return pool(call, 1, false); }
Sizes avg_pool2d(RuleCall& call) { return pool(call, 2, false); }
Sizes avg_pool3d(RuleCall& call) { return pool(call, 3, false); }
Sizes pool_to_1d(RuleCall& call) { return pool_to(call, 1); }
Sizes pool_to_2d(RuleCall& call) { return pool_to(call, 2); }
Sizes pool_to_3d(RuleCall& call) { return pool_to(call, 3); }

// pad(x, (left, right, top, bottom, ...)): from the last dimension on
Sizes pad(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input");
  const std::vector<Value> amounts = call.items(1, "pad");
  call.ignore(2, "mode");
  call.ignore(3, "value");
  RuleCall::check(amounts.size() % 2 == 0 && amounts.size() / 2 <= sizes.size());
  for (size_t i = 0; i < amounts.size(); i++) {
    Expression& size = sizes[sizes.size() - 1 - i / 2];
    size = call.environment().add(size, call.number_of(amounts[i]));
  }
  return sizes;
}

// interpolate(x, size, scale_factor, ...): by whole numbers, or their reciprocals where those are exact
Sizes interpolate(RuleCall& call) {
  Sizes sizes = call.sizes(0, "input");
  RuleCall::check(sizes.size() >= 3);
  const size_t count = sizes.size() - 2;
  if (const std::optional<Sizes> wanted = per_dimension(call, 1, "size", count)) {
    std::copy(wanted->begin(), wanted->end(), sizes.begin() + 2);
    call.ignore_rest();
    return sizes;
  }
  const Value factor = call.require(2, "scale_factor");
  call.ignore_rest();
  std::vector<Value> factors{factor};
  if (factor.kind() == ValueKind::Tuple || factor.kind() == ValueKind::List) factors = call.children(factor);
  if (factors.size() == 1) factors.resize(count, factors[0]);
  RuleCall::check(factors.size() == count);
  for (size_t i = 0; i < count; i++) {
    RuleCall::check(factors[i].kind() == ValueKind::Object);
    PyObject* number = call.object(factors[i]).get();
    RuleCall::check(PyFloat_CheckExact(number) || PyLong_CheckExact(number));
    const double by = PyFloat_CheckExact(number) ? PyFloat_AS_DOUBLE(number) : PyLong_AsDouble(number);
    constexpr double kMost = 1 << 20;
    RuleCall::check(by >= 1 / kMost && by <= kMost);
    if (by == std::floor(by)) {
      sizes[2 + i] = call.environment().scale(sizes[2 + i], static_cast<int64_t>(by));
    } else {
      const double inverse = 1 / by;
      int exponent = 0;
      RuleCall::check(inverse == std::floor(inverse) && std::frexp(by, &exponent) == 0.5);
      sizes[2 + i] = call.environment().floor_divide(sizes[2 + i], call.constant(static_cast<int64_t>(inverse)));
    }
  }
  return sizes;
}

// Sizes of images, last [channels, height, width], and the factor.
static std::pair<Sizes, int64_t> pixels(RuleCall& call, std::string_view name) {
  std::pair<Sizes, int64_t> found{call.sizes(0, "input|self"), call.integer(1, name)};
  RuleCall::check(found.first.size() >= 3 && found.second > 0 && found.second <= INT16_MAX);
  return found;
}

static Expression exact_quotient(RuleCall& call, Expression size, int64_t divisor) {
  return call.environment().floor_divide(size, call.constant(divisor));
}

Sizes pixel_shuffle(RuleCall& call) {
  auto [sizes, factor] = pixels(call, "upscale_factor");
  const size_t rank = sizes.size();
  sizes[rank - 3] = exact_quotient(call, sizes[rank - 3], factor * factor);
  for (const size_t d : {rank - 2, rank - 1}) sizes[d] = call.environment().scale(sizes[d], factor);
  return sizes;
}

Sizes pixel_unshuffle(RuleCall& call) {
  auto [sizes, factor] = pixels(call, "downscale_factor");
  const size_t rank = sizes.size();
  sizes[rank - 3] = call.environment().scale(sizes[rank - 3], factor * factor);
  for (const size_t d : {rank - 2, rank - 1}) sizes[d] = exact_quotient(call, sizes[d], factor);
  return sizes;
}

// F.unfold(x, kernel_size, dilation, padding, stride): a column for each window
Sizes unfold_windows(RuleCall& call) {
  const Sizes sizes = call.sizes(0, "input");
  const std::optional<Sizes> kernel = per_dimension(call, 1, "kernel_size", 2);
  const Sizes dilation = per_dimension(call, 2, "dilation", 2, 1);
  const Sizes padding = per_dimension(call, 3, "padding", 2, 0);
  const Sizes stride = per_dimension(call, 4, "stride", 2, 1);
  RuleCall::check(kernel.has_value());
  const size_t first = first_window(sizes, 2);
  Expression columns = call.constant(1);
  for (size_t i = 0; i < 2; i++) {
    const Window window{(*kernel)[i], stride[i], padding[i], dilation[i]};
    columns = call.environment().multiply(columns, windows(call, sizes[first + i], window));
  }
  Sizes unfolded(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(first) - 1);
  unfolded.push_back(call.environment().multiply(sizes[first - 1], call.product(*kernel)));
  unfolded.push_back(columns);
  return unfolded;
}

}  // namespace alternator::graph
