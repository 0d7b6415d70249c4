// Fakes: tensors of a trace. A fake is a plain torch.Tensor (or nn.Parameter, or a plain subclass) that has every
// property but data. Torch operators on fakes give fakes, in C++ and in about a microsecond.
//
//   fake::Session session;                      // one per trace
//   at::Tensor x = session.fake_of(real_x);     // the stand-in; asking again gives the same one
//   {
//     fake::Active active(session);             // this thread: factory functions give fakes too
//     at::Tensor y = at::relu(x);               // shape, strides, dtype, device, grad_fn as in eager
//   }
//
// What cannot be answered throws one of the errors in fake/fake_errors.h, and `session.failure()` says which and why.
#pragma once

#include "py/ref.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace c10 {
class DebugInfoGuard;
}

namespace alternator::fake {

// Why an operator on fakes has no answer.
enum class FailureKind : uint8_t {
  DataDependent,  // the output's shape, or a Python value, depends on data
  Unsupported,    // no rule and no kernel, or a kind of tensor that fakes do not stand in for
  RealTensor,     // a real tensor reached an operator of the trace: it should have been lifted before
  Escaped,        // a fake was used outside its own trace
};

struct Failure {
  FailureKind kind;
  std::string op;      // "aten::nonzero"; empty when no operator was running
  std::string reason;  // one sentence
};

// What an operator does with a real tensor that Python code can see. Never written, whatever is chosen.
enum class RealTensors : uint8_t {
  Refuse,  // throw: the tracer lifts every tensor before it is used
  Lift,    // read through fake_of (for tests and for tools that run unmodified modules)
};

struct Options {
  RealTensors real_tensors = RealTensors::Refuse;
  // fake_of(object) copies the instance's attributes: off where somebody else lifts them.
  bool copy_attributes = true;
};

class SessionState;

// The tensors of one trace. Used by one thread at a time.
class Session {
 public:
  explicit Session(Options options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The session that is active on this thread, or null.
  static Session* current();

  uint64_t id() const;

  // The stand-in of a real tensor: same device, dtype, sizes, strides, offset, requires_grad, is_leaf, name of grad_fn,
  // base, version, conj and neg bits. Tensors that share storage (or a version counter) give fakes that do.
  // A fake of this session is its own stand-in. The real tensor is kept alive and is not touched.
  at::Tensor fake_of(const at::Tensor& real);
  // The same for the Python object: the result has its type and (see Options) its attributes.
  Ref fake_of(Borrowed real);

  // The tensor that `fake` stands in for; undefined for results of operators and constants.
  at::Tensor real_of(const at::Tensor& fake) const;

  // A fake whose value is known: what torch.tensor([1, 2]) gives. `value` is copied.
  at::Tensor constant(const at::Tensor& value);
  // The value of a fake, if it is known here and now: a real CPU tensor of the caller's own.
  std::optional<at::Tensor> known_value(const at::Tensor& fake) const;

  // The last failure of the program on this session; null if none. clear_failure() forgets it.
  const Failure* failure() const;
  void clear_failure();

  // Operators seen since the session began, and how many of them needed Python.
  struct Counts {
    uint64_t operators = 0, python_metas = 0, fake_tensor_mode = 0;
    // What a recorder must not lose: operators that write to an argument, draw random numbers, return nothing; of
    // the last, those that only look at data and may raise.
    uint64_t writes = 0, draws = 0, acts = 0, checks = 0;
  };
  Counts counts() const;

  // torch's ShapeEnv of the numbers that only a run knows (unbacked_symbol.h); made on first use.
  Borrowed shape_env();
  bool has_shape_env() const;
  // Whether a shape that only data gives is made of such numbers; otherwise its operator is refused.
  void capture_sizes(bool wanted);
  // A FakeTensor of torch's that looks like `fake`, over shape_env().
  Ref as_fake_tensor(const at::Tensor& fake);

  SessionState& state() { return *state_; }

 private:
  friend class Active;
  std::unique_ptr<SessionState> state_;
};

// Makes a session this thread's for its own lifetime. Nests; the inner one wins.
class Active {
 public:
  explicit Active(Session& session);
  ~Active();
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  Session* outer_;
  bool was_included_;
  std::unique_ptr<c10::DebugInfoGuard> info_;
};

// Takes this thread out of its session: operators are real again (and fakes are refused).
class Inactive {
 public:
  Inactive();
  ~Inactive();
  Inactive(const Inactive&) = delete;
  Inactive& operator=(const Inactive&) = delete;

 private:
  Session* outer_;
  bool was_included_;
};

// In its scope, if `unknown`, no Python number among the arguments of an operator has a known value: torch wraps a
// symbolic number in a tensor of an arbitrary one.
class UnbackedSymbols {
 public:
  UnbackedSymbols(Session& session, bool unknown);
  ~UnbackedSymbols();
  UnbackedSymbols(const UnbackedSymbols&) = delete;
  UnbackedSymbols& operator=(const UnbackedSymbols&) = delete;

 private:
  Session& session_;
  bool before_;
};

bool is_fake(const at::TensorBase& tensor);
// 0 for a tensor that is not a fake.
uint64_t session_of(const at::TensorBase& tensor);

}  // namespace alternator::fake
