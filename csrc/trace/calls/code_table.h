// Functions that are known by their code: code object -> what the tracer does about it. They are torch's own, and are
// found by name once their module is loaded; from then on only identities are compared.
#pragma once

#include "lift/sources/pointer_tables.h"
#include "py/ref.h"

#include <cstdint>
#include <vector>

namespace alternator::trace {

// A module that is already imported; never imports one. Null: it is not.
PyObject* loaded_module(const char* name);

// Differs whenever sys.modules does. An import puts its module there before it runs it, and again when it has run: what
// was not found in a module that was still loading is found by the next look.
uint64_t modules_version();

// The code of a function of a module. One that is decorated is found by its own name below `__wrapped__` or, with
// `<locals>`, among the constants of the function that defines it. Null: the module is not loaded, or has none.
Ref find_code(const char* module, const char* qualified_name);

template <class Value>
class CodeTable {
 public:
  struct Row {
    const char* module;
    const char* qualified_name;
    Value value;
  };
  template <size_t kRows>
  explicit CodeTable(const Row (&rows)[kRows]) {
    for (const Row& row : rows) missing_.push_back(&row);
  }

  // Looks for the functions that are missing still, if modules were loaded since the last time.
  void update() {
    const uint64_t now = modules_version();
    if (now == seen_ || missing_.empty()) return;
    std::vector<const Row*> still_missing;  // looking may let another thread in
    for (const Row* row : std::vector(missing_)) {
      if (Ref code = find_code(row->module, row->qualified_name)) {
        add(code, row->value);
      } else {
        still_missing.push_back(row);
      }
    }
    missing_ = std::move(still_missing);
    seen_ = now;
  }

  void add(Borrowed code, Value value) {
    const auto [at, is_new] = values_.emplace(code.get(), value);
    if (is_new) Ref::share(code).release();  // held for the life of the process
    at->second = value;
  }

  // Null: it is none of them.
  const Value* find(Borrowed code) const {
    const auto found = values_.find(code.get());
    return found != values_.end() ? &found->second : nullptr;
  }

 private:
  lift::PointerMap<PyObject, Value> values_;
  std::vector<const Row*> missing_;
  uint64_t seen_ = 0;  // modules_version() at the last look
};

}  // namespace alternator::trace
