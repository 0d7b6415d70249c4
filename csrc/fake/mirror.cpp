// fake_of: a fake with every property of a real tensor that a program can see, except its data.
#include "fake/mirror.h"

#include "fake/fake_errors.h"
#include "fake/session.h"
#include "fake/storage.h"
#include "fake/torch_version.h"
#include "py/gil.h"

#include "py/error.h"

#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include "fake/python_tensor.h"

#include <unordered_set>

namespace alternator::fake {
namespace {

// In anomaly mode a new node records the Python lines that made it: these would be ours.
class WithoutAnomalies {
 public:
  WithoutAnomalies() {
    if (on_) torch::autograd::AnomalyMode::set_enabled(false, nan_);
  }
  ~WithoutAnomalies() {
    if (on_) torch::autograd::AnomalyMode::set_enabled(true, nan_);
  }
  WithoutAnomalies(const WithoutAnomalies&) = delete;
  WithoutAnomalies& operator=(const WithoutAnomalies&) = delete;

 private:
  const bool on_ = torch::autograd::AnomalyMode::is_enabled();
  const bool nan_ = torch::autograd::AnomalyMode::should_check_nan();
};

// The grad_fn of an input whose history began before the trace. It has the name of the real one; a backward pass
// through it would leave the trace.
class PreexistingHistory final : public torch::autograd::Node {
 public:
  explicit PreexistingHistory(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    fail(FailureKind::Unsupported, name_, "backward reaches operators that ran before the trace");
  }

 private:
  std::string name_;
};

}  // namespace

bool leads_outside(const at::Tensor& fake) {
  std::vector<torch::autograd::Node*> open;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto add = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  if (const auto last = fake.grad_fn()) add(last.get());
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (dynamic_cast<PreexistingHistory*>(node) != nullptr) return true;
    for (const torch::autograd::Edge& edge : node->next_edges()) add(edge.function.get());
  }
  return false;
}

const char* cannot_mirror(const at::Tensor& real) {
  using c10::DispatchKey;
  const c10::TensorImpl* impl = real.unsafeGetTensorImpl();
  const c10::DispatchKeySet keys = impl->key_set();
  if (keys.has(DispatchKey::Python)) return "a tensor subclass with __torch_dispatch__";
  if (keys.has(DispatchKey::NestedTensor)) return "a nested tensor";
  if (keys.has_any(c10::DispatchKeySet({DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper})))
    return "a tensor of a functorch transform outside the trace";
  if (keys.has(DispatchKey::Functionalize)) return "a functionalized tensor";
  if (real.is_quantized()) return "a quantized tensor";
  if (real.is_mkldnn()) return "an MKL-DNN tensor";
  if (real.layout() != at::kStrided) return "a sparse tensor";
  if (!impl->has_storage()) return "a tensor without storage";
  if (impl->has_symbolic_sizes_strides()) return "a tensor with symbolic sizes";
  // Torch itself refuses to read its history.
  const auto* view = torch::autograd::impl::get_view_autograd_meta(real);
  if (view != nullptr && view->has_bw_view() && view->get_attr_version() != real._version() &&
      (view->grad_fn_ != nullptr || view->get_backward_view().base_.requires_grad()) &&
      view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT)
    return "a view made without a history whose memory was written to since";
#if TORCH_VERSION_MINOR < 13
  if (impl->has_named_tensor_meta()) return "a tensor with named dimensions";
#endif
  return nullptr;
}

namespace {

void copy_python_side(const at::Tensor& real, const at::Tensor& fake, bool copy_attributes) {
  PyObject* object = real.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  if (object == nullptr) return;
  PyTypeObject* type = Py_TYPE(object);
  const Gil gil;
  PyObject** dict = copy_attributes ? _PyObject_GetDictPtr(object) : nullptr;
  const bool has_attributes = dict != nullptr && *dict != nullptr && PyDict_GET_SIZE(*dict) != 0;
  if (reinterpret_cast<PyObject*>(type) == THPVariableClass && !has_attributes) return;
  const Ref twin = checked(THPVariable_Wrap(fake, type));
  if (has_attributes) {
    const Ref attributes = checked(PyObject_GenericGetDict(twin.get(), nullptr));
    check_status(PyDict_Update(attributes.get(), *dict));
  }
}

}  // namespace

const c10::Storage& SessionState::storage_of(const at::Tensor& real) {
  c10::StorageImpl* storage = real.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const auto known = storages_.find(storage);
  if (known != storages_.end()) return known->second;
  return storages_.emplace(storage, make_storage(storage->nbytes())).first->second;
}

const c10::VariableVersion& SessionState::version_of(const at::Tensor& real) {
  const c10::VariableVersion& version = real.unsafeGetTensorImpl()->version_counter();
  const void* counter = (version.*member_of(access::VersionCounter{})).get();
  const auto known = versions_.find(counter);
  if (known != versions_.end()) return known->second;
  return versions_.emplace(counter, c10::VariableVersion(version.current_version())).first->second;
}

at::Tensor SessionState::fake_of(const at::Tensor& real) {
  if (!real.defined()) return real;
  if (const FakeTensorImpl* fake = as_fake(real)) {
    if (fake->session() != id_) fail(FailureKind::Escaped, "", "a fake tensor of another trace");
    return real;
  }
  const auto known = twins_.find(real.unsafeGetTensorImpl());
  if (known != twins_.end()) return known->second.fake;
  if (const char* reason = cannot_mirror(real))
    fail(FailureKind::Unsupported, "", std::string("cannot fake ") + reason);
  at::Tensor fake = mirror(real);
  twins_.emplace(real.unsafeGetTensorImpl(), Twin{real, fake});
  reals_.emplace(fake.unsafeGetTensorImpl(), real.unsafeGetTensorImpl());
  copy_python_side(real, fake, options_.copy_attributes);
  return fake;
}

at::Tensor SessionState::real_of(const at::Tensor& fake) const {
  const auto real = reals_.find(fake.unsafeGetTensorImpl());
  return real == reals_.end() ? at::Tensor() : twins_.find(real->second)->second.real;
}

at::Tensor SessionState::mirror(const at::Tensor& real) {
  namespace ag = torch::autograd;
  c10::TensorImpl* source = real.unsafeGetTensorImpl();
  const bool inference = source->is_inference();
  at::Tensor fake =
      make(c10::Storage(storage_of(real)), keys_for(real.device(), inference), source->dtype(), real.device());
  auto* impl = static_cast<FakeTensorImpl*>(fake.unsafeGetTensorImpl());
  impl->copy_geometry(*source);
  if (source->is_wrapped_number()) impl->set_wrapped_number(true);
  if (source->is_conj()) impl->_set_conj(true);
  if (source->is_neg()) impl->_set_neg(true);
  if (inference) return fake;
  impl->set_version_counter(version_of(real));

  if (const ag::DifferentiableViewMeta* view = ag::impl::get_view_autograd_meta(real);
      view != nullptr && view->has_bw_view()) {
    const at::Tensor base = fake_of(view->get_backward_view().base_);
    // No view function: torch then replays a view as as_strided, which needs none.
    fake = ag::as_view(base, fake, /*is_bw_differentiable=*/true, /*is_fw_differentiable=*/view->has_fw_view(), nullptr,
                       nullptr, view->get_creation_meta());
  }
  if (const auto& history = real.grad_fn()) {
    const WithoutAnomalies without_anomalies;
    const NodePtr node = make_node<PreexistingHistory>(history->name());
    ag::impl::set_gradient_edge(fake, {node, node->add_input_metadata(fake)});
  } else if (real.requires_grad()) {
    impl->set_requires_grad(true);
  }
  return fake;
}

Ref Session::fake_of(Borrowed real) { return checked(THPVariable_Wrap(fake_of(fake::unpack(real.get())))); }

}  // namespace alternator::fake
