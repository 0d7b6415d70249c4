// The program's calls: what becomes a node, under which name, with which arguments.
#include "graph/record/pending_call.h"

#include "cpython/objects.h"
#include "graph/record/torch_symbol.h"
#include "py/lasting.h"

#include <torch/csrc/Generator.h>

#include <algorithm>
#include <array>

namespace alternator::graph {

namespace {

// x.add(...) and Tensor.add(x, ...) are one call: normalized to the second form.
struct Unbound {
  Ref function;
  Borrowed self;
};

// The descriptor of a bound method: not an attribute of the same name in a subclass (`super().sum()`).
Ref descriptor_of(PyTypeObject* type, PyMethodDef* method) {
  Ref name = checked(PyUnicode_InternFromString(method->ml_name));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* found = PyDict_GetItemWithError(cpython::own_dict(base), name.get());
    if (found != nullptr && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
        reinterpret_cast<PyMethodDescrObject*>(found)->d_method == method)
      return Ref::share(found);
  }
  return checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name.get()));
}

Unbound unbind(Borrowed callable) {
  PyObject* raw = callable.get();
  if (PyCFunction_Check(raw)) {
    PyObject* self = PyCFunction_GET_SELF(raw);
    if (self == nullptr || !is_tensor(self)) return {};
    return {descriptor_of(Py_TYPE(self), reinterpret_cast<PyCFunctionObject*>(raw)->m_ml), self};
  }
  if (PyMethod_Check(raw) && is_tensor(PyMethod_GET_SELF(raw)))
    return {Ref::share(PyMethod_GET_FUNCTION(raw)), PyMethod_GET_SELF(raw)};
  return {};
}

// AOTAutograd cannot trace it: torch's FakeTensorMode reads the data of the fourth argument.
bool reads_scalar_data(Borrowed callable, PyObject* const* arguments, size_t count) {
  if (count < 4 || !is_tensor(arguments[3])) return false;
  static constinit Lasting<std::array<Ref, 4>> functions;
  const auto& known = functions.get([] {
    return std::array{torch_name("torch", "_foreach_addcdiv"), torch_name("torch", "_foreach_addcdiv_"),
                      torch_name("torch", "_foreach_addcmul"), torch_name("torch", "_foreach_addcmul_")};
  });
  return std::find(known.begin(), known.end(), callable) != known.end();
}

bool is_generator_class(PyTypeObject* type) { return type == reinterpret_cast<PyTypeObject*>(THPGeneratorClass); }

// The arguments of a call as a tuple and a dict.
struct Packed {
  Ref arguments, keywords = checked(PyDict_New());
  Packed(Borrowed self, PyObject* const* given, size_t positional, Borrowed names) {
    const Py_ssize_t extra = self ? 1 : 0;
    arguments = checked(PyTuple_New(static_cast<Py_ssize_t>(positional) + extra));
    if (self) PyTuple_SET_ITEM(arguments.get(), 0, Py_NewRef(self.get()));
    for (size_t i = 0; i < positional; ++i)
      PyTuple_SET_ITEM(arguments.get(), static_cast<Py_ssize_t>(i) + extra, Py_NewRef(given[i]));
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); ++i)
      check_status(PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names.get(), i), given[positional + i]));
  }
};

}  // namespace

// Where no __torch_function__ is called, or only torch.Tensor's: a node that calls the function with that behavior.
Ref Recorder::call_wrapped(Borrowed wrapper, Borrowed callable, Borrowed arguments, Borrowed keywords) {
  if (records_numbers()) record_error("an unbacked symbol is used with a tensor of a subclass");
  Ref none = checked(PyTuple_New(0));
  Pending pending(*this, wrapper);
  pending.node.wrapped = Ref::share(callable);
  pending.reserve(4, 0);
  PyObject* given[] = {nullptr, callable.get(), none.get(), arguments.get(), keywords.get()};
  for (size_t i = 0; i < 4; ++i) pending.set(i, given[i + 1]);
  if (any_of_class(arguments, is_generator_class) || any_of_class(keywords, is_generator_class) ||
      reads_scalar_data(callable, &PyTuple_GET_ITEM(arguments.get(), 0), PyTuple_GET_SIZE(arguments.get())))
    pending.node.separate = true;
  std::optional<WithoutTopMode> without;
  if (is_top_mode(mode_)) without.emplace();
  return record(pending, [&] {
    return PyObject_Vectorcall(wrapper.get(), given + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  });
}

Ref Recorder::call_for_class(Borrowed cls, Borrowed callable, PyObject* const* arguments, size_t positional,
                             Borrowed keyword_names) {
  if (inside_ || !recording() || !is_top_mode(mode_) || !on_own_thread())
    record_error("a torch.Tensor method is called where nothing is recorded");
  const Unbound unbound = unbind(callable);
  const Packed packed(unbound.self, arguments, positional, keyword_names);
  Ref method = checked(PyMethod_New(torch_types().torch_function.get(), cls.get()));
  return call_wrapped(method, unbound.function ? Borrowed(unbound.function) : callable, packed.arguments,
                      packed.keywords);
}

Ref Recorder::call(Borrowed callable, PyObject* const* arguments, size_t flagged_count, Borrowed keyword_names) {
  const auto plainly = [&] {
    return checked(PyObject_Vectorcall(callable.get(), arguments, flagged_count, keyword_names.get()));
  };
  if (inside_ || !recording() || !is_top_mode(mode_)) return plainly();
  if (!on_own_thread()) return plainly();

  const size_t positional = PyVectorcall_NARGS(flagged_count);
  const size_t keyword = keyword_names ? PyTuple_GET_SIZE(keyword_names.get()) : 0;
  if (callable == torch_types().tensor_iter && positional == 1 && keyword == 0) return iterate(arguments[0]);

  const Unbound unbound = unbind(callable);
  const size_t extra = unbound.function ? 1 : 0;
  if (subclasses_are_off()) [[unlikely]] {
    const auto asked = [](Borrowed argument) { return any_of_class(argument, is_asked); };
    if ((extra && asked(unbound.self)) || std::any_of(arguments, arguments + positional + keyword, asked)) {
      const Packed packed(unbound.self, arguments, positional, keyword_names);
      return call_wrapped(torch_types().without_subclasses, extra ? Borrowed(unbound.function) : callable,
                          packed.arguments, packed.keywords);
    }
  }
  Pending pending(*this, extra ? Borrowed(unbound.function) : callable);
  pending.reserve(positional + extra, keyword);
  if (extra) pending.set(0, unbound.self);
  for (size_t i = 0; i < positional + keyword; ++i) pending.set(i + extra, arguments[i]);
  if (keyword != 0) pending.node.keyword_names = Ref::share(keyword_names);
  if (reads_scalar_data(callable, arguments, positional)) pending.node.separate = true;

  const WithoutTopMode without;
  if (captures_scalars_ && pending.node.callable == torch_types().tensor_item && positional + extra == 1) {
    Borrowed tensor = extra ? unbound.self : arguments[0];
    if (is_unbacked_scalar(session_, tensor)) return item(pending, tensor);
  }
  if (has_symbols()) {
    std::vector<Ref> own;
    std::vector<PyObject*> raw{nullptr};
    for (size_t i = 0; i < positional + keyword; ++i) raw.push_back(own.emplace_back(to_torch(arguments[i])).get());
    return record(pending, [&] {
      return PyObject_Vectorcall(callable.get(), raw.data() + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 keyword_names.get());
    });
  }
  return record(pending,
                [&] { return PyObject_Vectorcall(callable.get(), arguments, flagged_count, keyword_names.get()); });
}

Ref Recorder::call_from_mode(Borrowed callable, Borrowed types, Borrowed arguments, Borrowed keywords) {
  const auto plainly = [&] { return checked(PyObject_Call(callable.get(), arguments.get(), keywords.get())); };
  if (inside_ || !recording() || !on_own_thread()) return plainly();
  // A getter passes the class of the tensor to a mode also where torch would not dispatch to it.
  const bool asks = subclasses_are_on() && PyTuple_Check(types.get());
  for (Py_ssize_t i = 0; asks && i < PyTuple_GET_SIZE(types.get()); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(types.get(), i));
    if (!PyType_Check(PyTuple_GET_ITEM(types.get(), i)) || !has_own_torch_function(type)) continue;
    if (!on_override) record_error(std::string(type->tp_name) + " has a __torch_function__ that is not to be called");
    on_override(types, arguments, keywords);
    return Ref::share(Py_NotImplemented);
  }

  const size_t positional = PyTuple_GET_SIZE(arguments.get());
  const size_t keyword = keywords ? PyDict_GET_SIZE(keywords.get()) : 0;
  if (subclasses_are_off() && (any_of_class(arguments, is_asked) || (keywords && any_of_class(keywords, is_asked)))) {
    Ref none = keywords ? Ref() : checked(PyDict_New());
    return call_wrapped(torch_types().without_subclasses, callable, arguments, keywords ? keywords : Borrowed(none));
  }
  if (callable == torch_types().tensor_iter && positional == 1 && keyword == 0)
    return iterate(PyTuple_GET_ITEM(arguments.get(), 0));

  Pending pending(*this, callable);
  pending.reserve(positional, keyword);
  for (size_t i = 0; i < positional; ++i) pending.set(i, PyTuple_GET_ITEM(arguments.get(), i));
  if (reads_scalar_data(callable, &PyTuple_GET_ITEM(arguments.get(), 0), positional)) pending.node.separate = true;
  if (keyword != 0) {
    pending.node.keyword_names = checked(PyTuple_New(keyword));
    PyObject *name, *argument;
    Py_ssize_t position = 0;
    for (size_t i = 0; PyDict_Next(keywords.get(), &position, &name, &argument); ++i) {
      PyTuple_SET_ITEM(pending.node.keyword_names.get(), i, Ref::share(name).release());
      pending.set(positional + i, argument);
    }
  }
  if (captures_scalars_ && callable == torch_types().tensor_item && positional == 1 && keyword == 0) {
    Borrowed tensor = PyTuple_GET_ITEM(arguments.get(), 0);
    if (is_unbacked_scalar(session_, tensor)) return item(pending, tensor);
  }
  Ref own_arguments = has_symbols() ? to_torch(arguments) : Ref::share(arguments);
  Ref own_keywords = has_symbols() && keywords ? to_torch(keywords) : Ref::share(keywords);
  return record(pending, [&] { return PyObject_Call(callable.get(), own_arguments.get(), own_keywords.get()); });
}

// Tensor.__iter__ returns an iterator, which no graph can hold: the calls that it makes are recorded.
Ref Recorder::iterate(Borrowed tensor) {
  const TorchTypes& torch = torch_types();
  Ref parts;
  if (as_tensor(tensor).dim() == 0) {
    // The error that eager raises.
    return checked(PyObject_CallOneArg(torch.tensor_iter.get(), tensor.get()));
  }
  Ref zero = checked(PyLong_FromLong(0));
  Pending pending(*this, torch.tensor_unbind);
  pending.reserve(2, 0);
  pending.set(0, tensor);
  pending.set(1, zero);
  PyObject* arguments[] = {tensor.get(), zero.get()};
  // Without our mode: it is off already for a call through the mode stack, and still on for a direct call.
  std::optional<WithoutTopMode> without;
  if (is_top_mode(mode_)) without.emplace();
  parts = record(pending, [&] { return PyObject_Vectorcall(torch.tensor_unbind.get(), arguments, 2, nullptr); });
  return checked(PyObject_GetIter(parts.get()));
}

}  // namespace alternator::graph
