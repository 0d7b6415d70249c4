// Which sizes and numbers of pre-existing values are symbols in a trace (fake/backed_symbols.h).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace alternator::lift {

struct Dynamism {
  std::unordered_map<std::string, uint64_t> sizes;  // by the text of a tensor's source: a bit for each dimension
  std::unordered_set<std::string> numbers;          // the texts of the sources of ints and floats
  bool none = false;  // no symbols at all: a trace with some did not agree with another (dispatch/verify_trace.h)
  bool all = false;                                 // every size and number that may be one: dynamic=True
  // What is never a symbol, by the text of its source: marked static, or specialized on whenever it was one.
  std::unordered_map<std::string, uint64_t> static_sizes;
  std::unordered_set<std::string> static_numbers;
};

}  // namespace alternator::lift
