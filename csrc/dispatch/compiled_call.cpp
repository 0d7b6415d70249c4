#include "dispatch/compiled_call.h"

#include "dispatch/bind_arguments.h"
#include "dispatch/capture_loop.h"
#include "interpreter/frame_hook.h"

#include <set>

namespace alternator::dispatch {

static std::set<const Compilation*>& compilations() {
  static auto* all = new std::set<const Compilation*>;
  return *all;
}

Compilation::Compilation(std::shared_ptr<Store> shared) : store(std::move(shared)) {
  reset();
  compilations().insert(this);
}

Compilation::~Compilation() { compilations().erase(this); }

size_t entries_of_code(Borrowed code) {
  std::set<const Store*> seen;
  size_t count = 0;
  for (const Compilation* compilation : compilations()) {
    if (!compilation->function || PyFunction_GET_CODE(compilation->function.get()) != code.get()) continue;
    if (seen.insert(compilation->store.get()).second) count += compilation->store->start->slots.size();
  }
  return count;
}

Counters totals;
std::map<std::string, uint64_t> breaks;

bool is_known(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names) {
  Call call(compilation, compilation.function, false);
  return bind_arguments(compilation.function, arguments, positional, keyword_names, &call.slots) && call.is_known();
}

PyObject* call(Compilation& compilation, PyObject* const* arguments, size_t positional, PyObject* keyword_names,
               bool may_trace) {
  Call call(compilation, compilation.function, may_trace);
  totals.calls++;
  const NestedCall nested;
  const Interception nothing(nullptr, false);
  try {
    if (compilation.family->begin_step && call_depth == 1)
      (void)checked(PyObject_CallNoArgs(compilation.family->begin_step.get()));
    if (bind_arguments(compilation.function, arguments, positional, keyword_names, &call.slots)) {
      if (Ref result = call.run()) return result.release();
      totals.eager++;
    }
  } catch (const PyError&) {
    if (!call.raise_in_frames()) return nullptr;
  } catch (const std::exception& error) {
    PyErr_Format(PyExc_RuntimeError, "alternator: %s", error.what());
    if (!call.raise_in_frames()) return nullptr;
  }
  const Interception interception(call.intercepts ? &compilation : nullptr, may_trace);
  if (call.chain.empty()) {
    call.slots.clear();
    if (call.intercepts) acquire_hook();
    Interception::skip_once(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(compilation.function.get())));
    PyObject* result = PyObject_Vectorcall(compilation.function.get(), arguments, positional, keyword_names);
    if (call.intercepts) release_hook();
    return result;
  }
  call.values.clear();
  acquire_hook();
  Ref result = call.continue_eagerly();
  release_hook();
  return result.release();
}

}  // namespace alternator::dispatch
