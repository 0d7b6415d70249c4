#include "lift/sources/tensor_spec.h"

#include "py/lasting.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <sstream>

namespace alternator::lift {

namespace {

namespace ag = torch::autograd;

// The part that lives in the autograd metadata; most tensors have none.
struct History {
  bool requires_grad = false, is_leaf = true, has_tangent = false, is_view = false, base_is_leaf = false;
  uint8_t view_origin = 0;
};

History history_of(const at::Tensor& tensor) {
  History history;
  const auto* meta = static_cast<const ag::AutogradMeta*>(tensor.unsafeGetTensorImpl()->autograd_meta());
  if (meta == nullptr) return history;
  history.has_tangent = meta->fw_grad_ != nullptr;
  if (!meta->is_view_) {
    history.is_leaf = meta->grad_fn_ == nullptr;
    history.requires_grad = meta->requires_grad_ || !history.is_leaf;
    return history;
  }
  const auto* view = static_cast<const ag::DifferentiableViewMeta*>(meta);
  history.requires_grad = view->requires_grad();  // also if only its base does, by an in-place write
  if (!history.requires_grad) return history;
  history.is_leaf = tensor.is_leaf();  // updates grad_fn of a view, as reading it in Python would
  history.is_view = view->has_bw_view();
  if (history.is_view) {
    history.base_is_leaf = view->get_backward_view().base_.is_leaf();
    history.view_origin = static_cast<uint8_t>(view->get_creation_meta());
  }
  return history;
}

// Neither a hook on the tensor nor one on its gradient accumulator.
bool has_no_hooks(const at::Tensor& tensor) {
  const ag::AutogradMeta* meta = ag::impl::get_autograd_meta(tensor);
  if (meta == nullptr) return true;
  if (!meta->hooks_.empty() || meta->post_acc_grad_hooks_ != nullptr) return false;
  const auto last = meta->grad_accumulator_.lock();
  return !last || (last->pre_hooks().empty() && last->post_hooks().empty() && last->tensor_pre_hooks().empty() &&
                   last->retains_grad_hooks().empty());
}

bool same(c10::IntArrayRef a, const std::vector<int64_t>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

// With stride rules.
bool has_geometry_of(const TensorSpec& spec, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (sizes.size() != spec.sizes.size()) return false;
  for (size_t d = 0; d < sizes.size(); d++) {
    if ((spec.free_sizes >> d & 1) == 0 && sizes[d] != spec.sizes[d]) return false;
  }
  return follow_rules(spec.stride_rules, sizes, strides, spec.strides);
}

// Sizes that are free are shown as `?`.
std::string numbers(const std::vector<int64_t>& values, uint64_t free = 0) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); i++) {
    text += (i > 0 ? ", " : "") + (i < 64 && (free >> i & 1) != 0 ? std::string("?") : std::to_string(values[i]));
  }
  return text + "]";
}

// "0, 2": the bits.
std::string dimensions(uint64_t bits) {
  std::string text;
  for (int d = 0; d < 64; d++) {
    if ((bits >> d & 1) != 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  }
  return text;
}

std::string type_name(const Ref& type) {
  auto* t = type.as<PyTypeObject>();
  const std::string name = t->tp_name;
  return "a " + name.substr(name.rfind('.') + 1);
}

template <class T>
std::string streamed(const T& value) {
  std::ostringstream stream;
  stream << value;
  return stream.str();
}

std::string dtype_name(c10::ScalarType dtype) {
  std::string name = c10::toString(dtype);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

using Words = std::vector<std::string>;

// One word or phrase per field, in a fixed order.
Words words_of(const TensorSpec& s) {
  auto if_set = [](bool set, const char* yes, const char* no = "") { return std::string(set ? yes : no); };
  const bool conjugated = s.keys.has(c10::DispatchKey::Conjugate), negated = s.keys.has(c10::DispatchKey::Negative);
  const bool inference = !s.keys.has(c10::DispatchKey::ADInplaceOrView);
  return {
      type_name(s.type),
      "of dtype " + dtype_name(s.dtype),
      s.has_geometry ? "of size " + numbers(s.sizes, s.free_sizes) : std::string("of a size that is not fixed"),
      "with strides " + numbers(s.strides),
      "on " + s.device.str(),
      "of layout " + streamed(s.layout),
      if_set(s.requires_grad, "requiring grad", "not requiring grad"),
      if_set(s.is_leaf, "a leaf", "with a history"),
      if_set(inference, "made in inference mode", "not made in inference mode"),
      if_set(conjugated, "conjugated", "not conjugated"),
      if_set(negated, "negated", "not negated"),
      if_set(s.is_wrapped_number, "a wrapped number", "not a wrapped number"),
      if_set(s.has_tangent, "with a tangent", "without a tangent"),
      if_set(s.is_view, "a view", "not a view") + (s.is_view ? ", of kind " + std::to_string(s.view_origin) : ""),
      if_set(s.base_is_leaf, "of a leaf", "not of a leaf"),
      s.offset ? "at offset " + std::to_string(*s.offset) : std::string("at any offset"),
      if_set(s.without_hooks, "without hooks"),
      s.marks != 0 ? "with dimensions marked as dynamic: " + dimensions(s.marks) : std::string("without such marks"),
      "with dispatch keys " + c10::toString(s.keys),
  };
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

TensorSpec describe_tensor(Borrowed object) {
  const at::Tensor& tensor = fake::unpack(object.get());
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const History history = history_of(tensor);
  TensorSpec spec;
  spec.type = Ref::share(reinterpret_cast<PyObject*>(object.type()));
  spec.keys = impl->key_set();
  spec.dtype = impl->dtype().toScalarType();
  spec.device = impl->device();
  spec.layout = impl->layout();
  spec.is_wrapped_number = impl->is_wrapped_number();
  spec.requires_grad = history.requires_grad;
  spec.is_leaf = history.is_leaf;
  spec.has_tangent = history.has_tangent;
  spec.is_view = history.is_view;
  spec.base_is_leaf = history.base_is_leaf;
  spec.view_origin = history.view_origin;
  spec.marks = dynamic_marks_of(object.get());
  spec.has_geometry = spec.layout == c10::kStrided && !spec.keys.has(c10::DispatchKey::NestedTensor) &&
                      !impl->has_symbolic_sizes_strides();
  if (spec.has_geometry) {
    spec.sizes = impl->sizes().vec();
    spec.strides = impl->strides().vec();
  }
  return spec;
}

bool TensorSpec::matches(const at::Tensor& tensor, PyTypeObject* python_type) const noexcept {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (python_type != type.as<PyTypeObject>() || impl->key_set() != keys || !has_geometry ||
      impl->has_symbolic_sizes_strides() || impl->dtype().toScalarType() != dtype || impl->device() != device ||
      impl->layout() != layout || impl->is_wrapped_number() != is_wrapped_number) {
    return false;
  }
  if (stride_rules.empty()) [[likely]] {
    if (!same(impl->sizes(), sizes) || !same(impl->strides(), strides)) return false;
  } else if (!has_geometry_of(*this, impl->sizes(), impl->strides())) {
    return false;
  }
  if (offset && impl->storage_offset() != *offset) return false;
  if (without_hooks && !has_no_hooks(tensor)) return false;
  const History history = history_of(tensor);
  return history.requires_grad == requires_grad && history.is_leaf == is_leaf && history.has_tangent == has_tangent &&
         history.is_view == is_view && history.base_is_leaf == base_is_leaf && history.view_origin == view_origin;
}

TensorSpec::Difference TensorSpec::difference(PyObject* object) const {
  if (!is_tensor(object) || !has_geometry) return {};
  TensorSpec found = describe_tensor(object);
  if (!found.has_geometry || std::max(found.sizes.size(), sizes.size()) >= kOffsetBit) return {};
  Difference different;
  const bool same_rank = found.sizes.size() == sizes.size();
  const StrideRules mine = stride_rules_of(sizes, strides), its = stride_rules_of(found.sizes, found.strides);
  for (size_t d = 0; d < sizes.size() && same_rank; d++) {
    if (found.sizes[d] != sizes[d] && (free_sizes >> d & 1) == 0) different.sizes |= uint64_t{1} << d;
    const bool is_open = d < stride_rules.size() && stride_rules[d] == kAnyStride;
    if (found.strides[d] != strides[d] && !is_open && mine[d] == kFixedStride && its[d] == kFixedStride)
      different.layout |= uint64_t{1} << d;
  }
  if (!same_rank) different.sizes = ~uint64_t{0};  // what differs so much may differ in all
  if (offset && fake::unpack(object).storage_offset() != *offset) different.layout |= uint64_t{1} << kOffsetBit;
  found.sizes = sizes;
  found.strides = strides;
  found.offset = offset;
  found.without_hooks = without_hooks;
  found.marks = marks;
  found.reads_marks = reads_marks;
  found.free_sizes = free_sizes;
  found.stride_rules = stride_rules;
  return found == *this ? different : Difference();
}

std::string TensorSpec::text() const {
  const Words all = words_of(*this);
  Words some(all.begin(), all.begin() + 3);
  // Strides only if they are not the contiguous ones.
  int64_t expected = 1;
  bool contiguous = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    contiguous = contiguous && (sizes[i] == 1 || strides[i] == expected);
    expected *= sizes[i];
  }
  if (!contiguous) some.push_back(all[3]);
  some.push_back(all[4]);
  if (layout != c10::kStrided) some.push_back(all[5]);
  if (requires_grad) some.push_back(all[6]);
  if (!is_leaf) some.push_back(all[7]);
  return joined(some);
}

std::string TensorSpec::text_against(const TensorSpec& other) const {
  // Sizes that are free in one of them do not count; strides follow from sizes.
  TensorSpec one = *this, two = other;
  one.free_sizes = two.free_sizes = free_sizes | other.free_sizes;
  if (one.free_sizes != 0 && sizes.size() == other.sizes.size()) two.strides = one.strides;
  if (!reads_marks && !other.reads_marks) two.marks = one.marks;
  const Words mine = words_of(one), theirs = words_of(two);
  Words different;
  for (size_t i = 0; i < mine.size(); i++) {
    // The dispatch keys repeat other fields: shown only if nothing else differs.
    if (mine[i] != theirs[i] && (i + 1 < mine.size() || different.empty())) different.push_back(mine[i]);
  }
  if (different.empty() && !has_geometry) return "of a kind that cannot be compared";
  return different.empty() ? text() : joined(different);
}

PyObject* any_tensor() {
  // Not interned: no key of a dict is this object.
  static constinit Lasting<PyObject*> text;
  return text.get([] { return checked(PyUnicode_FromString("a tensor")).release(); });
}

PyObject* any_key() {
  static constinit Lasting<PyObject*> text;
  return text.get([] { return checked(PyUnicode_FromString("any object")).release(); });
}

}  // namespace alternator::lift
