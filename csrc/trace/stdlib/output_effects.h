// Calls that are made for their output: print, warnings, logging.
#pragma once
#include <vector>
#include "cpython/operations.h"

#include "py/error.h"

namespace alternator::trace {

class Tracer;

// The arguments of such a call.
class Arguments {
 public:
  Arguments(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  size_t count() const { return positional_; }
  Borrowed operator[](size_t i) const { return arguments_[i]; }
  // Null: not given.
  Borrowed keyword(const char* name);
  bool all_taken() const;

 private:
  PyObject* const* arguments_;
  size_t positional_;
  Borrowed keyword_names_;
  size_t taken_ = 0;
};

// The list that warnings are recorded in now (catch_warnings(record=True)); null: there is none.
Borrowed recorded_warnings();

// What a residual program calls to log a record with a given location.
Borrowed log_function();

int init_effects();

struct UserFrame {
  PyCodeObject* code;
  PyObject* globals;
  int line;
};
struct Shown {
  Ref tensor;
  size_t position;  // the number of nodes so far
};
class OutputEffects {
 public:
  explicit OutputEffects(Tracer& tracer) : t(tracer) {}
  bool call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names, Ref* result);
  void check_stream(Borrowed stream, const char* what);
  void add_effect(Borrowed callable, Ref arguments, Ref keywords);
  Ref freeze(Borrowed value, int depth = 0);
  // A tensor was mutated after the program showed it.
  bool shown_changed();
  // The frames of the program, innermost first.
  std::vector<UserFrame> user_frames() const;
  std::vector<Shown> shown;
  cpython::Frame* outermost;  // the frame that called the compiled function

 private:
  void print(Arguments& given);
  void warn(Arguments& given);
  void check_filters(Borrowed category);
  Ref show_tensor(Borrowed tensor);
  bool shows_text_ = false;  // objects that are shown may be converted to strings now
  Tracer& t;
};

}  // namespace alternator::trace
