// Random number generators (torch.Generator, torch.manual_seed). A call that mutates a generator or reads its state is
// a node in a separate segment, outside what a backend compiles; tracing never touches a pre-existing generator.
#include "trace/torch/random_generators.h"
#include "trace/calls/reflective_builtins.h"
#include "trace/core/tracer.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/torch/torch_calls.h"

#include "fake/session.h"
#include "fake/unbacked_symbol.h"
#include "graph/record/torch_types.h"
#include "py/lasting.h"
#include "py/names.h"
#include "trace/calls/handlers.h"

#include <torch/csrc/Generator.h>

namespace alternator::trace {

namespace {

// torch.random, and the methods of torch.Generator that nodes call.
struct RandomModule {
  Ref default_generator = graph::torch_name("torch._C", "default_generator");
  Ref manual_seed = graph::torch_name("torch.random", "manual_seed");
  Ref seed = graph::torch_name("torch.random", "seed");
  Ref get_state = graph::torch_name("torch.random", "get_rng_state");
  Ref set_state = graph::torch_name("torch.random", "set_rng_state");
  Ref initial_seed = checked(PyObject_GetAttrString(default_generator.get(), "initial_seed"));
  Ref manual_seed_method = method("manual_seed"), seed_method = method("seed");
  Ref get_state_method = method("get_state"), set_state_method = method("set_state");

  static Ref method(const char* name) { return checked(PyObject_GetAttrString(THPGeneratorClass, name)); }
};
const RandomModule& random_module() {
  static constinit Lasting<RandomModule> module;
  return module.get();
}

bool is_default(Borrowed generator) { return generator == Borrowed(random_module().default_generator); }

const PyMethodDef& definition_of(Borrowed method) {
  return PyCFunction_Check(method.get()) ? *method.as<PyCFunctionObject>()->m_ml
                                         : *method.as<PyMethodDescrObject>()->d_method;
}

using Method = Ref (RandomGenerators::*)(const GeneratorCall&);

// A method of a generator, bound or not.
template <Method method>
Ref call_method(Tracer& t, const Call& call) {
  const auto [self, rest] = split_self(call);
  if (!self || !graph::is_generator(self)) return {};
  const std::string name = std::string("torch.Generator.") + definition_of(call.callable).ml_name;
  if (call.keyword_names) stop(report::Reason::native_call, name);
  t.generators->use(self);
  return (t.generators.get()->*method)({name, self, rest.arguments, rest.positional});
}

// torch.manual_seed() and torch.seed(): the default generator, and the generators of all devices.
template <Method method>
Ref call_for_all_devices(Tracer& t, const Call& call, const char* name) {
  if (call.keyword_names && call.count() != 1) stop(report::Reason::native_call, name);
  Borrowed generator = random_module().default_generator;
  (void)t.lifter.lift(generator, t.lifter.constant(generator));
  t.generators->use(generator);
  return (t.generators.get()->*method)({name, generator, call.arguments, call.count(), true});
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

bool register_generators(Handlers& handlers) {
  const RandomModule& random = random_module();
  auto* type = reinterpret_cast<PyTypeObject*>(THPGeneratorClass);
  handlers.add(THPGeneratorClass, [](Tracer& t, const Call& call) { return t.generators->make(call); });
  handlers.add(random.manual_seed, [](Tracer& t, const Call& call) {
    return call_for_all_devices<&RandomGenerators::manual_seed>(t, call, "torch.Generator.manual_seed");
  });
  handlers.add(random.seed, [](Tracer& t, const Call& call) {
    if (call.count() != 0) return Ref();  // a TypeError
    return call_for_all_devices<&RandomGenerators::seed>(t, call, "torch.Generator.seed");
  });
  handlers.add_methods(type, "manual_seed", call_method<&RandomGenerators::manual_seed>);
  handlers.add_methods(type, "seed", call_method<&RandomGenerators::seed>);
  handlers.add_methods(type, "initial_seed", call_method<&RandomGenerators::initial_seed>);
  handlers.add_methods(type, "get_state", call_method<&RandomGenerators::get_state>);
  handlers.add_methods(type, "set_state", call_method<&RandomGenerators::set_state>);
  handlers.add_methods(type,
                       "clone_state get_offset set_offset graphsafe_get_state graphsafe_set_state __reduce__ "
                       "__setstate__",
                       call_method<&RandomGenerators::refuse>);
  return true;
}

void RandomGenerators::use(Borrowed generator) {
  if (t.is_transformed() || t.recorder.is_silent())
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
Ref RandomGenerators::initial_seed(const GeneratorCall& call) {
  if (call.count != 0) return refuse(call);
  Borrowed generator = call.generator;
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

Ref RandomGenerators::refuse(const GeneratorCall& call) { stop(report::Reason::native_call, call.name); }

// `function`: the counterpart of `method` in torch.random, which does the same for the default generator; null: none.
void RandomGenerators::note_node(const GeneratorCall& call, Borrowed method, Borrowed function, Ref result) {
  PyObject* given[] = {call.generator.get(), call.count > 0 ? call.arguments[0] : nullptr};
  if (function && is_default(call.generator))
    return t.recorder.note_separate_segment(function, given + 1, call.count, std::move(result));
  t.recorder.note_separate_segment(method, given, call.count + 1, std::move(result));
}

Ref RandomGenerators::manual_seed(const GeneratorCall& call) {
  if (call.count != 1 || !is_seed(call.arguments[0])) return refuse(call);
  // torch.manual_seed seeds the generators of all devices; the default generator's own method does not.
  const RandomModule& random = random_module();
  note_node(call, random.manual_seed_method, call.all_devices ? Borrowed(random.manual_seed) : Borrowed(),
            Ref::share(Py_None));
  note_seed(call.generator, fake::is_symbol(call.arguments[0]) ? Borrowed() : Borrowed(call.arguments[0]));
  return Ref::share(call.generator);
}

Ref RandomGenerators::seed(const GeneratorCall& call) {
  if (call.count != 0 || !t.recorder.captures_scalars()) return refuse(call);
  // The system supplies a new seed in every run.
  note_seed(call.generator, {});
  const Paused paused(t);
  if (call.all_devices) return t.recorder.number_separately(random_module().seed, nullptr, 0);
  PyObject* given[] = {call.generator.get()};
  return t.recorder.number_separately(random_module().seed_method, given, 1);
}

Ref RandomGenerators::get_state(const GeneratorCall& call) {
  if (call.count != 0) return refuse(call);
  Ref state = state_of(call.generator);
  note_node(call, random_module().get_state_method, random_module().get_state, Ref(state));
  return state;
}

Ref RandomGenerators::set_state(const GeneratorCall& call) {
  if (call.count != 1 || !graph::is_tensor(call.arguments[0])) return refuse(call);
  const at::Tensor& state = graph::as_tensor(call.arguments[0]);
  if (!state.is_cpu() || state.scalar_type() != at::kByte || state.layout() != at::kStrided ||
      state.unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
      !(graph::as_tensor(state_of(call.generator)).sizes() == state.sizes()))
    stop(report::Reason::torch_call, call.name + ": the tensor is not a state of this generator");
  note_node(call, random_module().set_state_method, random_module().set_state, Ref::share(Py_None));
  note_seed(call.generator, {});
  return Ref::share(call.generator);
}

Ref RandomGenerators::make(const Call& call) {
  const size_t total = call.count();
  if (t.is_transformed() || t.recorder.is_silent() || (call.keyword_names && call.positional > 0) || total > 1 ||
      (total == 1 && !lift::is_plain(call.arguments[0])))
    stop(report::Reason::native_call, "torch.Generator");
  Ref made =
      Ref::steal(PyObject_Vectorcall(THPGeneratorClass, call.arguments, call.positional, call.keyword_names.get()));
  if (!made) stop_for_torch(t, "torch.Generator");
  t.keep_alive.push_back(Ref(made));
  t.recorder.note_separate_segment(THPGeneratorClass, call.arguments, total, Ref(made));
  return made;
}

}  // namespace alternator::trace
