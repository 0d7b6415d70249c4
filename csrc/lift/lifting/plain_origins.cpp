// Where plain values came from.
#include "lift/lifting/plain_origins.h"

#include "lift/lifting/containers.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/immutable_values.h"
#include "lift/lifting/lifter.h"

namespace alternator::lift {

void PlainOrigins::note(Borrowed plain, Source* source) {
  if (source->access == Access::kConstant || is_shared(plain)) return;
  std::vector<Source*>& sources = sources_[plain.get()];
  if (sources.empty()) lifter_.keep(Ref::share(plain));
  for (const Source* known : sources) {
    if (known == source) return;
  }
  sources.push_back(source);
}

bool PlainOrigins::guard_identity(Borrowed plain) {
  auto found = sources_.find(plain.get());
  if (found == sources_.end()) return lifter_.functions->is_code_constant(plain) || is_shared(plain);
  for (Source* source : found->second) lifter_.guard(source, GuardKind::kIs, plain);
  return true;
}

static bool holds(Borrowed container, PyObject* wanted) {
  PyObject *key = nullptr, *value = nullptr;
  PyObject* c = container.get();
  if (PyDict_Check(c)) {
    for (Py_ssize_t position = 0; PyDict_Next(c, &position, &key, &value) != 0;) {
      if (key == wanted || value == wanted) return true;
    }
  } else if (PyAnySet_Check(c)) {
    Py_hash_t hash;
    for (Py_ssize_t position = 0; _PySet_NextEntry(c, &position, &key, &hash) != 0;) {
      if (key == wanted) return true;
    }
  } else if (PyList_Check(c) || PyTuple_Check(c)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(c); i++) {
      if (PySequence_Fast_GET_ITEM(c, i) == wanted) return true;
    }
  }
  return false;
}

bool PlainOrigins::guard_text_identity(Borrowed plain) {
  if (guard_identity(plain)) return true;
  if (!PyUnicode_CheckExact(plain.get()) && !PyBytes_CheckExact(plain.get())) return false;
  for (const Ref& container : guarded_whole_) {
    if (holds(container, plain.get())) return false;
  }
  for (const Shadow& shadow : lifter_.containers->shadows()) {
    if (holds(shadow.original, plain.get())) return false;
  }
  return true;
}

bool PlainOrigins::has_one(Borrowed plain) {
  auto found = sources_.find(plain.get());
  return (found == sources_.end() || found->second.size() == 1) && !lifter_.functions->is_code_constant(plain);
}

Source* PlainOrigins::of(Borrowed plain) {
  auto found = sources_.find(plain.get());
  if (found == sources_.end()) return nullptr;
  Source* first = found->second.front();
  // It may be a constant of the code or come from another source: all of them must stay the same object.
  if (lifter_.functions->is_code_constant(plain)) {
    lifter_.guard(first, GuardKind::kIs, plain);
    return nullptr;
  }
  for (Source* other : found->second) lifter_.guard_same(other, first);
  return first;
}

}  // namespace alternator::lift
