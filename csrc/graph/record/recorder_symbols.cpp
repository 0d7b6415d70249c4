// Unbacked symbols: ours in the program, torch's in its calls.
#include "graph/record/pending_call.h"

#include "fake/unbacked_ops.h"
#include "graph/record/torch_symbol.h"

namespace alternator::graph {

uint32_t Recorder::add_symbol(Borrowed symbol, Ref torch_symbol, Origin origin, uint32_t index) {
  const uint32_t id = static_cast<uint32_t>(program_->tensors.size());
  program_->tensors.push_back({at::Tensor(), origin, index, Ref::share(symbol), std::move(torch_symbol)});
  symbols_.emplace(symbol.get(), id);
  return id;
}

// Two reads of one value are one symbol. (AOTAutograd's CSE would merge them as well, and lose the other symbol.)
Ref Recorder::item(Pending& pending, Borrowed object) {
  const at::Tensor& tensor = as_tensor(object);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const uint64_t writes = fake::data_version(session_.state(), tensor);
  const auto before = items_.find(impl);
  if (before != items_.end() && before->second.writes == writes && !program_->has_arrays) {
    shares_symbols_ = true;
    return before->second.symbol;
  }
  if (!program_->shape_env) program_->shape_env = Ref::share(session_.shape_env());
  Ref number =
      record(pending, [&] { return make_torch_symbol(program_->shape_env, tensor.is_floating_point()).release(); });
  items_[impl] = {writes, number};
  return number;
}

Ref Recorder::torch_symbol(Borrowed symbol) const {
  const auto found = symbols_.find(symbol.get());
  if (found == symbols_.end()) record_error("an unbacked symbol of another recording is used");
  return program_->tensors[found->second].torch_symbol;
}

Ref Recorder::operate(Borrowed function, PyObject* const* arguments, size_t count) {
  if (!recording() || inside_ || !on_own_thread()) record_error("an unbacked symbol is used inside of a torch call");
  Pending pending(*this, function);
  pending.reserve(count, 0);
  std::vector<Ref> own;
  std::vector<PyObject*> raw;
  for (size_t i = 0; i < count; ++i) {
    pending.set(i, arguments[i]);
    raw.push_back(own.emplace_back(to_torch(arguments[i])).get());
  }
  const WithoutTorchFunctions without;
  return record(pending, [&] { return PyObject_Vectorcall(function.get(), raw.data(), count, nullptr); });
}

// A container that torch created, with our symbols in place of torch's.
Ref Recorder::from_torch(Borrowed value) {
  const bool is_tuple = PyTuple_Check(value.get());
  if (!is_tuple && !PyList_Check(value.get())) return Ref::share(value);
  Ref copy;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value.get()); ++i) {
    Borrowed before = PySequence_Fast_GET_ITEM(value.get(), i);
    Ref item;
    if (is_torch_symbol(before)) {
      for (const auto& [torchs, ours] : from_torch_)
        if (torchs == before.get()) item = ours;
      if (!item) item = known_number(before);
    } else {
      item = from_torch(before);
    }
    if (!copy && Borrowed(item) == before) continue;
    if (!copy) copy = checked(PySequence_List(value.get()));
    check_status(PyList_SetItem(copy.get(), i, item.release()));
  }
  if (!copy) return Ref::share(value);
  if (!is_tuple) return copy;
  Ref tuple = checked(PyList_AsTuple(copy.get()));
  if (PyTuple_CheckExact(value.get())) return tuple;
  if (value.type() != torch_types().size) record_error("unbacked symbols inside of a named tuple");
  return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(value.type()), tuple.get()));
}

Ref Recorder::to_torch(Borrowed value) const {
  PyObject* v = value.get();
  if (shapes::Expression number = backed_ ? backed_->expression_of(value) : nullptr)
    return fake::BackedSymbols::hint_of(number);
  if (is_symbol(value)) return torch_symbol(value);
  const bool is_tuple = PyTuple_Check(v);
  if (is_tuple || PyList_Check(v)) {
    Ref copy;  // set if an element changes
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i) {
      Borrowed before = PySequence_Fast_GET_ITEM(v, i);
      Ref item = to_torch(before);
      if (!copy && Borrowed(item) == before) continue;
      if (!copy) copy = checked(PySequence_List(v));
      check_status(PyList_SetItem(copy.get(), i, item.release()));
    }
    if (!copy) return Ref::share(value);
    if (!is_tuple) return copy;
    Ref tuple = checked(PyList_AsTuple(copy.get()));
    if (PyTuple_CheckExact(v)) return tuple;
    if (Py_TYPE(v) == torch_types().size) return tuple;
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(v));
    return checked(PyObject_Call(type, tuple.get(), nullptr));  // a namedtuple
  }
  if (PyDict_Check(v)) {
    Ref copy;
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(v, &position, &key, &item);) {
      Ref other = to_torch(item);
      if (Borrowed(other) == Borrowed(item)) continue;
      if (!copy) copy = checked(PyDict_Copy(v));
      check_status(PyDict_SetItem(copy.get(), key, other.get()));
    }
    return copy ? std::move(copy) : Ref::share(value);
  }
  if (PySlice_Check(v)) {
    auto* s = reinterpret_cast<PySliceObject*>(v);
    Ref start = to_torch(s->start), stop = to_torch(s->stop), step = to_torch(s->step);
    if (start.get() == s->start && stop.get() == s->stop && step.get() == s->step) return Ref::share(value);
    return checked(PySlice_New(start.get(), stop.get(), step.get()));
  }
  return Ref::share(value);
}

}  // namespace alternator::graph
