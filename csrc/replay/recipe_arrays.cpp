// numpy arrays that were made in a trace: new memory on every run, which views of it share.
#include "lift/sources/numpy_types.h"
#include "py/import.h"
#include "replay/builder.h"

namespace alternator::replay::recipes {

static Ref attribute(Borrowed object, const char* name) { return checked(PyObject_GetAttrString(object.get(), name)); }

static bool same_numbers(Borrowed a, Borrowed b, const char* field) {
  Ref x = attribute(a, field), y = attribute(b, field);
  const int same = PyObject_RichCompareBool(x.get(), y.get(), Py_EQ);
  if (same < 0) throw PyError();
  return same != 0;
}

// An array that owns its memory: a copy of its contents at the end of the trace.
static Recipe owner(Builder& builder, Borrowed array) {
  Ref kept = checked(PyObject_CallMethod(array.get(), "copy", "s", "K"));
  if (!same_numbers(kept, array, "strides") || !lift::is_writeable(array))
    cannot_rebuild(array, "its memory is ordered in a way of its own, or read-only");
  builder.take_as_preexisting(kept);
  return {{Op::kCall, {attribute(array.type(), "copy"), kept, checked(PyUnicode_InternFromString("K"))}}};
}

Recipe array(Builder& builder, Borrowed object) {
  require_exact(object);
  if (!lift::is_number_array(object.get())) cannot_rebuild(object, "its elements are not scalars");
  Borrowed memory = lift::array_owner(object);
  if (!memory) cannot_rebuild(object, "its memory is not numpy's");
  if (memory == object) return owner(builder, object);
  if (!lift::is_c_contiguous(memory)) cannot_rebuild(object, "it is a part of one whose order is not C's");
  // A pre-existing array is read-only while tracing; whether its view is writable then depends on the real array.
  if (lift::is_writeable(object) != lift::is_writeable(memory)) cannot_rebuild(object, "it is read-only");
  const Py_ssize_t offset = lift::fields_of(object).data - lift::fields_of(memory).data;
  Recipe recipe{{Op::kCall,
                 {Ref::share(object.type()), attribute(object, "shape"), attribute(object, "dtype"), Ref::share(memory),
                  checked(PyLong_FromSsize_t(offset)), attribute(object, "strides")}}};
  return recipe;
}

// The iterator of a `for` loop over an array.
Recipe sequence_iterator(Builder& builder, Borrowed object) {
  Ref parts = checked(PyObject_CallMethod(object.get(), "__reduce__", nullptr));
  Borrowed arguments = PyTuple_GET_ITEM(parts.get(), 1);
  if (PyTuple_GET_SIZE(arguments.get()) != 1 || !lift::is_array(PyTuple_GET_ITEM(arguments.get(), 0)))
    cannot_rebuild(object, "it iterates over an unknown sequence");
  return reduced(builder, object);
}

}  // namespace alternator::replay::recipes
