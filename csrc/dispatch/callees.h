// Functions that are called while an instruction is executed concretely: which of them are compiled too.
#pragma once

#include "cpython/operations.h"

#include <memory>
#include <unordered_map>

namespace alternator::dispatch {

struct Compilation;

// State of one code object that was called so.
struct Callee {
  enum class Kind : uint8_t {
    kCompile,  // compiled, if it may reach a tensor
    kSkip,     // it runs eagerly; frames that it begins are intercepted
    kSkipAll,  // ... are not: it compiles or traces by itself
  };
  Ref code;
  Kind kind = Kind::kCompile;
  bool uses_torch = false;  // it names torch
  int graphless = 0;        // number of calls without a graph, as long as there is none
  std::shared_ptr<Compilation> compilation;
  std::shared_ptr<Compilation> eager_compilation;  // for eager callers, to whom is_compiling() was False
};

// Shared by all compilations that originate in one compile().
struct Family {
  std::unordered_map<PyCodeObject*, std::shared_ptr<Callee>> callees;
  Ref begin_step;  // called before an outermost call, for a backend that reuses its memory from step to step (CUDA
                   // graphs)

  // Known, and not to be compiled.
  bool is_skipped(PyCodeObject* code) const {
    const auto found = callees.find(code);
    return found != callees.end() && found->second->kind == Callee::Kind::kSkip;
  }
  // Null: there are too many already.
  std::shared_ptr<Callee> callee(cpython::Frame* frame);
};

// Whether a frame that begins belongs to a function that could be compiled, regardless of its content.
bool is_plain_start(PyThreadState* ts, cpython::Frame* frame);
// Whether a frame that begins may reach a tensor. It errs on the side of true.
bool may_reach_tensor(cpython::Frame* frame, const Callee& callee);

// torch.compiler.disable and its like, on the function of a frame.
enum class Disabled : uint8_t {
  kNone,
  kItself,  // the frame runs eagerly; frames that it begins are intercepted
  kAll,     // ... are not
};
Disabled disabled_by(Borrowed function);
// The code that a disabled function wraps, which runs eagerly too. Null: none.
PyCodeObject* code_behind(Borrowed function);

}  // namespace alternator::dispatch
