// Frames that begin while an instruction is executed for real: which of them are compiled too.
#pragma once

#include "cpython/operations.h"

#include <memory>
#include <unordered_map>

namespace alternator::dispatch {

struct Compilation;

// What is known of one code object that was called so.
struct Callee {
  enum class Kind : uint8_t {
    kOpen,  // compiled, where a tensor may be in reach
    kLeft,  // it runs as it is; what it calls is offered
    kShut,  // ... is not: it compiles or traces by itself
  };
  Ref code;
  Kind kind = Kind::kOpen;
  bool uses_torch = false;  // it names torch
  int graphless = 0;        // calls that had no graph, while there was none
  std::shared_ptr<Compilation> compilation;
  std::shared_ptr<Compilation> under_plain;  // for those who run as they are, and were told that nothing is compiled
};

// What all compilations that come of one compile() share.
struct Family {
  std::unordered_map<PyCodeObject*, std::shared_ptr<Callee>> callees;
  Ref begin_step;  // called before an outermost call, for a backend that reuses its memory from one to the next

  // Known, and not to be compiled.
  bool is_left(PyCodeObject* code) const {
    const auto found = callees.find(code);
    return found != callees.end() && found->second->kind == Callee::Kind::kLeft;
  }
  // Null: there are too many already.
  std::shared_ptr<Callee> callee(cpython::Frame* frame);
};

// Whether a frame that begins is one of a function that could be compiled, whatever it is about.
bool is_plain_start(PyThreadState* ts, cpython::Frame* frame);
// Whether one that begins may get at a tensor. It may say yes too often.
bool may_reach_tensor(cpython::Frame* frame, const Callee& callee);

// torch.compiler.disable and its like, on the function of a frame.
enum class Disabled : uint8_t {
  kNone,
  kItself,  // the frame runs as it is; what it calls is offered
  kAll,     // ... is not
};
Disabled disabled_by(Borrowed function);
// What a function that is marked stands for: its code runs as it is too. Null: nothing.
PyCodeObject* code_behind(Borrowed function);

}  // namespace alternator::dispatch
