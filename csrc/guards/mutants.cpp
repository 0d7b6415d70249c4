#include "guards/mutants.h"

#include "lift/source.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace alternator::guards {

std::vector<std::string> mutant_names() {
  return {
#define ALT_GUARD(kind, sentence) #kind,
#include "lift/guards.def"
#undef ALT_GUARD
      "identity",
#define ALT_AMBIENT(field, type, expression, words) "ambient." #field,
#include "guards/ambient.def"
#undef ALT_AMBIENT
      "ambient.function_modes",
      "ambient.dispatch_modes",
  };
}

#ifdef ALTERNATOR_MUTANTS
namespace {

std::set<std::string, std::less<>>& disabled() {
  static std::set<std::string, std::less<>> names = [] {
    std::set<std::string, std::less<>> result;
    const char* wanted = std::getenv("ALTERNATOR_WITHOUT_GUARDS");
    std::string_view rest = wanted != nullptr ? wanted : "";
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      result.emplace(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    }
    return result;
  }();
  return names;
}

}  // namespace

bool set_mutant(std::string_view name, bool off) {
  const std::vector<std::string> names = mutant_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return false;
  if (off) {
    disabled().emplace(name);
  } else if (const auto found = disabled().find(name); found != disabled().end()) {
    disabled().erase(found);
  }
  return true;
}

bool is_disabled(std::string_view name) { return disabled().find(name) != disabled().end(); }
#endif

}  // namespace alternator::guards
