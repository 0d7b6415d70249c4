#include "graph/export/fx_names.h"

#include "graph/record/torch_types.h"

#include <cctype>

namespace alternator::graph {
namespace {

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// "conv_3" -> ("conv", 3); "conv2d" has no number.
std::pair<std::string, long> split_number(const std::string& name) {
  size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
  if (digits == name.size() || digits < 2 || name[digits - 1] != '_' || name.size() - digits > 9) return {name, -1};
  return {name.substr(0, digits - 1), std::stol(name.substr(digits))};
}

}  // namespace

FxNames::FxNames() : illegal_(torch_name("torch.fx.graph", "_illegal_names")) {}

bool FxNames::is_illegal(const std::string& name) const {
  return PyDict_GetItemString(illegal_.get(), name.c_str()) != nullptr;
}

std::string FxNames::create(std::string candidate) {
  for (char& c : candidate)
    if (!is_name_char(c)) c = '_';
  if (candidate.empty()) candidate = "_unnamed";
  if (std::isdigit(static_cast<unsigned char>(candidate[0]))) candidate.insert(0, "_");

  auto [base, number] = split_number(candidate);
  const bool known = used_.count(candidate) != 0;
  if (number < 0 || known) {
    const auto count = counts_.find(base);
    number = count == counts_.end() ? 0 : count->second;
    if (!known && is_illegal(candidate)) candidate = base + "_" + std::to_string(++number);
  }
  while (used_.count(candidate) != 0) candidate = base + "_" + std::to_string(++number);
  used_.insert(candidate);
  counts_[base] = static_cast<uint32_t>(number);
  return candidate;
}

std::string FxNames::identifier(std::string_view label) {
  std::string name;
  for (char c : label) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      name += c;
    } else if (name.empty() || name.back() != '_') {
      name += '_';
    }
  }
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, "_");
  return name;
}

std::string FxNames::snake_case(std::string_view name) {
  std::string result;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (i > 0 && std::isupper(c) && std::islower(static_cast<unsigned char>(name[i - 1]))) result += '_';
    result += static_cast<char>(std::tolower(c));
  }
  return result;
}

}  // namespace alternator::graph
