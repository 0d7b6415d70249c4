// Exceptions that the program raises and handles, and the frames and generators that they keep alive.
#pragma once

#include "py/error.h"

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace alternator::trace {

class Tracer;

class RaisedExceptions {
 public:
  explicit RaisedExceptions(Tracer& tracer) : t(tracer) {}

  // An exception group that native code is about to iterate over.
  void check_group(Borrowed exception, int depth = 0);
  void before_raise(Ref* exception);
  void raising();
  int handle_breaker(PyThreadState* ts);
  // Frames that ended but keep their locals, and that a traceback references: if one of these locals is the exception,
  // the cycle keeps them alive forever.
  void note_abandoned(PyFrameObject* frame);
  // A generator's frame has run: it may be left suspended.
  void note_generator(Borrowed generator, bool preexisting = false);
  void end_generators();
  // Takes the exception that left the function; null: the residual program cannot raise it.
  Ref take_exit();
  // Clears the completed frames that a traceback keeps alive, which drops what they hold.
  void clear_frames(Borrowed exception, int depth = 0);
  void clear_frame(Borrowed frame);

  Ref handled_before;                            // the exception that the caller is handling
  Ref callers_exception;                         // null: none
  std::unordered_set<std::string> raised_texts;  // messages of all exceptions so far
  std::vector<Ref> abandoned_frames;             // see note_abandoned()
  Ref exit;                                      // the exception that left the function
  // Generators that are suspended in a try, with a weak reference to those that the trace made; null for the others.
  std::unordered_map<PyObject*, Ref> generators;

 private:
  // The exception that the caller of the compiled function is handling becomes the __context__ of exceptions raised in
  // it.
  void use_callers_exception();

  Tracer& t;
  bool callers_exception_used_ = false;
  std::unordered_set<PyObject*> preexisting_generators_;  // among them, or ended since
};

}  // namespace alternator::trace
