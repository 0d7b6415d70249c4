#include "fake/flags.h"

#include <ATen/Context.h>

namespace alternator::fake {

namespace {

constexpr int kOrderBits = 4;

int64_t order_now(at::Context& context) {
  int64_t value = 0;
  for (const at::SDPBackend backend : context.sDPPriorityOrder())
    value = (value << kOrderBits) | static_cast<int64_t>(backend);
  return value;
}

int64_t deterministic_now(const at::Context& context) {
  return (context.deterministicAlgorithms() ? 1 : 0) | (context.deterministicAlgorithmsWarnOnly() ? 2 : 0);
}

int64_t precision_now(const at::Context& context, at::Float32Backend backend) {
  return static_cast<int64_t>(context.float32Precision(backend, at::Float32Op::MATMUL));
}

int64_t read(size_t index) {
  at::Context& context = at::globalContext();
  switch (index) {
#define ALT_FLAG(field, group, reading, ...) \
  case Flags::k_##field:                     \
    return static_cast<int64_t>(reading);
#include "fake/flags.def"
#undef ALT_FLAG
    default:
      return 0;
  }
}

void write(size_t index, int64_t value) {
  at::Context& context = at::globalContext();
  switch (index) {
#define ALT_FLAG(field, group, reading, writing, ...) \
  case Flags::k_##field:                              \
    writing;                                          \
    break;
#include "fake/flags.def"
#undef ALT_FLAG
    default:
      break;
  }
}

std::string shown(const FlagRow& row, int64_t value) {
  switch (row.form) {
    case FlagForm::kSwitch:
      return value != 0 ? "on" : "off";
    case FlagForm::kDeterministic:
      return (value & 1) == 0 ? "off" : (value & 2) != 0 ? "on, to warn only" : "on";
    case FlagForm::kMatmulPrecision:
      return matmul_precision_name(value);
    case FlagForm::kCudaPrecision:
    case FlagForm::kMkldnnPrecision:
      return precision_name(value);
    default:
      return std::to_string(value);
  }
}

bool is_precision(size_t index) {
  return index == Flags::k_matmul_precision || index == Flags::k_cuda_precision || index == Flags::k_mkldnn_precision;
}

}  // namespace

std::string matmul_precision_name(int64_t value) {
  static constexpr const char* kNames[] = {"highest", "high", "medium"};
  return kNames[value];
}

std::string precision_name(int64_t value) { return at::precision2str(static_cast<at::Float32Precision>(value)); }

std::vector<int64_t> order_of(int64_t value) {
  std::vector<int64_t> order(at::num_sdp_backends);
  for (size_t i = order.size(); i-- > 0; value >>= kOrderBits) order[i] = value & ((1 << kOrderBits) - 1);
  return order;
}

const std::array<FlagRow, Flags::kCount>& Flags::rows() {
  static constexpr std::array<FlagRow, kCount> kRows{{
#define ALT_FLAG(field, group, reading, writing, getters, setter, form, words) \
  {#field, getters, setter, words, group, FlagForm::form},
#include "fake/flags.def"
#undef ALT_FLAG
  }};
  return kRows;
}

std::optional<Flags> Flags::now() {
  Flags flags;
  try {
    for (size_t i = 0; i < kCount; ++i) flags.values[i] = read(i);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  return flags;
}

void Flags::apply() const {
  bool precise = true;
  for (size_t i = 0; i < kCount; ++i) {
    if (!is_precision(i)) {
      if (read(i) != values[i]) write(i, values[i]);
      continue;
    }
    try {
      precise = precise && read(i) == values[i];
    } catch (const c10::Error&) {
      precise = false;
    }
  }
  for (size_t i = 0; i < kCount && !precise; ++i)
    if (is_precision(i)) write(i, values[i]);
}

bool Flags::hold(uint8_t groups) const noexcept {
  try {
    for (size_t i = 0; i < kCount; ++i)
      if ((rows()[i].group & groups) != 0 && read(i) != values[i]) return false;
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

std::string Flags::mismatch(uint8_t groups) const {
  const std::optional<Flags> other = now();
  if (!other) return "the precision of matrix products was set through both the old and the new API";
  for (size_t i = 0; i < kCount; ++i) {
    const FlagRow& row = rows()[i];
    if ((row.group & groups) != 0 && other->values[i] != values[i])
      return std::string(row.words) + " is " + shown(row, values[i]) + ", not " + shown(row, other->values[i]);
  }
  return {};
}

std::vector<std::string> Flags::texts(uint8_t groups) const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < kCount; ++i)
    if ((rows()[i].group & groups) != 0)
      texts.push_back(std::string(rows()[i].words) + " is " + shown(rows()[i], values[i]));
  return texts;
}

std::vector<uint8_t> Flags::steps_to(const Flags& target) const {
  std::vector<uint8_t> steps;
  bool precision = false;
  for (size_t i = 0; i < kCount; ++i) {
    precision = precision || (is_precision(i) && values[i] != target.values[i]);
    if (!is_precision(i) && values[i] != target.values[i]) steps.push_back(static_cast<uint8_t>(i));
  }
  if (precision) steps.insert(steps.end(), {k_matmul_precision, k_cuda_precision, k_mkldnn_precision});
  return steps;
}

bool Flags::differ_in(const Flags& other, FlagGroup group) const {
  for (size_t i = 0; i < kCount; ++i)
    if (rows()[i].group == group && values[i] != other.values[i]) return true;
  return false;
}

}  // namespace alternator::fake
