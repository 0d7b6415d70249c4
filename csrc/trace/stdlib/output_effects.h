// Calls that are made for their output: print, warnings, logging.
#pragma once

#include "cpython/operations.h"
#include "trace/core/call.h"

#include <vector>

namespace alternator::trace {

class Tracer;

// The arguments of such a call.
class Arguments {
 public:
  explicit Arguments(const Call& call) : call_(call) {}
  size_t count() const { return call_.positional; }
  Borrowed operator[](size_t i) const { return call_.arguments[i]; }
  // Null: not given.
  Borrowed keyword(const char* name);
  bool all_taken() const { return taken_ == call_.keywords(); }

 private:
  Call call_;
  size_t taken_ = 0;
};

// The list that warnings are recorded in now (catch_warnings(record=True)); null: there is none.
Borrowed recorded_warnings();

// What a residual program calls to log a record with a given location.
Borrowed log_function();

int init_effects();

// A frame of the program.
struct UserFrame {
  PyCodeObject* code;
  PyObject* globals;
  int line;
};

class OutputEffects {
 public:
  explicit OutputEffects(Tracer& tracer) : t(tracer) {}

  void print(Arguments& given);
  void warn(Arguments& given);
  // The residual program makes this call.
  void add_effect(Borrowed callable, Ref arguments, Ref keywords);

  // A snapshot of what the program showed. Null: impossible.
  Ref freeze(Borrowed value, int depth = 0);
  void check_stream(Borrowed stream, const char* what);
  // The frames of the program, innermost first.
  std::vector<UserFrame> user_frames() const;
  // The effects of the residual program use this tensor, which may not be mutated until then.
  void note_shown(Borrowed tensor);
  // A tensor was mutated after the program showed it.
  bool shown_changed();

  cpython::Frame* outermost;  // the frame that called the compiled function

 private:
  struct Shown {
    Ref tensor;
    size_t position;  // the number of nodes so far
  };
  void check_filters(Borrowed category);
  Ref show_tensor(Borrowed tensor);
  Ref freeze_dict(Borrowed dict, int depth);
  Ref freeze_text(Borrowed value, int depth);

  Tracer& t;
  std::vector<Shown> shown_;
  bool shows_text_ = false;  // objects that are shown may be converted to strings now
};

}  // namespace alternator::trace
