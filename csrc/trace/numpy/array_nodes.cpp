// Symbolic arrays: what x.numpy() returns, and what is computed from it. A call on such arrays is a node that calls
// numpy itself, in a separate segment outside what a backend compiles: results, dtypes, memory and errors are numpy's.
// While tracing, the same call runs on example arrays of the same dtypes, shapes and strides with other contents, which
// shows what the result looks like.
#include "trace/numpy/array_nodes.h"
#include "trace/core/tracer.h"
#include "trace/numpy/array_conversions.h"
#include "trace/numpy/array_members.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/opcodes/items.h"
#include "trace/symbolic/backed_numbers.h"

#include "graph/record/torch_types.h"
#include "interpreter/binary_operations.h"
#include "trace/core/error_text.h"

#include <torch/csrc/Dtype.h>

#include <algorithm>
#include <string_view>

namespace alternator::trace {

namespace {

constexpr int kDeepest = 8;

// What numpy computed from example arrays: arrays, or lists and tuples of them. False: scalars, or something else.
bool collect_arrays(PyObject* value, std::vector<Borrowed>* arrays, int depth = 0) {
  if (lift::is_array(value)) {
    arrays->push_back(value);
    return lift::is_number_array(value) && lift::element_count(value) <= kMostExampleElements;
  }
  if (depth > kDeepest || (!PyList_CheckExact(value) && !PyTuple_CheckExact(value))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
    if (!collect_arrays(PySequence_Fast_GET_ITEM(value, i), arrays, depth + 1)) return false;
  }
  return true;
}

// The same value with its arrays replaced; `change` returns null for one that stays.
template <class Change>
Ref with_arrays(Borrowed value, const Change& change, int depth = 0) {
  PyObject* v = value.get();
  if (lift::is_array(v)) {
    Ref other = change(value);
    return other ? std::move(other) : Ref::share(value);
  }
  if (PySlice_Check(v)) {
    auto* slice = value.as<PySliceObject>();
    Ref start = with_arrays(slice->start, change, depth + 1), stop = with_arrays(slice->stop, change, depth + 1),
        step = with_arrays(slice->step, change, depth + 1);
    if (start.get() == slice->start && stop.get() == slice->stop && step.get() == slice->step) return Ref::share(value);
    return checked(PySlice_New(start.get(), stop.get(), step.get()));
  }
  if (depth > kDeepest || (!PyList_CheckExact(v) && !PyTuple_CheckExact(v))) return Ref::share(value);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(v);
  Ref copy;
  for (Py_ssize_t i = 0; i < count; i++) {
    Borrowed before = PySequence_Fast_GET_ITEM(v, i);
    Ref item = with_arrays(before, change, depth + 1);
    if (!copy && Borrowed(item) == before) continue;
    if (!copy) copy = checked(PySequence_List(v));
    check_status(PyList_SetItem(copy.get(), i, item.release()));
  }
  if (!copy) return Ref::share(value);
  return PyTuple_CheckExact(v) ? checked(PyList_AsTuple(copy.get())) : copy;
}

Ref operator_named(const char* name) { return graph::torch_name("operator", name); }

}  // namespace

bool ArrayNodes::is_symbolic_array(Borrowed value) {
  if (!lift::is_array(value.get())) return false;
  if (t.lifter.symbolic_arrays.has(value) || t.lifter.symbolic_arrays.is_result(value)) return true;
  const lift::Known* known = t.lifter.known(value);
  return known != nullptr && known->opaque && use_preexisting_array(value);
}

bool ArrayNodes::use_preexisting_array(Borrowed array) {
  if (t.is_transformed() || t.recorder.is_silent() || t.recorder.is_checkpointed() ||
      !lift::is_number_array(array.get()) || !lift::is_aligned(array) || !lift::is_writeable(array) ||
      lift::element_count(array) > kMostExampleElements)
    return false;
  Ref type = torch_type(t, array);
  if (!type) return false;
  const lift::ArrayFields& fields = lift::fields_of(array);
  const Py_ssize_t size = lift::element_size(array);
  std::vector<int64_t> sizes, strides;
  for (int i = 0; i < fields.dimensions; i++) {
    if (fields.shape[i] == 0 || fields.strides[i] < 0 || fields.strides[i] % size != 0) return false;
    sizes.push_back(fields.shape[i]);
    strides.push_back(fields.strides[i] / size);
  }
  const lift::Known* known = t.lifter.known(array);
  Ref stand_in = [&] {
    const Paused paused(t);
    return make_example_array(sizes, strides, reinterpret_cast<THPDtype*>(type.get())->scalar_type);
  }();
  if (!lift::is_number_array(stand_in.get()) || lift::fields_of(stand_in).dtype != fields.dtype) return false;
  t.tree->guard(known->source, {lift::GuardKind::kEquals, Ref(stand_in)});
  Ref label = checked(PyUnicode_FromString(known->source->text().c_str()));
  t.recorder.declare_array(array, label, checked(PyLong_FromUnsignedLong(known->source->id)));
  t.lifter.symbolic_arrays.add_preexisting(array, std::move(stand_in));
  return true;
}

bool ArrayNodes::holds_symbolic_array(Borrowed value, int depth) {
  PyObject* v = value.get();
  if (lift::is_array(v)) return is_symbolic_array(value);
  if ((t.lifter.symbolic_arrays.empty() && !t.lifter.has_arrays()) || depth > kDeepest) return false;
  if (PySlice_Check(v)) {
    auto* slice = value.as<PySliceObject>();
    return holds_symbolic_array(slice->start, depth + 1) || holds_symbolic_array(slice->stop, depth + 1) ||
           holds_symbolic_array(slice->step, depth + 1);
  }
  if (!PyList_CheckExact(v) && !PyTuple_CheckExact(v)) return false;
  t.lifter.escape(value);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) {
    if (holds_symbolic_array(PySequence_Fast_GET_ITEM(v, i), depth + 1)) return true;
  }
  return false;
}

// A concrete array of the trace is about to be overwritten with symbolic data: from here on it is a symbolic array of
// the graph.
void ArrayNodes::promote_array(Borrowed array, const std::string& what) {
  Borrowed root = lift::array_owner(array);
  auto refuse = [&](const char* why) { stop(report::Reason::native_call, what + ": " + why); };
  if (!root || t.lifter.known(root) != nullptr || !lift::is_writeable(root) || !lift::is_number_array(root.get()))
    refuse("the array was not created in this call");
  for (const SharedMemory& shared : t.arrays->shared) {
    if (Borrowed(shared.array) == root) refuse("a tensor shares the memory of the array");
  }
  Ref frozen = frozen_array(root, what);
  for (int i = 0; i < lift::fields_of(root).dimensions; i++) {
    if (lift::fields_of(frozen).strides[i] != lift::fields_of(root).strides[i]) refuse("its memory layout");
  }
  Ref copy = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(lift::array_type()), "copy"));
  Ref order = checked(PyUnicode_InternFromString("K"));
  PyObject* arguments[] = {frozen.get(), order.get()};
  t.lifter.symbolic_arrays.add(root);
  t.lifter.symbolic_arrays.promoted = true;
  t.recorder.note_array_call(copy, arguments, 2, {}, Ref::share(root), false);
}

// A copy of a concrete array among the arguments, with its current contents.
Ref ArrayNodes::frozen_array(Borrowed array, const std::string& what) {
  const lift::ArrayFields& fields = lift::fields_of(array);
  for (int i = 0; i < fields.dimensions; i++) {
    if (fields.strides[i] < 0) stop(report::Reason::native_call, what + ": a constant with negative strides");
  }
  Ref copy = checked(PyObject_CallMethod(array.get(), "copy", "s", "K"));
  t.recorder.keep_array(copy);
  t.keep_alive.push_back(Ref(copy));
  return copy;
}

// Records a view that was made of an array before that array was promoted.
void ArrayNodes::note_symbolic_array(Borrowed array, const std::string& what) {
  lift::SymbolicArrays& symbolic = t.lifter.symbolic_arrays;
  if (symbolic.is_result(array)) return;
  Borrowed root = lift::array_root(array);
  if (!symbolic.is_result(root) || !lift::is_c_contiguous(root) ||
      lift::is_writeable(array) != lift::is_writeable(root))
    stop(report::Reason::native_call, what + ": a view of an array");
  auto attribute = [&](const char* name) { return checked(PyObject_GetAttrString(array.get(), name)); };
  Ref shape = attribute("shape"), dtype = attribute("dtype"), strides = attribute("strides");
  Ref offset = checked(PyLong_FromSsize_t(lift::fields_of(array).data - lift::fields_of(root).data));
  PyObject* arguments[] = {shape.get(), dtype.get(), root.get(), offset.get(), strides.get()};
  symbolic.add(array);
  t.recorder.note_array_call(reinterpret_cast<PyObject*>(lift::array_type()), arguments, 5, {}, Ref::share(array),
                             false);
}

// Before a call that writes to these arrays.
void ArrayNodes::use_written(const std::string& what, const std::vector<Borrowed>& written) {
  for (Borrowed array : written) {
    if (!lift::is_array(array.get())) stop(report::Reason::native_call, what + " into something other than an array");
    if (t.recorder.has_symbols()) stop(report::Reason::unbacked_value, what + ": an array is written");
    if (!is_symbolic_array(array)) promote_array(array, what);
    if (!lift::is_writeable(array)) stop(report::Reason::native_call, what + ": the array is read-only");
  }
}

// The same call on example arrays, which shows what the result looks like.
Ref ArrayNodes::call_on_examples(const std::string& what, Borrowed callable, const std::vector<PyObject*>& arguments,
                                 size_t positional, Borrowed keyword_names) {
  lift::SymbolicArrays& symbolic = t.lifter.symbolic_arrays;
  std::vector<Ref> examples;
  std::vector<PyObject*> raw{nullptr};
  for (PyObject* argument : arguments) {
    examples.push_back(with_arrays(argument, [&](Borrowed array) { return Ref::share(symbolic.stand_in(array)); }));
    raw.push_back(examples.back().get());
  }
  Ref result;
  {
    const Paused paused(t);
    const lift::WarningsRaise warnings;
    const lift::NumpyErrorsSet ignored(lift::NumpyErrorsSet::Kind::kIgnored);
    result = Ref::steal(PyObject_Vectorcall(callable.get(), raw.data() + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                            keyword_names.get()));
  }
  if (!result) stop(report::Reason::native_call, what + ": " + take_error_text());
  if (symbolic.has_preexisting())
    result = with_arrays(result, [&](Borrowed array) { return Ref::share(symbolic.original(array)); });
  return result;
}

// Records a numpy call as a node. `written`: the arrays that it writes to.
Ref ArrayNodes::record_array_call(const std::string& what, Borrowed callable, const std::vector<PyObject*>& arguments,
                                  size_t positional, Borrowed keyword_names, const std::vector<Borrowed>& written) {
  lift::SymbolicArrays& symbolic = t.lifter.symbolic_arrays;
  if (t.is_transformed() || t.recorder.is_silent())
    stop(report::Reason::native_call, what + " inside a transform, a conditional or an autograd function");
  use_written(what, written);
  std::vector<Ref> given;
  std::vector<PyObject*> raw{nullptr};
  std::vector<Borrowed> constants;
  for (PyObject* argument : arguments) {
    given.push_back(with_arrays(argument, [&](Borrowed array) {
      if (is_symbolic_array(array)) return note_symbolic_array(array, what), Ref();
      check_use(t, array, what.c_str());
      constants.push_back(lift::array_root(array));
      return frozen_array(array, what);
    }));
    raw.push_back(given.back().get());
  }
  Ref result = call_on_examples(what, callable, arguments, positional, keyword_names);
  std::vector<Borrowed> arrays;
  const bool returns_nothing = result.get() == Py_None && !written.empty();
  if (!returns_nothing && (!collect_arrays(result.get(), &arrays) || arrays.empty()))
    stop(report::Reason::unbacked_value, what + " of an array that is computed from a tensor");
  bool is_new = false;
  for (Borrowed array : arrays) {
    if (symbolic.is_result(array)) continue;
    if (std::find(constants.begin(), constants.end(), lift::array_root(array)) != constants.end())
      stop(report::Reason::native_call, what + " returns a view of a constant");
    is_new = true;
  }
  for (Borrowed array : arrays) symbolic.add(array);
  if (is_new || !written.empty())
    t.recorder.note_array_call(callable, raw.data() + 1, positional, keyword_names, Ref(result), !written.empty());
  return result;
}

Ref ArrayNodes::operate_on_symbolic(binaryfunc operation, Borrowed left, Borrowed right) {
  size_t at = 0;
  while (at < std::size(kBinaryOperations) && kBinaryOperations[at].function != operation) at++;
  if (at == std::size(kBinaryOperations)) stop(report::Reason::native_call, "an operator on an array");
  const bool in_place = at >= kFirstInPlace && lift::is_array(left.get());
  if (at >= kFirstInPlace && !in_place) at -= kFirstInPlace;
  std::vector<Borrowed> written;
  if (in_place) written.push_back(left);
  return record_array_call(std::string("operator.") + kBinaryOperations[at].name,
                           operator_named(kBinaryOperations[at].name), {left.get(), right.get()}, 2, {}, written);
}

Ref ArrayNodes::operate_on_symbolic(unaryfunc operation, Borrowed operand) {
  const char* name = operation == PyNumber_Negative   ? "neg"
                     : operation == PyNumber_Positive ? "pos"
                     : operation == PyNumber_Invert   ? "invert"
                                                      : nullptr;
  if (name == nullptr) stop(report::Reason::native_call, "an operator on an array");
  return record_array_call(std::string("operator.") + name, operator_named(name), {operand.get()}, 1, {}, {});
}

Ref ArrayNodes::compare_symbolic(Borrowed left, Borrowed right, int operation) {
  constexpr const char* kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};  // Py_LT ...
  return record_array_call(std::string("operator.") + kNames[operation], operator_named(kNames[operation]),
                           {left.get(), right.get()}, 2, {}, {});
}

// The data of an index may determine the result's size: a mask, or the bounds of a slice.
static void check_index(Tracer& tracer, Borrowed key, bool writes, int depth = 0) {
  PyObject* k = key.get();
  if (tracer.array_nodes->is_symbolic_array(key) && !writes) {
    Ref kind = checked(PyObject_GetAttrString(lift::fields_of(key).dtype, "kind"));
    if (PyUnicode_CompareWithASCIIString(kind.get(), "b") == 0)
      stop(report::Reason::data_dependent, "an item of an array, by a mask that is computed from a tensor");
  }
  if (PySlice_Check(k) && tracer.array_nodes->holds_symbolic_array(key))
    stop(report::Reason::data_dependent, "an item of an array, by a slice that is computed from a tensor");
  if (depth > 0 || !PyTuple_CheckExact(k)) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); i++) check_index(tracer, PyTuple_GET_ITEM(k, i), writes, 1);
}

Ref ArrayNodes::item_of_symbolic(Borrowed array, Borrowed key) {
  check_index(t, key, false);
  return record_array_call("an item of an array", operator_named("getitem"), {array.get(), key.get()}, 2, {}, {});
}

void ArrayNodes::set_item_of_symbolic(Borrowed array, Borrowed key, Borrowed value) {
  check_index(t, key, true);
  (void)record_array_call("an item of an array is set", operator_named("setitem"),
                          {array.get(), key.get(), value.get()}, 3, {}, {array});
}

Ref ArrayNodes::attribute_of_symbolic(Borrowed array, Borrowed name, Borrowed member) {
  const ArrayMembers& members = ArrayMembers::table();
  const auto text = [&] { return "the attribute " + std::string(PyUnicode_AsUTF8(name.get())); };
  switch (members.attribute(member)) {
    case ArrayAttribute::kView:
      return record_array_call(text(), graph::torch_name("builtins", "getattr"), {array.get(), name.get()}, 2, {}, {});
    case ArrayAttribute::kBase:
    case ArrayAttribute::kImaginary:
      stop(report::Reason::native_call, text() + " of an array");
    case ArrayAttribute::kLayout:
      break;
    case ArrayAttribute::kRefused:
      if (members.method(member).symbolic == 0) stop(report::Reason::native_call, text() + " of an array");
      break;
  }
  return checked(PyObject_GetAttr(array.get(), name.get()));
}

// Checks an argument that is given by keyword; what `out` names is written.
void ArrayNodes::check_keyword(const std::string& name, Borrowed keyword_name, Borrowed value,
                               std::vector<Borrowed>* written) {
  const char* text = PyUnicode_AsUTF8(keyword_name.get());
  if (text == nullptr) throw PyError();
  const std::string_view keyword = text;
  if (keyword == "where" || keyword == "like") stop(report::Reason::native_call, name + " with " + text);
  if (keyword == "out" && value.get() != Py_None) {
    if (!PyTuple_CheckExact(value.get())) return written->push_back(value);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(value.get()); k++) written->push_back(PyTuple_GET_ITEM(value.get(), k));
    return;
  }
  if (holds_symbolic_array(value)) stop(report::Reason::data_dependent, name + " with " + text);
  check_concrete(name, value);
}

void ArrayNodes::check_concrete(const std::string& name, Borrowed value) {
  t.backed->make_plain(value);
  if (!t.arrays->may_compute_with(value))
    stop(report::Reason::native_call, name + " on something other than scalars and arrays");
}

// A numpy function or an ndarray method that has a symbolic array among its arguments.
Ref ArrayNodes::call_on_symbolic(const std::string& name, const Call& call, const ArrayCall& row, Borrowed self) {
  const ArrayMembers& members = ArrayMembers::table();
  std::vector<PyObject*> given;
  if (self) given.push_back(self.get());
  const size_t positional = call.positional + given.size();
  given.insert(given.end(), call.arguments, call.arguments + call.count());
  if (row.reads_layout && given.size() == 1 && lift::is_array(given[0])) {
    const Paused paused(t);
    return checked(PyObject_CallOneArg(call.callable.get(), t.lifter.symbolic_arrays.stand_in(given[0]).get()));
  }
  // With `copy=False` nan_to_num writes to its argument.
  if (row.symbolic == 0 || (call.callable == Borrowed(members.where) && positional != 3) ||
      (call.callable == Borrowed(members.nan_to_num) && call.count() != 1))
    stop(report::Reason::native_call, name + " of an array that is computed from a tensor");
  std::vector<Borrowed> written;
  if (row.writes) written.push_back(given[0]);
  for (size_t i = 0; i < positional; i++) {
    const bool is_symbolic = holds_symbolic_array(given[i]);
    if (is_symbolic && i >= row.symbolic)
      stop(report::Reason::data_dependent, name + ": an argument that determines the shape");
    if (!is_symbolic) check_concrete(name, given[i]);
  }
  for (size_t i = positional; i < given.size(); i++) {
    Borrowed keyword = PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i - positional));
    check_keyword(name, keyword, given[i], &written);
  }
  // A ufunc takes `out` positionally, after the operands.
  if (members.is_ufunc(call.callable)) {
    Ref inputs = checked(PyObject_GetAttrString(call.callable.get(), "nin"));
    const auto operands = static_cast<size_t>(PyLong_AsLong(inputs.get()));
    for (size_t i = operands; i < positional; i++) {
      if (given[i] != Py_None) written.push_back(given[i]);
    }
  } else {
    // Other functions may take it after any other argument.
    for (size_t i = row.symbolic; i < positional; i++) {
      if (lift::is_array(given[i])) stop(report::Reason::native_call, name + " with an array behind its operands");
    }
  }
  Borrowed function = self ? Borrowed(row.descriptor) : call.callable;
  return record_array_call(name, function, given, positional, call.keyword_names, written);
}

// numpy's iterator makes one view at a time; here all are made at once, over the same memory.
Ref rows_of_symbolic(Tracer& tracer, Borrowed value) {
  constexpr Py_ssize_t kMostRows = 256;
  if (!tracer.array_nodes->is_symbolic_array(value)) return {};
  const lift::ArrayFields& fields = lift::fields_of(value);
  if (fields.dimensions < 2 || fields.shape[0] > kMostRows) return {};
  Ref rows = checked(PyList_New(0));
  for (Py_ssize_t i = 0; i < fields.shape[0]; i++) {
    Ref row = get_item(tracer, value, checked(PyLong_FromSsize_t(i)));
    check_status(PyList_Append(rows.get(), row.get()));
  }
  return rows;
}

Ref ArrayNodes::absolute(Borrowed abs, Borrowed array) {
  return record_array_call("abs", abs, {array.get()}, 1, {}, {});
}

Py_ssize_t ArrayNodes::length_of_symbolic(Borrowed array) {
  const Py_ssize_t length = PyObject_Length(array.get());
  if (length < 0) throw PyError();
  return length;
}

}  // namespace alternator::trace
