// Random number generators (torch.Generator, torch.manual_seed). A call that mutates a generator or reads its state is
// a node in a separate segment, outside what a backend compiles; tracing never touches a pre-existing generator.
#include "trace/torch/random_generators.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"
#include "trace/higher_order/functorch.h"
#include "trace/torch/torch_calls.h"

#include "fake/session.h"
#include "fake/unbacked_symbol.h"
#include "graph/record/torch_types.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/natives.h"

#include <torch/csrc/Generator.h>

namespace alternator::trace {

namespace {

struct RandomModule {
  Ref default_generator = graph::torch_name("torch._C", "default_generator");
  Ref manual_seed = graph::torch_name("torch.random", "manual_seed");
  Ref seed = graph::torch_name("torch.random", "seed");
  Ref get_state = graph::torch_name("torch.random", "get_rng_state");
  Ref set_state = graph::torch_name("torch.random", "set_rng_state");
  Ref initial_seed = checked(PyObject_GetAttrString(default_generator.get(), "initial_seed"));
};
const RandomModule& random_module() {
  static constinit Lasting<RandomModule> module;
  return module.get();
}

bool is_default(Borrowed generator) { return generator == Borrowed(random_module().default_generator); }

// A method of a generator, bound or not.
struct GeneratorCall {
  const char* name = nullptr;  // null: not a generator method
  Borrowed generator;
  PyObject* const* arguments = nullptr;
  size_t count = 0;
};
GeneratorCall generator_call(Borrowed callable, PyObject* const* arguments, size_t count) {
  if (PyCFunction_Check(callable.get())) {
    PyObject* self = PyCFunction_GET_SELF(callable.get());
    if (self == nullptr || !graph::is_generator(self)) return {};
    return {callable.as<PyCFunctionObject>()->m_ml->ml_name, self, arguments, count};
  }
  if (!Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) || count == 0 || !graph::is_generator(arguments[0])) return {};
  if (reinterpret_cast<PyDescrObject*>(callable.get())->d_type != Py_TYPE(arguments[0])) return {};
  return {callable.as<PyMethodDescrObject>()->d_method->ml_name, arguments[0], arguments + 1, count - 1};
}

// Values that torch accepts as a seed without an error; an unbacked symbol may be one.
bool is_seed(Borrowed value) {
  if (fake::is_symbol(value)) return fake::class_of_symbol(value) == &PyLong_Type;
  if (!PyLong_CheckExact(value.get())) return false;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.get(), &overflow);
  if (overflow == 0) return number != -1 || PyErr_Occurred() == nullptr;
  if (overflow < 0) return false;
  (void)PyLong_AsUnsignedLongLong(value.get());
  if (PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  return false;
}

}  // namespace

void load_generators() { random_module(); }

void RandomGenerators::use(Borrowed generator) {
  if (t.functorch->transformed || t.recorder.is_silent())
    stop(report::Reason::native_call, "a generator inside a transform, a conditional or an autograd function");
  const lift::Known* known = t.lifter.known(generator);
  if (known == nullptr) return;  // created in this trace
  if (!is_default(generator)) {
    Ref label = checked(PyUnicode_FromString(known->source->text().c_str()));
    t.recorder.declare_generator(generator, label, checked(PyLong_FromUnsignedLong(known->source->id)));
    return;
  }
  if (known->source->access != lift::Access::kConstant)
    t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(generator)});
  t.recorder.declare_generator(generator, {}, {});
}

Ref RandomGenerators::attribute(Borrowed generator, Borrowed name) {
  Ref value = checked(PyObject_GetAttr(generator.get(), name.get()));
  if (PyCFunction_Check(value.get())) return value;
  if (PyUnicode_CompareWithASCIIString(name.get(), "device") != 0)
    stop(report::Reason::opaque_object, std::string("torch.Generator.") + PyUnicode_AsUTF8(name.get()));
  return t.lifter.lift(value, t.tree->child(t.lifter.known(generator)->source, lift::Access::kField, name));
}

void RandomGenerators::note_seed(Borrowed generator, Borrowed seed) {
  if (t.lifter.known(generator) != nullptr) {
    last_seeded_ = generator.get();
    last_seed_ = Ref::share(seed);
    return;
  }
  // Created in this trace: the program may read its seed.
  if (seed) {
    unknown_seeds_.erase(generator.get());
    (void)checked(PyObject_CallMethod(generator.get(), "manual_seed", "O", seed.get()));
  } else {
    unknown_seeds_.insert(generator.get());
  }
}

// Two pre-existing generators may alias in another call: only the seed that was set last is known.
Ref RandomGenerators::initial_seed(Borrowed generator) {
  if (t.lifter.known(generator) == nullptr) {
    if (unknown_seeds_.count(generator.get()) == 0)
      return checked(PyObject_CallMethod(generator.get(), "initial_seed", nullptr));
  } else if (last_seeded_ == nullptr && is_default(generator)) {
    return query(t, random_module().initial_seed);
  } else if (last_seeded_ == generator.get() && last_seed_ && _PyLong_Sign(last_seed_.get()) >= 0) {
    return last_seed_;
  }
  stop(report::Reason::native_call, "torch.Generator.initial_seed of a generator with unknown state");
}

Ref RandomGenerators::state_of(Borrowed generator) {
  if (const lift::Known* known = t.lifter.known(generator); known != nullptr && !is_default(generator))
    (void)attribute(generator, checked(PyUnicode_InternFromString("device")));
  const int64_t size = [&] {
    const fake::Inactive inactive;
    return generator.as<THPGenerator>()->cdata.get_state().numel();
  }();
  return checked(THPVariable_Wrap(at::empty({size}, at::TensorOptions(at::kCPU).dtype(at::kByte))));
}

Ref RandomGenerators::call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  const RandomModule& random = random_module();
  if (callable.get() == THPGeneratorClass) return make(arguments, positional, keyword_names);
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  const bool reseeds_all = callable == Borrowed(random.seed) && total == 0;
  const bool seeds_all = reseeds_all || callable == Borrowed(random.manual_seed);
  const GeneratorCall call =
      seeds_all ? GeneratorCall{reseeds_all ? "seed" : "manual_seed", random.default_generator, arguments, total}
                : generator_call(callable, arguments, total);
  if (call.name == nullptr) return {};
  const std::string name = std::string("torch.Generator.") + call.name;
  if (keyword_names && !(seeds_all && total == 1)) stop(report::Reason::native_call, name);
  if (seeds_all) (void)t.lifter.lift(call.generator, t.lifter.constant(call.generator));
  use(call.generator);
  PyObject* given[] = {call.generator.get(), call.count > 0 ? call.arguments[0] : nullptr};
  // `function`: its counterpart in `torch.random`, which does the same for the default generator.
  auto note = [&](Borrowed function, Ref result) {
    if (function && is_default(call.generator))
      return t.recorder.note_separate_segment(function, given + 1, call.count, result);
    Ref method_descriptor = checked(PyObject_GetAttrString(THPGeneratorClass, call.name));
    t.recorder.note_separate_segment(method_descriptor, given, call.count + 1, std::move(result));
  };
  const std::string_view method = call.name;
  if (method == "manual_seed" && call.count == 1 && is_seed(call.arguments[0])) {
    // torch.manual_seed seeds the generators of all devices; the default generator's own method does not.
    note(seeds_all ? Borrowed(random.manual_seed) : Borrowed(), Ref::share(Py_None));
    note_seed(call.generator, fake::is_symbol(call.arguments[0]) ? Borrowed() : Borrowed(call.arguments[0]));
    return Ref::share(call.generator);
  }
  if (method == "seed" && call.count == 0 && t.recorder.captures_scalars()) {
    // The system supplies a new seed in every run.
    note_seed(call.generator, {});
    const Paused paused(t);
    if (reseeds_all) return t.recorder.number_separately(random.seed, nullptr, 0);
    return t.recorder.number_separately(checked(PyObject_GetAttrString(THPGeneratorClass, call.name)), given, 1);
  }
  if (method == "initial_seed" && call.count == 0) return initial_seed(call.generator);
  if (method == "get_state" && call.count == 0) {
    Ref state = state_of(call.generator);
    note(random.get_state, Ref(state));
    return state;
  }
  if (method == "set_state" && call.count == 1 && graph::is_tensor(call.arguments[0])) {
    const at::Tensor& state = graph::as_tensor(call.arguments[0]);
    if (!state.is_cpu() || state.scalar_type() != at::kByte || state.layout() != at::kStrided ||
        state.unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
        !(graph::as_tensor(state_of(call.generator)).sizes() == state.sizes()))
      stop(report::Reason::torch_call, name + ": the tensor is not a state of this generator");
    note(random.set_state, Ref::share(Py_None));
    note_seed(call.generator, {});
    return Ref::share(call.generator);
  }
  stop(report::Reason::native_call, name);
}

Ref RandomGenerators::make(PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  if (t.functorch->transformed || t.recorder.is_silent() || (keyword_names && positional > 0))
    stop(report::Reason::native_call, "torch.Generator");
  const size_t total = positional + (keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0);
  if (total > 1 || (total == 1 && !lift::is_plain(arguments[0]))) stop(report::Reason::native_call, "torch.Generator");
  Ref made = Ref::steal(PyObject_Vectorcall(THPGeneratorClass, arguments, positional, keyword_names.get()));
  if (!made) stop_for_torch(t, "torch.Generator");
  t.keep_alive.push_back(Ref(made));
  t.recorder.note_separate_segment(THPGeneratorClass, arguments, total, Ref(made));
  return made;
}

}  // namespace alternator::trace
