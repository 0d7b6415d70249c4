#include "fake/session.h"

#include "fake/constants.h"
#include "fake/devices.h"
#include "fake/fake_errors.h"
#include "fake/functorch_state.h"
#include "fake/storage.h"
#include "fake/torch_version.h"
#include "fake/unbacked_sizes.h"

#include <c10/core/InferenceMode.h>

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>

namespace alternator::fake {
namespace {

thread_local Session* t_current = nullptr;

std::atomic<uint64_t> g_next_id{1};

// torch propagates this from the thread that calls backward to the threads that run it.
struct SessionInfo final : c10::DebugInfoBase {
  explicit SessionInfo(Session* of) : session(of) {}
  Session* session;
};

}  // namespace

thread_local c10::Device t_device = c10::Device(c10::kCPU);

SessionState::SessionState(Options options) : id_(g_next_id.fetch_add(1)), options_(options) {}

SessionState::~SessionState() = default;

SessionState* SessionState::current() {
  if (t_current != nullptr) [[likely]]
    return &t_current->state();
  if (!c10::impl::tls_is_dispatch_key_included(kFakeKey)) return nullptr;
  const auto* info = static_cast<const SessionInfo*>(c10::ThreadLocalDebugInfo::get(kSessionInfo));
  return info != nullptr ? &info->session->state() : nullptr;
}

void SessionState::record(Failure failure) {
  const std::lock_guard lock(mutex_);  // a backward pass may fail on several threads
  failure_ = std::move(failure);
}

void refuse_other_kinds(const at::Tensor& output) {
  const c10::TensorImpl* impl = output.unsafeGetTensorImpl();
  if (impl->layout() != at::kStrided || !impl->has_storage())
    fail(FailureKind::Unsupported, "", "a sparse, nested or opaque tensor cannot be faked");
  if (c10::isQIntType(c10::typeMetaToScalarType(impl->dtype())))
    fail(FailureKind::Unsupported, "", "a quantized tensor cannot be faked");
}

at::Tensor SessionState::adopt(const at::Tensor& meta, c10::Device device) const {
  c10::TensorImpl* impl = meta.unsafeGetTensorImpl();
  if (as_fake(impl) != nullptr) return meta;
  refuse_other_kinds(meta);
  // A composite created a real tensor without the dispatcher: a scalar.
  if (!impl->device().is_meta() && !impl->key_set().has(kFakeKey)) return make_constant(*this, meta);
  // A view that a kernel made of a fake has the fake's keys already (a view of a normal tensor stays normal in
  // inference mode).
  const c10::DispatchKeySet keys =
      impl->key_set().has(kFakeKey) ? impl->key_set() : keys_for(device, c10::InferenceMode::is_enabled());
  forbid_data(*impl->unsafe_storage().unsafeGetStorageImpl());
  at::Tensor fake = make(c10::Storage(impl->unsafe_storage()), keys, impl->dtype(), device);
  auto* fake_impl = static_cast<FakeTensorImpl*>(fake.unsafeGetTensorImpl());
  fake_impl->copy_geometry(*impl);
  if (impl->is_wrapped_number()) fake_impl->set_wrapped_number(true);
  if (impl->is_conj()) fake_impl->_set_conj(true);
  if (impl->is_neg()) fake_impl->_set_neg(true);
  return fake;
}

Session::Session(Options options) : state_(std::make_unique<SessionState>(options)) {}
Session::~Session() = default;

Session* Session::current() { return t_current; }
uint64_t Session::id() const { return state_->id(); }
at::Tensor Session::fake_of(const at::Tensor& real) { return state_->fake_of(real); }
at::Tensor Session::real_of(const at::Tensor& fake) const { return state_->real_of(fake); }
const Failure* Session::failure() const { return state_->failure(); }
void Session::clear_failure() { state_->clear_failure(); }
Session::Counts Session::counts() const {
  const auto& counts = state_->counts_;
  return {counts.operators.value(), counts.python_metas.value(), counts.fake_tensor_mode.value(),
          counts.writes.value(),    counts.draws.value(),        counts.acts.value(),
          counts.checks.value()};
}

at::Tensor Session::constant(const at::Tensor& value) { return make_constant(*state_, value); }
void Session::set_geometry(const at::Tensor& fake, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
  c10::TensorImpl* impl = fake.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); d++) last += (sizes[d] - 1) * strides[d];
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const size_t needed = static_cast<size_t>(last + 1) * impl->itemsize();
  if (storage->nbytes() < needed) storage->set_nbytes(needed);
}
void Session::forget_value(const at::Tensor& fake) const {
  if (as_fake(fake) == nullptr || !fake.has_storage()) return;
  forget_constant(*fake.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}
std::optional<at::Tensor> Session::known_value(const at::Tensor& fake) const {
  std::optional<at::Tensor> value = peek_constant(fake);
  if (!value) return value;
  const Inactive inactive;
  const WithoutTransforms untransformed;
  const c10::InferenceMode plain(false);
  return value->detach().clone();
}

Active::Active(Session& session)
    : outer_(t_current),
      was_included_(c10::impl::tls_is_dispatch_key_included(kFakeKey)),
      info_(std::make_unique<c10::DebugInfoGuard>(kSessionInfo, std::make_shared<SessionInfo>(&session))) {
  session_begins();
  t_current = &session;
  c10::impl::tls_set_dispatch_key_included(kFakeKey, true);
}

Active::~Active() {
  t_current = outer_;
  c10::impl::tls_set_dispatch_key_included(kFakeKey, was_included_);
  session_ends();
}

Inactive::Inactive() : outer_(t_current), was_included_(c10::impl::tls_is_dispatch_key_included(kFakeKey)) {
  t_current = nullptr;
  c10::impl::tls_set_dispatch_key_included(kFakeKey, false);
}

Inactive::~Inactive() {
  t_current = outer_;
  c10::impl::tls_set_dispatch_key_included(kFakeKey, was_included_);
}

UnbackedSymbols::UnbackedSymbols(Session& session, bool unknown)
    : session_(session), before_(session.state().unbacked_symbols) {
  session.state().unbacked_symbols = before_ || unknown;
}

UnbackedSymbols::~UnbackedSymbols() { session_.state().unbacked_symbols = before_; }

bool is_fake(const at::TensorBase& tensor) { return as_fake(tensor) != nullptr; }

uint64_t session_of(const at::TensorBase& tensor) {
  const FakeTensorImpl* fake = as_fake(tensor);
  return fake != nullptr ? fake->session() : 0;
}

}  // namespace alternator::fake
