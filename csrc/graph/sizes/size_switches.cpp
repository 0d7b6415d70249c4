#include "graph/sizes/size_switches.h"

#include "py/error.h"
#include "py/switches.h"

#include <cctype>

namespace alternator::graph {

Switches& size_switches() {
  static auto* all = new Switches(
      {
#define ALT_CHANNEL(name) name,
#include "graph/sizes/size_switches.def"
#undef ALT_CHANNEL
#define ALT_READER(kind, name) "reader." name,
#include "graph/sizes/size_readers.def"
#undef ALT_READER
      },
      "ALTERNATOR_WITHOUT_SIZES");
  return *all;
}

bool is_open(std::string_view channel) {
  if constexpr (!kHasMutants) return false;
  return size_switches().is_off(channel);
}

// A place that has no switch would be tested by nothing.
static bool is_open_at(std::string_view prefix, std::string_view place) {
  const std::string name = std::string(prefix) + std::string(place);
  const std::vector<std::string>& names = size_switches().names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw InternalError("size_switches.def has no \"" + name + "\"");
  return size_switches().is_off(name);
}

// The name before the first parameter list: "Sizes alternator::graph::cat(RuleCall&)".
static std::string_view name_of_function(std::string_view signature) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t open = signature.find('('); open != std::string_view::npos; open = signature.find('(', open + 1)) {
    size_t begin = open;
    while (begin > 0 && is_part(signature[begin - 1])) begin--;
    if (begin < open) return signature.substr(begin, open - begin);
  }
  return signature;
}

bool is_open_in_function(std::string_view prefix, const std::source_location& at) {
  if constexpr (!kHasMutants) return false;
  return is_open_at(prefix, name_of_function(at.function_name()));
}

bool is_open_in_file(std::string_view prefix, const std::source_location& at) {
  if constexpr (!kHasMutants) return false;
  std::string_view file = at.file_name();
  file.remove_prefix(file.find_last_of('/') + 1);
  const std::string own = std::string(prefix) + '.' + std::string(file.substr(0, file.find('.')));
  const std::vector<std::string>& names = size_switches().names();
  const bool has_own = std::find(names.begin(), names.end(), own) != names.end();
  return size_switches().is_off(has_own ? std::string_view(own) : prefix);
}

}  // namespace alternator::graph
