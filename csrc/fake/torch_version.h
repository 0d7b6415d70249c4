// The differences between the supported versions of torch, and the private members of torch that the fakes need. No
// other file in this folder checks a version or accesses private members.
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

// The slot of the thread's debug information that identifies the session of a backward pass. Nothing else uses it.
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

// An explicit instantiation may name a private member: the tag's friend function then returns its address.
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
