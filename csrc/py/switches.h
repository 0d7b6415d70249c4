// Switches that disable one check or step of a component each: `make test-mutants` proves with them that a test fails.
// A build without ALTERNATOR_MUTANTS has none: nothing is ever off.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace alternator {

#ifdef ALTERNATOR_MUTANTS
inline constexpr bool kHasMutants = true;
#else
inline constexpr bool kHasMutants = false;
#endif

// The switches of one component. Some may be off from the start: the environment variable holds their names, separated
// by commas.
class Switches {
 public:
  Switches(std::vector<std::string> names, const char* variable) : names_(std::move(names)) {
    const char* wanted = kHasMutants ? std::getenv(variable) : nullptr;
    std::string_view rest = wanted != nullptr ? wanted : "";
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      off_.emplace(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    }
  }

  const std::vector<std::string>& names() const { return names_; }
  // False: there is no switch of that name, or this build has none.
  bool set(std::string_view name, bool off) {
    if (!kHasMutants || std::find(names_.begin(), names_.end(), name) == names_.end()) return false;
    if (off) {
      off_.emplace(name);
    } else if (const auto found = off_.find(name); found != off_.end()) {
      off_.erase(found);
    }
    return true;
  }
  bool is_off(std::string_view name) const {
    if constexpr (!kHasMutants) return false;
    return !off_.empty() && off_.find(name) != off_.end();
  }
  bool any_off() const { return kHasMutants && !off_.empty(); }

 private:
  std::vector<std::string> names_;
  std::set<std::string, std::less<>> off_;
};

}  // namespace alternator
