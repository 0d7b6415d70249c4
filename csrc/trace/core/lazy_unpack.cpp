#include "trace/core/lazy_unpack.h"

#include "lift/lifting/lazy_objects.h"

namespace alternator::trace {

using lift::lazy_type;
using lift::LazyObject;

Ref lazy_elements(lift::Lifter& lifter, Borrowed value, int count) {
  if (!Py_IS_TYPE(value.get(), &lazy_type)) return {};
  const auto* lazy = value.as<LazyObject>();
  if (lazy->lifted != nullptr || !PyTuple_CheckExact(lazy->value) || PyTuple_GET_SIZE(lazy->value) != count ||
      lifter.is_lifted(lazy->value))
    return {};
  lift::SourceTree& tree = lifter.tree();
  tree.guard(lazy->source, {lift::GuardKind::kType, Ref::share(&PyTuple_Type)});
  tree.guard(lazy->source, {lift::GuardKind::kLength, {}, {}, count});
  Ref elements = checked(PyTuple_New(count));
  for (int i = 0; i < count; i++) {
    Borrowed element = PyTuple_GET_ITEM(lazy->value, i);
    Ref made = lifter.lazy->make(element, tree.child(lazy->source, lift::Access::kIndex, {}, i));
    PyTuple_SET_ITEM(elements.get(), i, made.release());
  }
  return elements;
}

}  // namespace alternator::trace
