// What torch warns of. While a call is made on fakes nobody hears of it: a run warns of it again, in the name of the
// line that the trace saw.
//
// Whoever warns, in C++ or in Python, asks `warnings.filters` what to do about it, and there is but one such list in
// the process. It is not touched: the module has a class of ours, whose `filters` is the list itself for everybody but
// a thread that keeps its warnings back.
#pragma once

#include "py/ref.h"

#include <utility>
#include <vector>

namespace alternator::graph {

struct Warning {
  Ref text, category;
  Ref file, globals;  // of the frame that is named; null: there was none
  int line = 0;
};

// While it lives, warnings of this thread are kept back.
class WarningsKept {
 public:
  enum class Kind : uint8_t {
    kFake,  // also those that torch gives but once: they are not used up
    kRun,
  };
  explicit WarningsKept(Kind kind);
  ~WarningsKept();
  WarningsKept(const WarningsKept&) = delete;
  WarningsKept& operator=(const WarningsKept&) = delete;

  void keep(Borrowed text, Borrowed category, Borrowed module);
  // The filters that this thread is to see in place of these; null: an exception is set.
  Ref lend(Borrowed filters);
  // Which filters these were lent for: themselves, where they are no such.
  Borrowed original(Borrowed filters) const;
  std::vector<Warning> take() { return std::move(kept_); }

 private:
  WarningsKept* outer_;
  bool repeats_;                                  // what torch gives but once
  PyObject **place_ = nullptr, *real_ = nullptr;  // the globals of the frame that makes the call
  std::vector<std::pair<Ref, Ref>> lent_;         // and what they stand for
  std::vector<Warning> kept_;
};

int init_warnings();
// Whether it is that of modules, or ours of the module `warnings`: attributes are those that stand in the module.
bool is_plain_module_class(PyTypeObject* type);

// Whether any filter makes errors of warnings: then they have to be given where they come up.
bool may_raise_warnings();
// Gives them, each in the name of where it came up; with `places`, in that of a warning of the same text there. Throws.
void give(std::vector<Warning> warnings, const std::vector<Warning>* places = nullptr);

// Of the recording that is under way.
void forget_warnings();  // it begins
void note_warnings(std::vector<Warning> warnings);
std::vector<Warning> take_noted_warnings();
// How many were noted, if any were since it was asked last; otherwise 0.
size_t new_warnings();

// The warnings of a run that has things to show in between: those of the first `count` places are given next.
class WarningsInTurn {
 public:
  WarningsInTurn(std::vector<Warning> warnings, const std::vector<Warning>& places);
  ~WarningsInTurn();
  WarningsInTurn(const WarningsInTurn&) = delete;
  WarningsInTurn& operator=(const WarningsInTurn&) = delete;
  static void give_until(size_t count);  // of the innermost
  void give_rest() { give_until_(SIZE_MAX); }

 private:
  void give_until_(size_t count);
  WarningsInTurn* outer_;
  std::vector<Warning> warnings_;
  std::vector<size_t> at_;  // the places of these; SIZE_MAX: none
  const std::vector<Warning>& places_;
};

}  // namespace alternator::graph
