// Process-wide flags of torch that decide which kernels a call runs: which attention, which precision.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace alternator::fake {

// The groups that a program depends on: reading all flags takes time.
enum FlagGroup : uint8_t {
  kAttention = 1,  // the choice is made while a graph is compiled
  kKernels = 2,    // ... when it runs
};

enum class FlagForm : uint8_t {
  kSwitch,         // True or False
  kOrder,          // a list of five ints
  kDeterministic,  // a mode, and a keyword argument
  kReduction,      // two switches
  kMatmulPrecision,
  kCudaPrecision,
  kMkldnnPrecision,
};

struct FlagRow {
  const char *field, *getters, *setter, *words;
  FlagGroup group;
  FlagForm form;
};

struct Flags {
  enum Index : uint8_t {
#define ALT_FLAG(field, ...) k_##field,
#include "fake/flags.def"
#undef ALT_FLAG
    kCount
  };
  std::array<int64_t, kCount> values{};

  bool operator==(const Flags&) const = default;
  static const std::array<FlagRow, kCount>& rows();
  // None: torch cannot report them, since they were set through both the old and the new API.
  static std::optional<Flags> now();
  void apply() const;
  // Of these groups: whether they have these values now; the first one that has not.
  bool hold(uint8_t groups) const noexcept;
  std::string mismatch(uint8_t groups) const;
  std::vector<std::string> texts(uint8_t groups) const;
  // The flags to set to get to `target`, in order.
  std::vector<uint8_t> steps_to(const Flags& target) const;
  bool differ_in(const Flags& other, FlagGroup group) const;
};

// As torch's functions take them.
std::string matmul_precision_name(int64_t value);
std::string precision_name(int64_t value);
std::vector<int64_t> order_of(int64_t value);

}  // namespace alternator::fake
