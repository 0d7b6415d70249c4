// Which sizes and numbers of pre-existing values are symbols in a trace (fake/backed_symbols.h).
#pragma once

#include "lift/sources/source.h"
#include "shapes/interval.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace alternator::lift {

// torch.compiler.config.dynamic_sources: a pattern of TorchDynamo's names of sources, and a dimension.
struct DynamicSource {
  std::function<bool(const std::string& name)> matches;
  std::optional<uint16_t> dimension;  // none: all
};

struct Dynamism {
  std::unordered_map<std::string, uint64_t> sizes;  // by the text of a tensor's source: a bit for each dimension
  // ... for each stride that does not follow from sizes, and kOffsetBit.
  std::unordered_map<std::string, uint64_t> layouts;
  std::unordered_set<std::string> numbers;  // the texts of the sources of ints and floats
  // The same by the position of a value of the frames at which the trace begins: they were symbols of the trace that
  // ended there.
  std::unordered_map<int64_t, uint64_t> value_sizes;
  std::unordered_set<int64_t> value_numbers;
  bool none = false;  // no symbols at all: a trace with some did not agree with another (dispatch/verify_trace.h)
  bool all = false;   // every size and number that may be one: dynamic=True
  std::vector<DynamicSource> named;
  bool ints = true, floats = true;  // false: such numbers are never symbols
  bool ducks = true;                // sizes that are equal are one symbol where nothing is known of them
  bool parameters = false;          // whether the sizes of parameters may be symbols
  // What is never a symbol, by the text of its source: specialized on whenever it was one.
  std::unordered_map<std::string, uint64_t> static_sizes, static_layouts;
  std::unordered_set<std::string> static_numbers;
  // torch.compile(shapes_spec=...): by the text of a source, the sizes and numbers that are symbols. There are no
  // others then.
  struct Specified {
    int dimension;  // -1: the source is a number
    shapes::Interval range;
  };
  std::optional<std::unordered_map<std::string, std::vector<Specified>>> specified;
  // What cannot be a symbol in this trace, marks or not, and why.
  struct GivenUp {
    uint64_t sizes = 0;
    std::string reason;
    Site site;
  };
  std::unordered_map<std::string, GivenUp> given_up;

  bool has_sizes() const {
    return all || specified || !sizes.empty() || !layouts.empty() || !value_sizes.empty() || !named.empty();
  }
  bool has_numbers() const { return all || specified || !numbers.empty() || !value_numbers.empty() || !named.empty(); }
};

// Why something is a symbol.
enum class WhySymbol : uint8_t { kNone, kChanged, kContinued, kAll, kNamed, kWeakMark, kMark, kSpecified };

}  // namespace alternator::lift
