#include "fake/op_table.h"

#include "fake/rules/rules.h"
#include "fake/version.h"

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

// The newest kernel of that key that is (not) written in Python. Kernels that others were put over stay in the list.
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
  for (const auto& [key, kind] : kOrder) {
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

bool mixes_devices(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {
#define ALT_MIXES_DEVICES(NAME) NAME,
#include "fake/mixed_devices.def"
#undef ALT_MIXES_DEVICES
  };
  return names.contains(name);
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
    if (type->kind() == c10::TypeKind::DeviceObjType) op->device_argument = static_cast<int16_t>(i);
    if (const c10::AliasInfo* alias = argument.alias_info(); alias != nullptr && alias->isWrite()) {
      op->mutates = true;
      if (i < 64) op->written_arguments |= uint64_t{1} << i;
    }
  }
  for (const c10::Argument& output : schema.returns()) {
    const c10::AliasInfo* alias = output.alias_info();
    if (alias != nullptr && !alias->isWrite()) op->returns_view = true;
  }
  op->data_dependent = handle.hasTag(at::Tag::data_dependent_output);
  op->dynamic_shape = handle.hasTag(at::Tag::dynamic_output_shape);
  op->random = handle.hasTag(at::Tag::nondeterministic_seeded);
  op->is_index = base_name == "aten::index";
  op->is_foreach = base_name.starts_with("aten::_foreach_");
  op->mixes_devices = op->is_foreach || mixes_devices(base_name);
  choose_kernel(entry, *op);
  return op;
}

// Read without a lock: an open-addressed table of operators, which live as long as the process.
struct Table {
  static constexpr size_t kSlots = 1 << 14;
  struct Slot {
    std::atomic<const void*> key{nullptr};
    std::atomic<Op*> op{nullptr};
  };
  std::array<Slot, kSlots> slots;
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Op>> owned;
};

Table& table() {
  static auto* instance = new Table;  // Never freed: threads may still run at exit.
  return *instance;
}

size_t slot_of(const void* key) { return (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15ull >> 50; }

}  // namespace

const char* name_of(KernelKind kind) {
  constexpr const char* kNames[] = {"rule", "meta", "composite", "implicit", "python", "none"};
  return kNames[static_cast<size_t>(kind)];
}

Op& op_of(const c10::OperatorHandle& handle) {
  const auto* definition = handle.*member_of(access::OperatorDef{});
  Table& all = table();
  size_t slot = slot_of(definition);
  for (int probe = 0; probe < 8; probe++, slot = (slot + 1) % Table::kSlots) {
    const void* key = all.slots[slot].key.load(std::memory_order_acquire);
    if (key == definition) [[likely]] return *all.slots[slot].op.load(std::memory_order_relaxed);
    if (key == nullptr) break;
  }
  const std::lock_guard lock(all.mutex);
  auto& owned = all.owned[definition];
  if (owned == nullptr) owned = describe(handle, definition->op);
  slot = slot_of(definition);
  for (int probe = 0; probe < 8; probe++, slot = (slot + 1) % Table::kSlots) {
    const void* key = all.slots[slot].key.load(std::memory_order_relaxed);
    if (key == definition) break;
    if (key == nullptr) {
      all.slots[slot].op.store(owned.get(), std::memory_order_relaxed);
      all.slots[slot].key.store(definition, std::memory_order_release);
      break;
    }
  }
  return *owned;
}

}  // namespace alternator::fake
