#include "guards/ambient.h"

#include "py/import.h"
#include "py/lasting.h"

#include "cpython/digits.h"
#include "cpython/objects.h"
#include "fake/functorch_state.h"
#include "guards/guard_mutants.h"
#include "lift/sources/plain.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace alternator::guards {

namespace {

constexpr auto& kAutocastDevices = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;

// Autocast keys are compared below, device by device.
uint64_t without_autocast(c10::DispatchKeySet keys) { return (keys - c10::autocast_dispatch_keyset).raw_repr(); }

// Thread-local variables that torch exposes by reference: their addresses are stable for the thread's life, and each
// accessor is a call into another library.
struct Variables {
  const c10::AutogradState* autograd = nullptr;
  const c10::impl::PODLocalDispatchKeySet* keys = nullptr;
  const at::impl::SavedTensorDefaultHooksTLS* saved = nullptr;
  const std::shared_ptr<torch::jit::tracer::TracingState>* jit = nullptr;
};
thread_local Variables variables __attribute__((tls_model("initial-exec")));

const Variables& variables_here() {
  if (variables.autograd == nullptr) [[unlikely]] {
    variables = {&c10::AutogradState::get_tls_state(), &c10::impl::raw_local_dispatch_key_set,
                 &at::SavedTensorDefaultHooks::get_tls_state(), &torch::jit::tracer::getTracingState()};
  }
  return variables;
}

// State that several rows of ambient.def read.
struct Around {
  const Variables& here = variables_here();
  const c10::AutogradState& autograd = *here.autograd;
  const c10::impl::LocalDispatchKeySet keys{*here.keys};
  const at::impl::SavedTensorDefaultHooksTLS& saved = *here.saved;
  const at::Context& context = at::globalContext();
  bool jit_traces() const { return static_cast<bool>(*here.jit); }
};

PyObject* function_mode_at(int64_t index) {
  return at::impl::PythonTorchFunctionTLS::get_stack_at(index)->ptr(getPyInterpreter());
}
PyObject* dispatch_mode_at(int64_t index) {
  return c10::impl::TorchDispatchModeTLS::get_stack_at(index)->ptr(getPyInterpreter());
}

PyTypeObject* device_context_type() {
  static constinit Lasting<PyTypeObject*> type;
  return type.get([] {
    Ref module = import_module("torch.utils._device");
    return reinterpret_cast<PyTypeObject*>(checked(PyObject_GetAttrString(module.get(), "DeviceContext")).release());
  });
}

// The device of a torch.utils._device.DeviceContext, read without running code.
std::optional<c10::Device> device_of(PyObject* mode) {
  static constinit Lasting<PyObject*> text;
  PyObject* name = text.get([] { return checked(PyUnicode_InternFromString("device")).release(); });
  PyObject* device = nullptr;
  lift::KeySafety safety = lift::KeySafety::kUnasked;
  if (PyObject* dict = cpython::instance_dict(mode)) {
    lift::find_item(dict, name, &device, &safety);
  } else {
    device = cpython::inline_attribute(mode, name);
  }
  if (device == nullptr || !THPDevice_Check(device)) return std::nullopt;
  return reinterpret_cast<THPDevice*>(device)->device;
}

std::string shown(bool value) { return value ? "on" : "off"; }
std::string shown(c10::ScalarType value) { return c10::toString(value); }
std::string shown(uint64_t keys) { return c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys)); }
std::string shown(int value) {
  static constexpr const char* kStates[] = {"enabled", "disabled for subclasses", "disabled"};
  return value >= 0 && value < 3 ? kStates[value] : std::to_string(value);
}
std::string shown(const AutocastState& state) {
  std::string text;
  for (size_t i = 0; i < AutocastState::kDevices; i++) {
    if (state.off.has(at::autocast::get_autocast_dispatch_key_from_device_type(kAutocastDevices[i]))) continue;
    text += (text.empty() ? "" : " and ") + c10::DeviceTypeName(kAutocastDevices[i], /*lower_case=*/true) + " (" +
            c10::toString(state.dtypes[i]) + ")";
  }
  return text.empty() ? "off" : "on for " + text + (state.cache ? "" : " without its cache");
}

// Two different states may have the same description (a dtype for a device for which autocast is off).
std::string sentence(const char* subject, const std::string& wanted, const std::string& got) {
  if (wanted == got) return std::string(subject) + " is not as it was";
  return std::string(subject) + " is " + wanted + ", not " + got;
}

// size_t and uint64_t are one type here: counts are shown as numbers.
template <class T>
std::string shown_field(const char* field, const T& value) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (std::string_view(field).ends_with("_keys")) return shown(value);
    return std::to_string(value);
  } else {
    return shown(value);
  }
}

}  // namespace

AutocastState AutocastState::now(c10::DispatchKeySet excluded) {
  AutocastState state;
  state.off = excluded & c10::autocast_dispatch_keyset;
  for (size_t i = 0; i < kDevices; i++) state.dtypes[i] = at::autocast::get_autocast_dtype(kAutocastDevices[i]);
  state.cache = at::autocast::is_autocast_cache_enabled();
  return state;
}

AmbientGuard::Mode AmbientGuard::describe(PyObject* mode) {
  Mode described{Pin(mode), Ref::share(reinterpret_cast<PyObject*>(Py_TYPE(mode))), std::nullopt};
  if (Py_IS_TYPE(mode, device_context_type())) described.device = device_of(mode);
  return described;
}

bool AmbientGuard::is(const Mode& mode, PyObject* object) {
  if (mode.type != reinterpret_cast<PyObject*>(Py_TYPE(object))) return false;
  return mode.device ? device_of(object) == mode.device : mode.pin.is(object);
}

std::string AmbientGuard::show(const Mode& mode) {
  std::string name = mode.type.as<PyTypeObject>()->tp_name;
  return mode.device ? name + "(" + mode.device->str() + ")" : name;
}

AmbientGuard AmbientGuard::capture() {
  AmbientGuard guard;
  const Around around;
#define ALT_AMBIENT(field, type, expression, subject) guard.field##_ = static_cast<type>(expression);
#include "guards/ambient.def"
#undef ALT_AMBIENT
  for (int64_t i = 0; i < at::impl::PythonTorchFunctionTLS::stack_len(); i++)
    guard.function_modes_.push_back(describe(function_mode_at(i)));
  for (int64_t i = 0; i < c10::impl::TorchDispatchModeTLS::stack_len(); i++)
    guard.dispatch_modes_.push_back(describe(dispatch_mode_at(i)));
  return guard;
}

bool AmbientGuard::flags_match() const noexcept {
  return flag_groups_ == 0 || is_disabled("ambient.flags") || flags_.hold(flag_groups_);
}

bool AmbientGuard::function_modes_match() const {
  if (is_disabled("ambient.function_modes")) return true;
  const size_t count = function_modes_.size();
  if (static_cast<size_t>(at::impl::PythonTorchFunctionTLS::stack_len()) != count) return false;
  for (size_t i = 0; i < count; i++) {
    if (!is(function_modes_[i], function_mode_at(static_cast<int64_t>(i)))) return false;
  }
  return true;
}

bool AmbientGuard::dispatch_modes_match() const {
  if (is_disabled("ambient.dispatch_modes")) return true;
  const size_t count = dispatch_modes_.size();
  if (static_cast<size_t>(c10::impl::TorchDispatchModeTLS::stack_len()) != count) return false;
  for (size_t i = 0; i < count; i++) {
    if (!is(dispatch_modes_[i], dispatch_mode_at(static_cast<int64_t>(i)))) return false;
  }
  return true;
}

bool AmbientGuard::matches() const noexcept {
  const Around around;
#define ALT_AMBIENT(field, type, expression, subject) \
  if (!is_disabled("ambient." #field) && !(field##_ == static_cast<type>(expression))) return false;
#include "guards/ambient.def"
#undef ALT_AMBIENT
  return flags_match() && function_modes_match() && dispatch_modes_match();
}

std::string AmbientGuard::mismatch() const {
  const Around around;
#define ALT_AMBIENT(field, type, expression, subject)                                                        \
  if (const type now = static_cast<type>(expression); !is_disabled("ambient." #field) && !(field##_ == now)) \
    return sentence(subject, shown_field(#field, field##_), shown_field(#field, now));
#include "guards/ambient.def"
#undef ALT_AMBIENT
  if (!flags_match()) return flags_.mismatch(flag_groups_);
  auto stack_text = [](const Modes& modes) {
    std::string text;
    for (const Mode& mode : modes) text += (text.empty() ? "" : ", ") + show(mode);
    return "[" + text + "]";
  };
  const AmbientGuard now = capture();
  if (!function_modes_match())
    return sentence("the stack of torch-function modes", stack_text(function_modes_), stack_text(now.function_modes_));
  if (!dispatch_modes_match())
    return sentence("the stack of torch-dispatch modes", stack_text(dispatch_modes_), stack_text(now.dispatch_modes_));
  return {};
}

std::vector<std::string> AmbientGuard::texts() const {
  std::vector<std::string> texts;
#define ALT_AMBIENT(field, type, expression, subject) \
  texts.push_back(std::string(subject) + " is " + shown_field(#field, field##_));
#include "guards/ambient.def"
#undef ALT_AMBIENT
  if (flag_groups_ != 0) {
    for (std::string& text : flags_.texts(flag_groups_)) texts.push_back(std::move(text));
  }
  for (const Mode& mode : function_modes_) texts.push_back("the torch-function mode " + show(mode) + " is active");
  for (const Mode& mode : dispatch_modes_) texts.push_back("the torch-dispatch mode " + show(mode) + " is active");
  return texts;
}

}  // namespace alternator::guards
