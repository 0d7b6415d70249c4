#include "fake/unbacked_ops.h"

#include "fake/fake_errors.h"
#include "fake/op_arguments.h"
#include "fake/python_modes.h"
#include "fake/unbacked_sizes.h"

#include "py/error.h"
#include "py/import.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace alternator::fake {
namespace {

namespace py = pybind11;

bool is_symbolic(const c10::IValue& value) {
  if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) return true;
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  }
  if (!value.isList()) return false;
  for (const c10::IValue& item : value.toListRef())
    if (is_symbolic(item)) return true;
  return false;
}

std::string name_of(const c10::SymInt& size) {
  return size.is_symbolic() ? size.toSymNode()->str() : std::to_string(size.as_int_unchecked());
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// The fakes of a call as FakeTensors, over storages that are shared where the fakes share theirs.
class Converted {
 public:
  explicit Converted(const py::object& mode) : mode_(mode) {}

  // The same FakeTensor as before, if the fake has not been mutated since.
  at::Tensor again(SessionState& session, const at::Tensor& tensor) {
    SessionState::Seen& row = seen_row(session, tensor);
    if (row.theirs.defined()) {
      rows_.push_back({tensor, row.theirs});
    } else {
      row.theirs = of(tensor);
      if (row.count) set_memo(row.theirs, *row.count);
    }
    return row.theirs;
  }

  at::Tensor of(const at::Tensor& tensor) {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    const FakeTensorImpl* fake = as_fake(tensor);
    const c10::Device device = fake != nullptr ? fake->fake_device() : tensor.device();
    c10::StorageImpl* original = storage_of(tensor);
    auto storage =
        std::find_if(storages_.begin(), storages_.end(), [&](const auto& row) { return row.ours == original; });
    if (storage == storages_.end()) {
      const c10::SymInt size[] = {original->sym_nbytes()};
      at::Tensor bytes(at::detail::empty_symint_meta(size, at::kByte, {}, {}, {}, {}));
      storages_.push_back({original, bytes.storage()});
      storage = storages_.end() - 1;
    }
    at::Tensor meta(at::detail::empty_meta({0}, tensor.scalar_type()));
    c10::TensorImpl* copy = meta.unsafeGetTensorImpl();
    copy->set_storage_keep_dtype(storage->theirs);
    if (impl->has_symbolic_sizes_strides()) {
      copy->set_sizes_and_strides(impl->sym_sizes(), impl->sym_strides(), impl->sym_storage_offset());
    } else {
      copy->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
    }
    if (impl->is_conj()) copy->_set_conj(true);
    if (impl->is_neg()) copy->_set_neg(true);
    at::Tensor made = make_fake_tensor(mode_, meta, device);
    if (impl->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    rows_.push_back({tensor, made});
    return made;
  }

  // A result of FakeTensorMode as a fake: the argument itself, a view of one, or a new tensor.
  at::Tensor back(const SessionState& session, const at::Tensor& found) const {
    for (const Row& row : rows_)
      if (row.theirs.is_same(found)) return row.ours;
    refuse_other_kinds(found);
    const c10::Device device = device_of_fake_tensor(found);
    for (const Row& row : rows_) {
      if (storage_of(row.theirs) != storage_of(found)) continue;
      if (as_fake(row.ours) == nullptr) break;
      const c10::TensorImpl* base = row.ours.unsafeGetTensorImpl();
      at::Tensor view = session.make(c10::Storage(base->unsafe_storage()), base->key_set(), found.dtype(), device);
      return with_geometry(view, found);
    }
    at::Tensor meta(at::detail::empty_strided_symint_meta(found.sym_sizes(), found.sym_strides(), found.scalar_type()));
    at::Tensor made = session.adopt(meta, device);
    if (found.is_conj()) made.unsafeGetTensorImpl()->_set_conj(true);
    if (found.is_neg()) made.unsafeGetTensorImpl()->_set_neg(true);
    return made;
  }

  // A mutating operator must leave the shape of its argument unchanged: our fake keeps it.
  bool are_unchanged() const {
    for (const Row& row : rows_) {
      if (row.ours.dim() != row.theirs.dim()) return false;
      for (int64_t i = 0; i < row.ours.dim(); i++) {
        // Compared by expression: a symbol that the operator has replaced by a constant compares as that constant.
        const c10::SymInt ours = row.ours.sym_size(i), theirs = row.theirs.sym_size(i);
        if (name_of(ours) != name_of(theirs)) return false;
      }
    }
    return true;
  }

 private:
  struct Row {
    at::Tensor ours, theirs;
  };
  struct Shared {
    const c10::StorageImpl* ours;
    c10::Storage theirs;
  };

  static at::Tensor with_geometry(const at::Tensor& made, const at::Tensor& found) {
    auto* impl = static_cast<FakeTensorImpl*>(made.unsafeGetTensorImpl());
    impl->copy_geometry(*found.unsafeGetTensorImpl());
    if (found.is_conj()) impl->_set_conj(true);
    if (found.is_neg()) impl->_set_neg(true);
    return made;
  }

  const py::object& mode_;
  std::vector<Row> rows_;
  std::vector<Shared> storages_;
};

}  // namespace

Borrowed SessionState::shape_env() {
  if (!shape_env_) {
    const Inactive inactive;  // modules that are imported now must not create fakes
    Ref module = import_module("torch.fx.experimental.symbolic_shapes");
    shape_env_ = checked(PyObject_CallMethod(module.get(), "ShapeEnv", nullptr));
  }
  return shape_env_;
}

Borrowed SessionState::symbolic_mode() {
  if (!symbolic_mode_) {
    const Inactive inactive;
    const auto env = py::reinterpret_borrow<py::object>(shape_env().get());
    symbolic_mode_ = Ref::steal(make_fake_tensor_mode(env).release().ptr());
  }
  return symbolic_mode_;
}

UnbackedSizes& SessionState::unbacked_sizes() {
  if (!unbacked_sizes_) unbacked_sizes_ = std::make_unique<UnbackedSizes>();
  return *unbacked_sizes_;
}

SessionState::Seen& seen_row(SessionState& session, const at::Tensor& tensor) {
  auto row = std::find_if(session.seen.begin(), session.seen.end(),
                          [&](const SessionState::Seen& seen) { return seen.ours.is_same(tensor); });
  const uint64_t writes = data_version(session, tensor);
  if (row != session.seen.end()) {
    if (row->writes == writes) return *row;
    session.seen.erase(row);
  }
  return session.seen.emplace_back(SessionState::Seen{tensor, writes, {}, {}});
}

void set_memo(const at::Tensor& fake_tensor, const c10::SymInt& count) {
  py::reinterpret_steal<py::object>(THPVariable_Wrap(fake_tensor)).attr("nonzero_memo") = py::cast(count);
}

uint64_t data_version(const SessionState& session, const at::Tensor& tensor) {
  constexpr uint64_t kOfSession = uint64_t{1} << 63;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const size_t own = session.real_of(tensor).defined() ? 2 : 1;  // the session holds the storage of an input
  if (impl->is_inference() || !impl->has_storage() || impl->unsafe_storage().use_count() > own)
    return session.counts_.writes.value() | kOfSession;
  return impl->version_counter().current_version();
}

Borrowed Session::shape_env() { return state_->shape_env(); }
bool Session::has_shape_env() const { return state_->has_shape_env(); }
void Session::capture_sizes(bool wanted) { state_->captures_sizes = wanted; }

Ref Session::as_fake_tensor(const at::Tensor& fake) {
  const OutsideSession outside;
  const py::object mode = py::reinterpret_borrow<py::object>(state_->symbolic_mode().get());
  return Ref::steal(THPVariable_Wrap(Converted(mode).of(fake)));
}

bool is_symbolic(const Call& call) {
  if (!call.session.has_shape_env()) return false;
  for (size_t i = 0; i < call.op.argument_count; i++)
    if (is_symbolic(call.arguments()[i])) return true;
  return false;
}

void compute_symbolically(const Call& call) {
  const py::gil_scoped_acquire gil;
  call.session.counts_.fake_tensor_mode++;
  const OutsideSession outside;
  const py::object mode = py::reinterpret_borrow<py::object>(call.session.symbolic_mode().get());
  Converted converted(mode);
  torch::jit::Stack arguments(call.arguments(), call.arguments() + call.op.argument_count);
  replace_tensors(arguments.data(), arguments.size(),
                  [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                    if (as_fake(tensor) == nullptr && tensor.unsafeGetTensorImpl()->is_wrapped_number())
                      return std::nullopt;
                    return call.op.dynamic_shape ? converted.again(call.session, tensor) : converted.of(tensor);
                  });
  py::object result;
  try {
    result = call_in_mode(mode, call.handle, arguments);
  } catch (const py::error_already_set& error) {
    if (is_data_dependent(error))
      fail(FailureKind::DataDependent, call.op.name, "the result depends on the data of a tensor");
    throw;
  }
  if (call.op.mutates && !converted.are_unchanged())
    fail(FailureKind::Unsupported, call.op.name, "a tensor of symbolic size would get another size");
  return_results(call, result, [&](const at::Tensor& tensor) { return converted.back(call.session, tensor); });
}

}  // namespace alternator::fake
