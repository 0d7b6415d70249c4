// Fakes: the tensors of a trace. A fake is a plain torch.Tensor (or nn.Parameter, or a plain subclass) that has every
// property but data. Torch operators on fakes return fakes, in C++ and in about a microsecond.
//
//   fake::Session session;                      // one per trace
//   at::Tensor x = session.fake_of(real_x);     // the same fake on every call
//   {
//     fake::Active active(session);             // this thread: factory functions return fakes too
//     at::Tensor y = at::relu(x);               // shape, strides, dtype, device, grad_fn as in eager
//   }
//
// An operator that has no result throws one of the errors in fake/fake_errors.h, and `session.failure()` says which and
// why.
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

// Why an operator on fakes has no result.
enum class FailureKind : uint8_t {
  DataDependent,  // the output's shape, or a Python value, is data-dependent
  Unsupported,    // no rule and no kernel, or a kind of tensor that cannot be faked
  RealTensor,     // a real tensor reached an operator of the trace: it should have been lifted before
  Escaped,        // a fake was used outside its own trace
};

struct Failure {
  FailureKind kind;
  std::string op;      // "aten::nonzero"; empty when no operator was running
  std::string reason;  // one sentence
};

// What an operator does with a real tensor that Python code can see. Such a tensor is never mutated.
enum class RealTensors : uint8_t {
  Refuse,  // throw: the tracer lifts every tensor before it is used
  Lift,    // read through fake_of (for tests and for tools that run unmodified modules)
};

struct Options {
  RealTensors real_tensors = RealTensors::Refuse;
  // fake_of(object) copies the instance's attributes: off where the caller lifts them.
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

  // The fake of a real tensor: same device, dtype, sizes, strides, offset, requires_grad, is_leaf, name of grad_fn,
  // base, version, conj and neg bits. Tensors that share storage (or a version counter) give fakes that do. A fake of
  // this session is returned unchanged. The real tensor is kept alive and is not modified.
  at::Tensor fake_of(const at::Tensor& real);
  // The same for the Python object: the result has its type and (see Options) its attributes.
  Ref fake_of(Borrowed real);

  // The real tensor of a fake; undefined for results of operators and constants.
  at::Tensor real_of(const at::Tensor& fake) const;

  // A fake whose value is known: the result of torch.tensor([1, 2]). `value` is copied.
  at::Tensor constant(const at::Tensor& value);
  // The current value of a fake, if it is known: a new real CPU tensor.
  std::optional<at::Tensor> known_value(const at::Tensor& fake) const;
  // Of a fake that was made just now: another geometry than that of its real tensor, to trace a call with.
  static void set_geometry(const at::Tensor& fake, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset);
  // From now on its value counts as unknown.
  void forget_value(const at::Tensor& fake) const;

  // The last failure of the program in this session; null if none. clear_failure() resets it.
  const Failure* failure() const;
  void clear_failure();

  // Operators executed since the session began, and how many of them needed Python.
  struct Counts {
    uint64_t operators = 0, python_metas = 0, fake_tensor_mode = 0;
    // What a recorder must not lose: operators that mutate an argument, draw random numbers, return nothing; of the
    // last kind, those that only check data and may raise.
    uint64_t writes = 0, draws = 0, acts = 0, checks = 0;
  };
  Counts counts() const;

  // torch's ShapeEnv of the unbacked symbols (unbacked_symbol.h); created on first use.
  Borrowed shape_env();
  bool has_shape_env() const;
  // Whether data-dependent shapes consist of unbacked symbols; otherwise their operators are refused.
  void capture_sizes(bool wanted);
  // A torch FakeTensor with the properties of `fake`, over shape_env().
  Ref as_fake_tensor(const at::Tensor& fake);

  SessionState& state() { return *state_; }

 private:
  friend class Active;
  std::unique_ptr<SessionState> state_;
};

// Makes a session the current one of this thread for its lifetime. Nests; the inner one wins.
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

// Suspends this thread's session: operators are real again (and fakes are refused).
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

// In its scope, if `unknown`, no Python scalar among the arguments of an operator has a known value: torch wraps a
// symbolic scalar in a tensor with an arbitrary value.
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
