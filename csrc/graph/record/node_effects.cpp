#include "graph/record/node_effects.h"

#include "fake/functorch_state.h"
#include "graph/record/torch_types.h"

#include <string_view>
#include <unordered_map>

namespace alternator::graph {
namespace {

CalleeFacts facts_of_name(std::string_view name) {
  static const std::unordered_map<std::string_view, CalleeFacts> table = {
#define ALT_CALLEE(NAME, EFFECT, TRAITS) {NAME, {EFFECT, TRAITS}},
#include "graph/record/node_effects.def"
#undef ALT_CALLEE
  };
  if (const auto found = table.find(name); found != table.end()) return found->second;
  // Torch's convention: add_ mutates its first argument.
  const bool in_place = name.size() > 1 && name.ends_with('_') && !name.ends_with("__");
  uint16_t traits = name.starts_with("_foreach_") ? kTakesLists : kNoTraits;
  if (name.ends_with('_')) traits |= in_place ? kInPlace : kWritesFirst;
  return {in_place ? kMutates : kPure, traits};
}

// Torch code mutates only its temporaries and its arguments. Other code may mutate anything.
bool is_torch_function(Borrowed callable) {
  if (PyCFunction_Check(callable.get()) || Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) ||
      Py_IS_TYPE(callable.get(), &PyWrapperDescr_Type))
    return true;
  if (!PyFunction_Check(callable.get())) return false;
  PyObject* module = callable.as<PyFunctionObject>()->func_module;
  if (module == nullptr || !PyUnicode_Check(module)) return false;
  const char* text = PyUnicode_AsUTF8(module);
  if (text == nullptr) PyErr_Clear();
  return text != nullptr && is_of_torch(text);
}

}  // namespace

bool is_users_function(Borrowed callable) { return PyFunction_Check(callable.get()) && !is_torch_function(callable); }

std::string callable_name(Borrowed callable) {
  PyObject* raw = callable.get();
  if (PyCFunction_Check(raw)) return reinterpret_cast<PyCFunctionObject*>(raw)->m_ml->ml_name;
  if (Py_IS_TYPE(raw, &PyMethodDescr_Type)) return reinterpret_cast<PyMethodDescrObject*>(raw)->d_method->ml_name;
  Ref name = Ref::steal(PyObject_GetAttrString(raw, "__name__"));
  if (name && PyUnicode_Check(name.get()))
    if (const char* text = PyUnicode_AsUTF8(name.get())) return text;
  PyErr_Clear();
  return {};
}

CalleeFacts NamedCallees::of(Borrowed callable) {
  // Getters, setters and bound methods are new objects at every call: not cached.
  const bool lasting = PyCFunction_Check(callable.get()) || PyFunction_Check(callable.get()) ||
                       Py_IS_TYPE(callable.get(), &PyMethodDescr_Type);
  if (!lasting) return facts_of_name(callable_name(callable));
  const auto found = known_.find(callable.get());
  if (found != known_.end()) return found->second.facts;
  const CalleeFacts facts = facts_of_name(callable_name(callable));
  known_.emplace(callable.get(), Known{Ref::share(callable), facts});
  return facts;
}

void EffectWatch::watch(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // A write to a wrapped tensor increments the version of the inner one.
  if (impl->is_inference() || fake::is_wrapped(tensor)) {
    unversioned_ = true;
  } else {
    watched_.push_back({impl, impl->version_counter().current_version()});
  }
}

bool EffectWatch::wrote_argument() const {
  if (unversioned_) return true;
  for (const Watched& watched : watched_)
    if (watched.impl->version_counter().current_version() != watched.version) return true;
  return false;
}

uint8_t EffectWatch::effects(Borrowed callable) const {
  uint8_t effects = kPure;
  const fake::Session::Counts after = session_.counts();
  if (after.draws != before_.draws) effects |= kRandom;
  if (after.acts != before_.acts) effects |= kActs;
  if (after.checks != before_.checks) effects |= kChecks;
  if (after.writes != before_.writes && (wrote_argument() || !is_torch_function(callable))) effects |= kMutates;
  return effects;
}

}  // namespace alternator::graph
