#include "replay/mutants.h"

#include "lift/mutants.h"
#include "replay/program.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace alternator::replay {

std::vector<std::string> mutant_names() {
  std::vector<std::string> names = {
#define ALT_REBUILD(name, type, recipe) #name,
#define ALT_NEVER(type, what)
#include "replay/rebuild.def"
#undef ALT_REBUILD
#undef ALT_NEVER
      "class", "exception", "struct_sequence", "tensor_attributes"};
  constexpr Op ops[] = {
#define ALT_INSTRUCTION(kind, text) Op::kind,
#include "replay/instructions.def"
#undef ALT_INSTRUCTION
  };
  // What makes an object cannot be left out: its row can be switched off.
  for (Op op : ops) {
    if (op > Op::kTensor) names.emplace_back(name_of(op));
  }
  for (std::string& row : lift::mutant_names()) names.push_back(std::move(row));
  return names;
}

#ifdef ALTERNATOR_MUTANTS
namespace {

std::set<std::string, std::less<>>& disabled() {
  static auto* names = [] {
    auto* result = new std::set<std::string, std::less<>>;
    const char* wanted = std::getenv("ALTERNATOR_WITHOUT_REPLAY");
    std::string_view rest = wanted != nullptr ? wanted : "";
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      result->emplace(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    }
    return result;
  }();
  return *names;
}

}  // namespace

bool set_mutant(std::string_view name, bool off) {
  if (lift::set_mutant(name, off)) return true;
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

}  // namespace alternator::replay
