// Variables whose value differed at each recent trace. Such a scalar is lifted as an unspecialized symbol
// (fake/unbacked_symbol.h), under a guard on its class: it may be moved and stored, and reading its value stops the
// trace. Strings and containers cannot be lifted then.
#pragma once

#include "lift/sources/changing_values.h"
#include "lift/sources/source.h"

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace alternator::lift {

class Lifter;

class Unspecialized {
 public:
  explicit Unspecialized(Lifter& lifter) : lifter_(lifter) {}

  const std::unordered_set<std::string>* texts = nullptr;  // of their sources (Source::text); null: there are none
  std::function<void()> on_lift;                           // called when one of them was lifted
  bool is_open = true;  // false: native code may read what is lifted now (see Specialized)

  bool includes(Borrowed value, const Source& source) const;
  Ref lift(Borrowed number, Source* source);

 private:
  Lifter& lifter_;
  std::unordered_map<const Source*, Ref> symbols_;
};

// While native code may read what is lifted: its scalars stay specialized.
class Specialized {
 public:
  explicit Specialized(Unspecialized& unspecialized)
      : unspecialized_(unspecialized), before_(std::exchange(unspecialized.is_open, false)) {}
  ~Specialized() { unspecialized_.is_open = before_; }
  Specialized(const Specialized&) = delete;
  Specialized& operator=(const Specialized&) = delete;

 private:
  Unspecialized& unspecialized_;
  bool before_;
};

}  // namespace alternator::lift
