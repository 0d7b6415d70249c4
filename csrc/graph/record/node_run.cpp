#include "graph/record/node_run.h"

#include "graph/record/record_error.h"
#include "graph/record/state_calls.h"
#include "graph/record/torch_types.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

// Exported by every CPython, declared only in its private headers from 3.13 on.
extern "C" void _PyTraceback_Add(const char* function, const char* file, int line);

namespace alternator::graph {

static bool is_leaf(ValueKind kind) { return kind <= ValueKind::Tensor; }

Run::Run(const Program& program, PyObject* const* inputs) : program_(program) {
  tensors_.resize(program.tensors.size());
  for (size_t i = 0; i < program.inputs.size(); ++i)
    tensors_[program.declared[program.inputs[i]].tensor] = Ref::share(inputs[i]);
  for (const Constant& constant : program.constants)
    tensors_[constant.tensor] = checked(THPVariable_Wrap(constant.fresh ? constant.value.clone() : constant.value));
}

Run::Run(const Program& program, std::vector<Ref> tensors)
    : program_(program), tensors_(std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end())) {}

PyObject* Run::leaf(Value value) const {
  if (!value.is_tensor()) return program_.arena.object(value).get();
  ALT_CHECK(tensors_[value.index], "a tensor is used before it is made");
  return tensors_[value.index].get();
}

void Run::step(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    const StepCall call = step_call(step);
    c10::SmallVector<PyObject*, 4> arguments;
    if (call.takes_scope) arguments.push_back(open_.back().get());
    for (const Ref& argument : call.arguments) arguments.push_back(argument.get());
    Ref result =
        checked(PyObject_VectorcallDict(call.function.get(), arguments.data(), arguments.size(), call.keywords.get()));
    if (call.takes_scope) open_.pop_back();
    // Scopes close in the reverse order of opening, so a stack is enough.
    if (step.kind == StepKind::EnterAutocast || step.kind == StepKind::EnterInference)
      open_.push_back(std::move(result));
  }
}

void Run::node(const NodeStop& stop, bool whole) {
  const Node& node = program_.nodes[stop.node];
  const uint32_t count = node.argument_count();
  c10::SmallVector<Ref, 4> made;                 // arguments other than tensors and constants
  c10::SmallVector<PyObject*, 16> raw{nullptr};  // the slot for PY_VECTORCALL_ARGUMENTS_OFFSET
  raw.resize_for_overwrite(count + 1);
  for (uint32_t i = 0; i < count; ++i) {
    const Value value = program_.argument(node, i);
    if (is_leaf(value.kind())) {
      raw[i + 1] = leaf(value);
    } else {
      made.push_back(build(value));
      raw[i + 1] = made.back().get();
    }
  }
  Ref result = checked(PyObject_Vectorcall(node.callable.get(), raw.data() + 1,
                                           node.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, node.keyword_names.get()));
  c10::SmallVector<Ref, 4> parts;
  parts.resize(node.element_count);
  for (uint32_t i = 0; i < node.element_count; ++i) {
    const Element& element = program_.elements[node.elements + i];
    if (!element.live && !whole) continue;
    const Ref& container = element.container == kWhole ? result : parts[element.container - node.elements];
    parts[i] = checked(PyObject_GetItem(container.get(), element.key.get()));
  }
  for (uint32_t tensor : stop.made) {
    const TensorRecord& record = program_.tensors[tensor];
    tensors_[tensor] = record.origin == Origin::Result ? result : parts[record.index - node.elements];
  }
  for (uint32_t tensor : stop.expired) tensors_[tensor].reset();
}

Ref Run::build(Value value) const {
  return rebuild(program_.arena, value, [&](Value at) { return Ref::share(leaf(at)); });
}

void Run::unwind(uint32_t failed) noexcept {
  for (uint32_t site = program_.nodes[failed].site; site != kNowhere; site = program_.sites[site].caller) {
    auto* code = program_.sites.code(program_.sites[site]).as<PyCodeObject>();
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const char* name = PyUnicode_AsUTF8(code->co_name);
    if (file != nullptr && name != nullptr) _PyTraceback_Add(name, file, program_.sites.line(site));
  }
  SavedError error;
  for (; !open_.empty(); open_.pop_back()) {
    Ref done = Ref::steal(PyObject_CallMethod(open_.back().get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    if (!done) PyErr_WriteUnraisable(nullptr);
  }
  c10::GradMode::set_enabled(program_.states[0].grad);
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(program_.states[0].default_dtype));
  if (program_.states[0].flags) program_.states[0].flags->apply();
}

// The nodes that a tensor depends on, in order. False: they cannot be run ahead of the others.
static bool needed_for(const Program& program, uint32_t tensor, std::vector<uint32_t>* nodes) {
  std::vector<bool> needed(program.nodes.size());
  if (const uint32_t producer = program.producer(tensor); producer != kNowhere) needed[producer] = true;
  for (uint32_t n = static_cast<uint32_t>(program.nodes.size()); n-- > 0;) {
    const Node& node = program.nodes[n];
    if ((node.effects & ~kRandom) != kPure) return false;
    if (!needed[n]) continue;
    if (node.effects != kPure) return false;
    nodes->insert(nodes->begin(), n);
    program.each_tensor_argument(node, [&](uint32_t argument) {
      if (const uint32_t producer = program.producer(argument); producer != kNowhere) needed[producer] = true;
    });
  }
  return true;
}

Ref value_now(const Program& program, uint32_t tensor, const fake::Session& session) {
  std::vector<uint32_t> nodes;
  const Ambient now = Ambient::now();
  if (now.inference != program.states.at(0).inference || !needed_for(program, tensor, &nodes)) return {};
  Run run(program, nullptr);
  for (const Input& input : program.declared) {
    const at::Tensor real = session.real_of(program.tensors[input.tensor].fake);
    if (real.defined()) run.set(input.tensor, checked(THPVariable_Wrap(real)));
  }
  StateWalk walk(program.states[0]);
  program.states[0].apply();
  for (uint32_t n : nodes) {
    const Node& node = program.nodes[n];
    try {
      NodeStop stop{n, walk.to(program.states[node.state]), {}, {}};
      if (node.result != kNowhere) stop.made.push_back(node.result);
      for (uint32_t i = 0; i < node.element_count; ++i) {
        const uint32_t made = program.elements[node.elements + i].tensor;
        if (made != kNowhere) stop.made.push_back(made);
      }
      run.step(stop.before);
      run.node(stop);
    } catch (const PyError&) {
      run.unwind(n);
      now.apply();
      throw;
    }
  }
  run.step(walk.finish(program.states[0]));
  now.apply();
  return run[tensor];
}

}  // namespace alternator::graph
