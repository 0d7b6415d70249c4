#include "fake/error_type.h"

#include "fake/session.h"
#include "py/error.h"
#include "py/lasting.h"

#include <array>

namespace alternator::fake {
namespace {

std::string message_of(const Failure& failure) {
  return failure.op.empty() ? failure.reason : failure.op + ": " + failure.reason;
}

thread_local int t_depth = 0;

void record(const Failure& failure) {
  if (SessionState* session = SessionState::current()) session->record(failure);
}

struct Classes {
  PyObject* base;
  std::array<PyObject*, 4> kinds;
};

// Never freed: exceptions may outlive the module.
const Classes& classes() {
  static constinit Lasting<Classes> made;
  return made.get([] {
    Classes result{};
    const auto make = [](const char* name, const char* text, PyObject* base) {
      return checked(PyErr_NewExceptionWithDoc(name, text, base, nullptr)).release();
    };
    result.base =
        make("alternator._C.fake.FakeError", "An operator on fake tensors has no result.", PyExc_RuntimeError);
    result.kinds = {
        make("alternator._C.fake.DataDependentError", "The result depends on the data of a tensor.", result.base),
        make("alternator._C.fake.UnsupportedError", "This cannot be computed on fake tensors.", result.base),
        make("alternator._C.fake.RealTensorError", "A real tensor reached an operator of a trace.", result.base),
        make("alternator._C.fake.EscapedError", "A fake tensor was used outside its own trace.", result.base)};
    return result;
  });
}

}  // namespace

Error::Error(Failure failure) : PyTorchError(message_of(failure)), failure_(std::move(failure)) {}

PyObject* Error::python_type() { return error_class(failure_.kind); }

PyObject* error_class(std::optional<FailureKind> kind) {
  return kind ? classes().kinds[static_cast<size_t>(*kind)] : classes().base;
}

OutermostCall::OutermostCall() { t_depth++; }
OutermostCall::~OutermostCall() { t_depth--; }
void OutermostCall::failed(const Error& error) const {
  if (t_depth == 1) record(error.failure());
}

void fail(FailureKind kind, std::string op, std::string reason) {
  Failure failure{kind, std::move(op), std::move(reason)};
  if (t_depth == 0) record(failure);
  throw Error(std::move(failure));
}

}  // namespace alternator::fake
