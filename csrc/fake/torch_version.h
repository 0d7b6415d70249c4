// What differs between the versions of torch that we build against, and the private members of torch
// that the fakes need. Nothing else in this room looks at a version or reaches past `private`.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/headeronly/version.h>

#include <utility>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11 || TORCH_VERSION_MINOR > 13
#error \
    "alternator's fakes know torch 2.11 to 2.13: check DispatchKey::Fake's place, OperatorEntry::kernels_, StorageImpl's data checks and the autograd Node's pointer type before adding a version"
#endif

namespace alternator::fake {

// std::shared_ptr<Node> up to 2.12, c10::intrusive_ptr<Node> from 2.13.
using NodePtr = decltype(torch::autograd::Edge::function);

// The slot of the thread's debug information that says which session a backward pass belongs to. Nobody else uses it.
inline const auto kSessionInfo = c10::DebugInfoKind::TEST_INFO_2;

template <class Node, class... Arguments>
NodePtr make_node(Arguments&&... arguments) {
#if TORCH_VERSION_MINOR >= 13
  return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
#else
  return std::shared_ptr<torch::autograd::Node>(new Node(std::forward<Arguments>(arguments)...),
                                                torch::autograd::deleteNode);
#endif
}

namespace access {

// An explicit instantiation may name a private member: the tag's friend function then hands its address out.
template <class Tag, auto Member>
struct Expose {
  friend constexpr auto member_of(Tag) { return Member; }
};

#define ALT_EXPOSE(NAME, ...)              \
  struct NAME {                            \
    friend constexpr auto member_of(NAME); \
  };                                       \
  template struct Expose<NAME, __VA_ARGS__>

ALT_EXPOSE(OperatorDef, &c10::OperatorHandle::operatorDef_);
ALT_EXPOSE(Kernels, &c10::impl::OperatorEntry::kernels_);
ALT_EXPOSE(ThrowOnConstData, &c10::StorageImpl::throw_on_immutable_data_ptr_);
ALT_EXPOSE(ThrowOnMutableData, &c10::StorageImpl::throw_on_mutable_data_ptr_);
ALT_EXPOSE(HasDataCheck, &c10::StorageImpl::has_mutable_data_ptr_check_);
ALT_EXPOSE(DataPointer, &c10::StorageImpl::data_ptr_);
ALT_EXPOSE(VersionCounter, &c10::VariableVersion::version_counter_);

#undef ALT_EXPOSE

}  // namespace access
}  // namespace alternator::fake
