// Torch's warnings. While a call is made on fakes they are suppressed: a run issues them again, attributed to the line
// that the trace saw.
//
// All warnings, in C++ or in Python, go through `warnings.filters`, of which there is one list per process. It is not
// modified: the module gets a class of ours, whose `filters` is the list itself for every thread but one that
// suppresses its warnings.
#pragma once

#include "py/ref.h"

#include <utility>
#include <vector>

namespace alternator::graph {

struct Warning {
  Ref text, category;
  Ref file, globals;  // of the frame that the warning is attributed to; null: there was none
  int line = 0;
};

// In its scope, warnings of this thread are held back.
class WarningsKept {
 public:
  enum class Kind : uint8_t {
    kFake,  // including TORCH_WARN_ONCE warnings: they are not used up
    kRun,
  };
  explicit WarningsKept(Kind kind);
  ~WarningsKept();
  WarningsKept(const WarningsKept&) = delete;
  WarningsKept& operator=(const WarningsKept&) = delete;

  void keep(Borrowed text, Borrowed category, Borrowed module);
  // The filters that this thread sees in place of these; null: an exception is set.
  Ref lend(Borrowed filters);
  // The filters that these were lent for; unlent filters are returned unchanged.
  Borrowed original(Borrowed filters) const;
  std::vector<Warning> take() { return std::move(kept_); }

 private:
  WarningsKept* outer_;
  bool repeats_;                                  // set_warn_always is on in this scope
  PyObject **place_ = nullptr, *real_ = nullptr;  // the globals of the frame that makes the call
  std::vector<std::pair<Ref, Ref>> lent_;         // lent filters and the originals
  std::vector<Warning> kept_;
};

int init_warnings();
// Whether it is the class of modules, or ours of the module `warnings`: attributes are those of the module's dict.
bool is_plain_module_class(PyTypeObject* type);

// Whether any filter turns warnings into errors: then they must be issued where they occur.
bool may_raise_warnings();
// Issues them, each attributed to its location; with `places`, to that of a place with the same text. Throws.
void give(std::vector<Warning> warnings, const std::vector<Warning>* places = nullptr);

// Of the current recording.
void forget_warnings();  // it begins
void note_warnings(std::vector<Warning> warnings);
std::vector<Warning> take_noted_warnings();
// How many were noted, if any were since the last call; otherwise 0.
size_t new_warnings();

// The warnings of a run that has side effects in between: those of the first `count` places are issued next.
class WarningsInTurn {
 public:
  WarningsInTurn(std::vector<Warning> warnings, const std::vector<Warning>& places);
  ~WarningsInTurn();
  WarningsInTurn(const WarningsInTurn&) = delete;
  WarningsInTurn& operator=(const WarningsInTurn&) = delete;
  static void give_until(size_t count);  // of the innermost instance
  void give_rest() { give_until_(SIZE_MAX); }

 private:
  void give_until_(size_t count);
  WarningsInTurn* outer_;
  std::vector<Warning> warnings_;
  std::vector<size_t> at_;  // the indices of their places; SIZE_MAX: none
  const std::vector<Warning>& places_;
};

}  // namespace alternator::graph
