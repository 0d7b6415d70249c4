#include "guards/tensor_watch.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>

namespace alternator::guards {

namespace {

using torch::autograd::AutogradMeta;

// Members without an accessor, or with one that does too much. An explicit template instantiation may name private
// members.
template <class Tag, auto kMember>
struct Bind {
  friend constexpr auto exposed(Tag) { return kMember; }
};
#define ALT_EXPOSE(name)                      \
  struct Of_##name {                          \
    friend constexpr auto exposed(Of_##name); \
  };                                          \
  template struct Bind<Of_##name, &c10::TensorImpl::name>;
ALT_EXPOSE(autograd_meta_)
ALT_EXPOSE(sizes_and_strides_)
ALT_EXPOSE(storage_offset_)
ALT_EXPOSE(data_type_)
ALT_EXPOSE(key_set_)
#undef ALT_EXPOSE

template <class Tag>
const char* address(const c10::TensorImpl* impl, Tag tag) {
  return reinterpret_cast<const char*>(&(impl->*exposed(tag)));
}

const AutogradMeta* autograd_of(const c10::TensorImpl* impl) {
  return static_cast<const AutogradMeta*>((impl->*exposed(Of_autograd_meta_{})).get());
}

template <size_t kCount>
std::array<uint64_t, kCount> words_at(const char* from) {
  std::array<uint64_t, kCount> words;
  std::memcpy(words.data(), from, sizeof(words));
  return words;
}

uint64_t word_at(const char* from) { return words_at<1>(from)[0]; }

// Two adjacent words; the compiler picks SIMD instructions.
using Pair = uint64_t __attribute__((vector_size(16)));

inline Pair pair_at(const void* from) {
  Pair pair;
  std::memcpy(&pair, from, sizeof(pair));
  return pair;
}

// Unrolled, since a loop costs more than its body. `wanted` is aligned like a Pair. All zero: equal.
template <size_t kCount>
[[gnu::always_inline]] inline Pair difference(const char* from, const std::array<uint64_t, kCount>& wanted) {
  const auto* pairs = static_cast<const char*>(__builtin_assume_aligned(wanted.data(), sizeof(Pair)));
  return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return ((pair_at(from + kIndex * sizeof(Pair)) ^ pair_at(pairs + kIndex * sizeof(Pair))) | ...);
  }(std::make_index_sequence<kCount / 2>());
}

// The same pointer, hidden from the optimizer's alias knowledge: the memory behind it is then loaded while the
// comparison is still in flight.
template <class T>
[[gnu::always_inline]] inline T* known(T* pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}

// The words of `Facts` are exactly these members: dtype, device and flags precede the dispatch keys.
bool is_laid_out_as_known(const c10::TensorImpl* impl) {
  return sizeof(c10::impl::SizesAndStrides) == 11 * sizeof(uint64_t) &&
         address(impl, Of_key_set_{}) + sizeof(c10::DispatchKeySet) - address(impl, Of_data_type_{}) ==
             2 * sizeof(uint64_t);
}

// Tensors whose TensorImpl answers from its own fields: no Python subclass, no wrapper, nothing sparse or nested.
bool has_plain_keys(c10::DispatchKeySet keys) {
  using c10::DispatchKey;
  const c10::DispatchKeySet plain =
      c10::DispatchKeySet({DispatchKey::Dense, DispatchKey::ADInplaceOrView, DispatchKey::AutogradFunctionality,
                           DispatchKey::Conjugate, DispatchKey::Negative}) |
      c10::autocast_dispatch_keyset;
  return (keys.raw_repr() & ~(plain.raw_repr() | c10::full_backend_mask)) == 0;
}

// Sizes and strides are stored inline.
bool has_plain_geometry(const c10::TensorImpl* impl) {
  const char* inside = address(impl, Of_sizes_and_strides_{}) + sizeof(uint64_t);
  const auto* sizes = reinterpret_cast<const char*>(impl->sizes().data());
  const auto* strides = reinterpret_cast<const char*>(impl->strides().data());
  return sizes == inside && strides == inside + 5 * sizeof(int64_t);
}

// Parameters of one shape are mostly adjacent.
constexpr size_t kLookBack = 16;

}  // namespace

TensorWatches::Watch TensorWatches::watch(PyObject* object, const lift::TensorSpec& spec, uint32_t check) {
  Watch watch{object, nullptr, nullptr, 0, check};
  const c10::TensorImpl* impl = fake::unpack(object).unsafeGetTensorImpl();
  if (spec.without_hooks || !spec.has_geometry || !has_plain_keys(impl->key_set()) || !is_laid_out_as_known(impl) ||
      !has_plain_geometry(impl)) {
    return watch;
  }
  Facts facts{};
  facts.type = Py_TYPE(object);
  facts.geometry = words_at<11>(address(impl, Of_sizes_and_strides_{}));
  facts.kind = words_at<2>(address(impl, Of_data_type_{}));
  facts.offset = spec.offset.value_or(0);
  facts.has_offset = spec.offset.has_value();
  if (const AutogradMeta* autograd = autograd_of(impl)) {
    // Metadata of a view depends on its base. A tensor with a grad_fn does not recur.
    if (autograd->is_view_ || autograd->grad_fn_ != nullptr || autograd->fw_grad_ != nullptr) return watch;
    facts.requires_grad = autograd->requires_grad_;
    watch.autograd = autograd;
  }
  const size_t oldest = facts_.size() > kLookBack ? facts_.size() - kLookBack : 0;
  size_t known = facts_.size();
  while (known > oldest && !(facts_[known - 1] == facts)) known--;
  if (known > oldest) {
    known--;
  } else {
    known = facts_.size();
    facts_.push_back(facts);
  }
  watch.facts = static_cast<uint32_t>(known);
  watch.impl = impl;
  return watch;
}

void TensorWatches::add(PyObject* object, const lift::TensorSpec& spec, uint32_t check) {
  watches_.push_back(watch(object, spec, check));
}

void TensorWatches::renew(size_t index, const lift::TensorSpec& spec) {
  // A tensor that changes repeatedly without failing its guard is not worth watching.
  if (facts_.size() > 2 * watches_.size() + kLookBack) {
    watches_[index].impl = nullptr;
    return;
  }
  watches_[index] = watch(watches_[index].object, spec, watches_[index].check);
}

// Each pointer is compared before it is dereferenced: an address that is still in use is not a freed one.
inline bool TensorWatches::is_unchanged(const Watch& watch) const noexcept {
  if (fake::unpack(watch.object).unsafeGetTensorImpl() != watch.impl) return false;
  const c10::TensorImpl* impl = known(watch.impl);
  if (autograd_of(impl) != watch.autograd) return false;
  const Facts& facts = facts_[watch.facts];
  const char* geometry = address(impl, Of_sizes_and_strides_{});
  const Pair pairs = difference(geometry, facts.geometry) | difference(address(impl, Of_data_type_{}), facts.kind);
  uint64_t differences = pairs[0] | pairs[1] | (word_at(geometry + 10 * sizeof(uint64_t)) ^ facts.geometry[10]) |
                         (reinterpret_cast<uintptr_t>(Py_TYPE(watch.object)) ^ reinterpret_cast<uintptr_t>(facts.type));
  if (facts.has_offset) differences |= static_cast<uint64_t>(impl->*exposed(Of_storage_offset_{}) ^ facts.offset);
  if (watch.autograd != nullptr) {
    const AutogradMeta* autograd = known(watch.autograd);
    differences |= reinterpret_cast<uintptr_t>(autograd->grad_fn_.get()) |
                   reinterpret_cast<uintptr_t>(autograd->fw_grad_.get()) |
                   static_cast<uint64_t>(autograd->requires_grad_ != facts.requires_grad) |
                   static_cast<uint64_t>(autograd->is_view_);
  }
  return differences == 0;
}

size_t TensorWatches::next_changed(size_t begin) const noexcept {
  const size_t count = watches_.size();
  while (begin < count && is_unchanged(watches_[begin])) begin++;
  return begin;
}

}  // namespace alternator::guards
