#include "fake/op_table.h"

#include "fake/rules/rules.h"
#include "fake/torch_version.h"
#include "py/forking.h"

#include <ATen/core/enum_tag.h>

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace alternator::fake {
namespace {

using c10::DispatchKey;

bool is_python(const c10::KernelFunction& kernel) { return !kernel.isValidUnboxed() && !kernel.isValidSymUnboxed(); }

// The newest kernel of that key that is (not) written in Python. Overridden kernels stay in the list.
c10::KernelFunction find_kernel(const c10::impl::OperatorEntry& entry, DispatchKey key, bool python) {
  const auto& kernels = entry.*member_of(access::Kernels{});
  const auto found = kernels.find(key);
  if (found == kernels.end()) return {};
  for (const auto& annotated : found->second) {
    if (annotated.kernel.isValid() && !annotated.kernel.isFallthrough() && is_python(annotated.kernel) == python)
      return annotated.kernel;
  }
  return {};
}

void choose_kernel(const c10::impl::OperatorEntry& entry, Op& op) {
  op.python_meta = find_kernel(entry, DispatchKey::Meta, /*python=*/true);
  if (const c10::KernelFunction* rule = find_rule(op.name)) {
    op.kernel = *rule;
    op.kind = KernelKind::Rule;
    return;
  }
  constexpr std::pair<DispatchKey, KernelKind> kOrder[] = {
      {DispatchKey::Meta, KernelKind::Meta},
      {DispatchKey::CompositeExplicitAutogradNonFunctional, KernelKind::Composite},
      {DispatchKey::CompositeExplicitAutograd, KernelKind::Composite},
      {DispatchKey::CompositeImplicitAutograd, KernelKind::Implicit},
  };
  // Outside of aten a composite may have side effects (send a tensor to other processes). If it has its own fake
  // kernel, that one is used, as the dispatcher would.
  const bool says = !op.is_core && op.python_meta.isValid();
  for (const auto& [key, kind] : kOrder) {
    if (says && kind != KernelKind::Meta) break;
    op.kernel = find_kernel(entry, key, /*python=*/false);
    if (op.kernel.isValid()) {
      op.kind = kind;
      return;
    }
  }
  if (op.python_meta.isValid()) {
    op.kernel = op.python_meta;
    op.kind = KernelKind::PythonMeta;
  }
}

bool asks_device(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {
#define ALT_ASKS_DEVICE(NAME) NAME,
#include "fake/asks_device.def"
#undef ALT_ASKS_DEVICE
  };
  return names.contains(name);
}

bool mixes_devices(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {
#define ALT_MIXES_DEVICES(NAME) NAME,
#include "fake/mixed_devices.def"
  };
  return names.contains(name);
}

constexpr uint64_t kEveryArgument = ~uint64_t{0};

// As a bit set.
std::optional<uint64_t> named_cpu_scalars(std::string_view name) {
  static const std::unordered_map<std::string_view, uint64_t> names = {
#define ALT_TAKES_CPU_SCALARS(NAME) {NAME, kEveryArgument},
#define ALT_TAKES_CPU_SCALAR_AT(NAME, ARGUMENT) {NAME, uint64_t{1} << (ARGUMENT)},
#include "fake/mixed_devices.def"
  };
  const auto found = names.find(name);
  return found != names.end() ? std::optional(found->second) : std::nullopt;
}

bool mentions_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  for (const c10::TypePtr& inner : type->containedTypes()) {
    if (mentions_tensors(inner)) return true;
  }
  return false;
}

// A dtype, which only the schema distinguishes from an int.
bool is_dtype(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

// Changes when a kernel is registered or removed, or when another operator is allocated at the same address.
uint64_t fingerprint_of(const c10::impl::OperatorEntry& entry) {
  const c10::OperatorName& name = entry.operator_name();
  uint64_t result = std::hash<std::string>()(name.name) ^ std::hash<std::string>()(name.overload_name) * 31;
  const auto& kernels = entry.*member_of(access::Kernels{});
  for (const DispatchKey key : {DispatchKey::Meta, DispatchKey::CompositeExplicitAutogradNonFunctional,
                                DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeImplicitAutograd}) {
    const auto found = kernels.find(key);
    if (found == kernels.end()) continue;
    for (const auto& annotated : found->second)
      result = result * 0x100000001B3ull ^ reinterpret_cast<uintptr_t>(&annotated);
  }
  return result;
}

// Composites call operators that check their arguments themselves.
bool has_own_kernel(const c10::impl::OperatorEntry& entry) {
  const auto& kernels = entry.*member_of(access::Kernels{});
  auto has = [&](DispatchKey key) { return kernels.find(key) != kernels.end(); };
  return has(DispatchKey::CPU) ||
         !(has(DispatchKey::CompositeImplicitAutograd) || has(DispatchKey::CompositeExplicitAutograd) ||
           has(DispatchKey::CompositeExplicitAutogradNonFunctional));
}

std::unique_ptr<Op> describe(const c10::OperatorHandle& handle, const c10::impl::OperatorEntry& entry) {
  auto op = std::make_unique<Op>();
  const c10::FunctionSchema& schema = handle.schema();
  const std::string& base_name = handle.operator_name().name;
  op->name = base_name;
  if (!handle.operator_name().overload_name.empty()) op->name += "." + handle.operator_name().overload_name;
  op->argument_count = static_cast<uint16_t>(schema.arguments().size());
  op->return_count = static_cast<uint16_t>(schema.returns().size());
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    const c10::Argument& argument = schema.arguments()[i];
    c10::TypePtr type = argument.type();
    if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
    op->has_tensor_arguments |= mentions_tensors(type);
    op->takes_objects |= type->kind() == c10::TypeKind::ClassType;
    if (is_dtype(argument)) op->dtype_argument = static_cast<int16_t>(i);
    if (type->kind() == c10::TypeKind::DeviceObjType) op->device_argument = static_cast<int16_t>(i);
    if (const c10::AliasInfo* alias = argument.alias_info(); alias != nullptr && alias->isWrite()) {
      op->mutates = true;
      if (i < 64) op->written_arguments |= uint64_t{1} << i;
    }
  }
  for (const c10::Argument& output : schema.returns()) {
    const c10::AliasInfo* alias = output.alias_info();
    if (alias != nullptr && !alias->isWrite()) op->returns_view = true;
    op->has_tensors |= mentions_tensors(output.type());
  }
  op->has_tensors |= op->has_tensor_arguments;
  op->is_core = base_name.starts_with("aten::") || base_name.starts_with("prims::");
  op->fingerprint = fingerprint_of(entry);
  op->data_dependent = handle.hasTag(at::Tag::data_dependent_output);
  op->dynamic_shape = handle.hasTag(at::Tag::dynamic_output_shape);
  op->random = handle.hasTag(at::Tag::nondeterministic_seeded);
  op->checks = base_name.starts_with("aten::_assert_") || base_name == "aten::_linalg_check_errors" ||
               base_name.starts_with("aten::sym_constrain_range");
  op->is_index = base_name == "aten::index";
  op->takes_indices =
      op->is_index || base_name == "aten::_unsafe_index" || base_name.find("index_put") != std::string::npos;
  op->asks_device = asks_device(base_name);
  op->counts_known = op->name == "aten::repeat_interleave.Tensor";
  op->is_foreach = base_name.starts_with("aten::_foreach_");
  op->is_lift = base_name == "aten::lift_fresh" || base_name == "aten::lift" || base_name == "aten::lift_fresh_copy";
  op->mixes_devices = op->is_foreach || mixes_devices(base_name);
  op->cpu_scalars = named_cpu_scalars(base_name).value_or(op->is_core && has_own_kernel(entry) ? 0 : kEveryArgument);
  choose_kernel(entry, *op);
  return op;
}

// Read without a lock: an open-addressing table of operators, which live as long as the process.
struct Table {
  static constexpr size_t kSlots = 1 << 14;
  static constexpr size_t kProbes = 16;
  struct Slot {
    std::atomic<const void*> key{nullptr};
    std::atomic<Op*> op{nullptr};
  };
  std::array<Slot, kSlots> slots;
  std::mutex mutex;
  // Operators that found no slot; and every operator ever created, because another thread may still read it.
  std::unordered_map<const void*, Op*> more;
  std::vector<std::unique_ptr<Op>> owned;

  static size_t first_slot(const void* key) {
    return (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15ull >> 50;
  }
  Slot* find(const void* key, bool or_free) {
    size_t slot = first_slot(key);
    for (size_t probe = 0; probe < kProbes; probe++, slot = (slot + 1) % kSlots) {
      const void* there = slots[slot].key.load(std::memory_order_acquire);
      if (there == key || (or_free && there == nullptr)) return &slots[slot];
      if (there == nullptr) return nullptr;
    }
    return nullptr;
  }
};

Table& table() {
  static auto* instance = new Table;  // Never freed: threads may still run at exit.
  return *instance;
}

[[maybe_unused]] const bool in_child = in_children([] { new (&table().mutex) std::mutex; });

bool is_current(const Op& op, const c10::impl::OperatorEntry& entry) {
  return op.is_core || op.fingerprint == fingerprint_of(entry);
}

}  // namespace

const char* name_of(KernelKind kind) {
  constexpr const char* kNames[] = {"rule", "meta", "composite", "implicit", "python", "none"};
  return kNames[static_cast<size_t>(kind)];
}

Op& op_of(const c10::OperatorHandle& handle) {
  const auto* definition = handle.*member_of(access::OperatorDef{});
  Table& all = table();
  if (const Table::Slot* slot = all.find(definition, /*or_free=*/false)) [[likely]] {
    Op* op = slot->op.load(std::memory_order_acquire);
    if (is_current(*op, definition->op)) [[likely]]
      return *op;
  }
  const std::lock_guard lock(all.mutex);
  Table::Slot* slot = all.find(definition, /*or_free=*/true);
  Op* known = slot != nullptr ? slot->op.load(std::memory_order_relaxed) : all.more[definition];
  if (known != nullptr && is_current(*known, definition->op)) return *known;
  Op* made = all.owned.emplace_back(describe(handle, definition->op)).get();
  if (slot == nullptr) {
    all.more[definition] = made;
  } else {
    slot->op.store(made, std::memory_order_release);
    slot->key.store(definition, std::memory_order_release);
  }
  return *made;
}

}  // namespace alternator::fake
