#include "graph/export/fx_export.h"

#include "fake/functorch_state.h"
#include "graph/export/fx_examples.h"
#include "graph/export/fx_graph.h"
#include "graph/export/fx_numbers.h"
#include "graph/export/fx_target.h"
#include "graph/record/node_effects.h"
#include "graph/record/record_error.h"
#include "graph/record/state_calls.h"
#include "graph/record/torch_symbol.h"
#include "graph/record/torch_types.h"
#include "py/lasting.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>

#include <algorithm>
#include <optional>
#include <set>

namespace alternator::graph {
namespace {

bool is_given(Borrowed object) { return object && object.get() != Py_None; }

// Whether generated code can contain the object as a literal. All others become attributes of the module.
bool is_literal(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (object == Py_None || object == Py_Ellipsis || object == Py_NotImplemented) return true;
  if (type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type || type == &PyUnicode_Type ||
      type == &PyComplex_Type || type == &PyBytes_Type || type == &PyRange_Type)
    return true;
  return THPDtype_Check(object) || THPDevice_Check(object) || THPLayout_Check(object) ||
         THPMemoryFormat_Check(object) || THPQScheme_Check(object) || type == torch_types().op_overload ||
         PyType_IsSubtype(type, torch_types().enumeration);
}

struct MetaKeys {
  Ref stack_trace = checked(PyUnicode_InternFromString("stack_trace"));
  Ref nn_module_stack = checked(PyUnicode_InternFromString("nn_module_stack"));
  Ref source_fn_stack = checked(PyUnicode_InternFromString("source_fn_stack"));
  Ref example_value = checked(PyUnicode_InternFromString("example_value"));
  Ref tensor_dict = checked(PyUnicode_InternFromString("tensor_dict"));
  Ref unbacked_bindings = checked(PyUnicode_InternFromString("unbacked_bindings"));
  Ref recompute = checked(PyUnicode_InternFromString("recompute"));
  Ref ac_graph_id = checked(PyUnicode_InternFromString("ac_graph_id"));
  Ref separate = checked(PyUnicode_InternFromString("separate_segment"));
  Ref writes = checked(PyUnicode_InternFromString("writes"));
  Ref name = checked(PyUnicode_InternFromString("name"));  // an attribute of nodes
};
const MetaKeys& meta_keys() {
  static constinit Lasting<MetaKeys> keys;
  return keys.get();
}

class Exporter {
 public:
  Exporter(Program& program, const ExportOptions& options)
      : program_(program),
        options_(options),
        nodes_(program.tensors.size()),
        attributes_(checked(PyDict_New())),
        attribute_nodes_(program.arena.objects().size()) {
    // Recorded fakes have the sizes of one call.
    const bool symbolic = options.inputs != nullptr || has_symbolic_inputs(program);
    if (is_given(options.fake_mode) && !symbolic) examples_.emplace(options.fake_mode);
    has_separate_segments_ = program.has_separate_segments();
  }

  Ref run() {
    if (options_.inputs != nullptr) {
      symbolic_placeholders(*options_.inputs);
    } else {
      placeholders();
    }
    Ambient outermost = program_.states.at(0);
    outermost.grad = program_.grad_around();
    StateWalk walk(outermost);
    for (uint32_t n = 0; n < program_.nodes.size(); ++n) {
      if (!program_.nodes[n].live) continue;
      grad_sets(walk, n);
      steps(walk.to(program_.states[program_.nodes[n].state]));
      call(program_.nodes[n]);
    }
    grad_sets(walk, static_cast<uint32_t>(program_.nodes.size()));
    steps(walk.finish(outermost));
    output();
    Ref module = fx_.finish(attributes_);
    if (recomputed_) {
      // Caches of compiled graphs hash the code of the module and its attributes, not the metadata of its nodes.
      Ref meta = checked(PyObject_GetAttrString(module.get(), "meta"));
      check_status(PyDict_SetItemString(meta.get(), "recomputed", recomputed_.get()));
    }
    return module;
  }

 private:
  std::string label_of(uint32_t declared, size_t position) const {
    const Ref& label = program_.declared[declared].label;
    if (label && PyUnicode_Check(label.get()))
      if (const char* text = PyUnicode_AsUTF8(label.get())) return text;
    return "arg_" + std::to_string(position);
  }

  Ref placeholder(const std::string& label, std::set<std::string>& taken) {
    const std::string wanted = FxNames::identifier(label);
    std::string target = wanted;
    for (int number = 1; !taken.insert(target).second; number++) target = wanted + "_" + std::to_string(number);
    Ref py_target = checked(PyUnicode_FromStringAndSize(target.data(), static_cast<Py_ssize_t>(target.size())));
    Ref empty = checked(PyTuple_New(0));
    return fx_.add(FxOp::Placeholder, py_target, empty, Borrowed(), FxNames::snake_case(target));
  }

  void placeholders() {
    std::set<std::string> taken;  // the names of parameters: variables of two frames may have the same name
    for (uint32_t i = 0; i < program_.inputs.size(); ++i) {
      const Input& input = program_.declared[program_.inputs[i]];
      Ref node = placeholder(label_of(program_.inputs[i], i), taken);
      const at::Tensor& fake = program_.tensors[input.tensor].fake;
      if (examples_ && fake.defined()) {
        Ref example;
        if (is_given(options_.example_inputs)) {
          Ref real = checked(PySequence_GetItem(options_.example_inputs.get(), i));
          example = examples_->of_real(fake, real);
        } else {
          example = examples_->of(fake);
        }
        FxGraph::set_meta(node, meta_keys().example_value, example);
        Ref tensor_dict = checked(PyDict_New());
        FxGraph::set_meta(node, meta_keys().tensor_dict, tensor_dict);
      }
      nodes_[input.tensor] = std::move(node);
    }
  }

  static std::string name_of_symbol(shapes::Expression symbol) {
    return symbol->kind == shapes::Kind::kSymbol ? "s" + std::to_string(symbol->value) : "number";
  }

  // Symbols first: other numbers are computed from them, right after the placeholders.
  void symbolic_placeholders(const std::vector<ExportedInput>& inputs) {
    std::set<std::string> taken;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ExportedInput& input = inputs[i];
      const bool is_symbol = input.declared == kNowhere;
      Ref node = placeholder(is_symbol ? name_of_symbol(input.number) : label_of(input.declared, i), taken);
      if (is_given(options_.symbolic_examples)) {
        Ref example = checked(PySequence_GetItem(options_.symbolic_examples.get(), static_cast<Py_ssize_t>(i)));
        if (example.get() == Py_None) {
          if (!fixed_examples_) fixed_examples_.emplace(options_.fake_mode);
          example = fixed_examples_->of(program_.tensors[program_.declared[input.declared].tensor].fake);
        }
        FxGraph::set_meta(node, meta_keys().example_value, example);
        if (!is_symbol) FxGraph::set_meta(node, meta_keys().tensor_dict, checked(PyDict_New()));
      }
      if (is_symbol) {
        numbers_.define(input.number, std::move(node));
      } else {
        nodes_[program_.declared[input.declared].tensor] = std::move(node);
      }
    }
    for (const uint32_t declared : program_.inputs) {
      const Input& input = program_.declared[declared];
      if (input.number == nullptr) continue;
      Ref& node = nodes_[input.tensor];
      node = node ? item_of(node) : numbers_.of(program_.backed->environment.simplify(input.number));
    }
  }

  // A float is an input tensor, of which the graph takes the value.
  Ref item_of(Borrowed tensor) {
    Ref item = checked(PyUnicode_InternFromString("item"));
    Ref arguments = checked(PyTuple_Pack(1, tensor.get()));
    return fx_.add(FxOp::CallMethod, item, arguments, Borrowed(), "item");
  }

  // ---- values

  Ref argument(Value value) {
    return rebuild(program_.arena, value, [&](Value leaf) -> Ref {
      if (leaf.is_tensor()) return tensor(leaf.index);
      Borrowed object = program_.arena.object(leaf);
      if (leaf.kind() == ValueKind::Symbol || is_literal(object.get())) return Ref::share(object);
      Ref& node = attribute_nodes_[leaf.index];
      if (!node) node = attribute("_constant", object);
      return node;
    });
  }

  Ref tensor(uint32_t id) {
    Ref& node = nodes_[id];
    if (!node && program_.tensors[id].origin == Origin::Constant)
      node = constant(program_.constants[program_.tensors[id].index]);
    ALT_CHECK(node, "a tensor is used before its node is written");
    return node;
  }

  // A get_attr node for a new attribute `prefix<n>` of the module.
  Ref attribute(const char* prefix, Borrowed value) {
    Ref empty = checked(PyTuple_New(0));
    const std::string name = prefix + std::to_string(PyDict_GET_SIZE(attributes_.get()));
    Ref target = checked(PyUnicode_FromString(name.c_str()));
    check_status(PyDict_SetItem(attributes_.get(), target.get(), value.get()));
    return fx_.add(FxOp::GetAttr, target, empty, Borrowed(), name);
  }

  Ref constant(const Constant& constant) {
    Ref value = checked(THPVariable_Wrap(constant.value));
    Ref node = attribute("_tensor_constant", value);
    if (examples_) {
      Ref example = examples_->of_real(program_.tensors[constant.tensor].fake, value);
      FxGraph::set_meta(node, meta_keys().example_value, example);
    }
    if (!constant.fresh) return node;
    Ref clone = checked(PyUnicode_InternFromString("clone"));
    Ref arguments = checked(PyTuple_Pack(1, node.get()));
    Ref copy = fx_.add(FxOp::CallMethod, clone, arguments, Borrowed(), "clone");
    example(copy, constant.tensor);
    return copy;
  }

  // ---- nodes

  // A graph that is split into segments is split where the state changes: no more often than necessary.
  bool shows_grad_sets() const { return !has_separate_segments_ && program_.grad_sets.outermost(); }

  // The grad mode calls that the program makes before a node.
  void grad_sets(StateWalk& walk, uint32_t node) {
    const std::vector<GradSets::Set>& all = program_.grad_sets.all();
    for (; shows_grad_sets() && grad_sets_ < all.size() && all[grad_sets_].before_node <= node; grad_sets_++)
      steps({walk.set_grad(all[grad_sets_].mode)});
  }

  void steps(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      StepCall call = step_call(step);
      if (call.takes_scope) call.arguments.insert(call.arguments.begin(), scopes_.at(step.scope));
      Ref arguments = checked(PyTuple_New(call.arguments.size()));
      for (size_t i = 0; i < call.arguments.size(); ++i)
        PyTuple_SET_ITEM(arguments.get(), i, Ref(call.arguments[i]).release());
      Ref node = fx_.add(FxOp::CallFunction, call.function, arguments, call.keywords, callable_name(call.function));
      // A scope may begin in one segment of the graph and end in another.
      if (has_separate_segments_) FxGraph::set_meta(node, meta_keys().separate, Py_True);
      if (step.kind == StepKind::EnterAutocast || step.kind == StepKind::EnterInference) {
        if (scopes_.size() <= step.scope) scopes_.resize(step.scope + 1);
        scopes_[step.scope] = std::move(node);
      }
    }
  }

  Ref positional(const Node& node, const Target& target) {
    const bool attribute = target.form == Target::Form::Attribute;
    Ref arguments = checked(PyTuple_New(node.positional + attribute));
    uint32_t at = 0;
    for (uint32_t i = 0; i < node.positional; ++i) {
      const uint32_t from = target.form == Target::Form::Swapped ? 1 - i : i;
      PyTuple_SET_ITEM(arguments.get(), at++, argument(program_.argument(node, from)).release());
      if (attribute && i == 0) PyTuple_SET_ITEM(arguments.get(), at++, Ref(target.attribute).release());
    }
    return arguments;
  }

  Ref keywords(const Node& node) {
    if (node.keyword == 0) return Ref();
    Ref dict = checked(PyDict_New());
    for (uint32_t i = 0; i < node.keyword; ++i) {
      Ref value = argument(program_.argument(node, node.positional + i));
      check_status(PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(node.keyword_names.get(), i), value.get()));
    }
    return dict;
  }

  // The single used row of x.unbind(0), or of iterating over x; null: there are several. As `x[i]` it is one node, and
  // no other row is created. The two differ if a row or x is mutated while gradients are recorded, and in the autograd
  // history of a row that is an output: then unbind stays.
  const Element* only_row(const Node& node) {
    if (node.callable.get() != torch_types().tensor_unbind.get() || node.wrapped || node.overridden ||
        node.positional != 2 || node.keyword != 0)
      return nullptr;
    const Value dimension = program_.argument(node, 1);
    if (dimension.is_tensor() || !program_.argument(node, 0).is_tensor()) return nullptr;
    Borrowed zero = program_.arena.object(dimension);
    if (!PyLong_CheckExact(zero.get()) || _PyLong_Sign(zero.get()) != 0) return nullptr;
    const Element* only = nullptr;
    for (uint32_t i = 0; i < node.element_count; ++i) {
      const Element& element = program_.elements[node.elements + i];
      if (!element.live) continue;
      if (only != nullptr || element.container != kWhole || element.tensor == kNowhere) return nullptr;
      only = &element;
    }
    if (only == nullptr || !shares_with_no_result(program_.tensors[only->tensor].fake)) return nullptr;
    const bool writes = std::any_of(program_.nodes.begin(), program_.nodes.end(),
                                    [](const Node& other) { return other.live && (other.effects & kMutates) != 0; });
    return writes ? nullptr : only;
  }

  bool shares_with_no_result(const at::Tensor& fake) const {
    if (fake::is_wrapped(fake) || !fake.has_storage()) return false;
    const c10::StorageImpl* memory = fake.storage().unsafeGetStorageImpl();
    return std::none_of(program_.outputs.begin(), program_.outputs.end(), [&](uint32_t output) {
      const at::Tensor& result = program_.tensors[output].fake;
      return result.defined() && (!result.has_storage() || result.storage().unsafeGetStorageImpl() == memory);
    });
  }

  void call(const Node& node) {
    if (const Element* row = only_row(node)) {
      (void)item(argument(program_.argument(node, 0)), node, *row);
      return;
    }
    const Target& target = targets_.of(program_, node);
    Ref arguments = positional(node, target);
    Ref by_name = keywords(node);
    const FxOp op = target.form == Target::Form::Method ? FxOp::CallMethod : FxOp::CallFunction;
    Ref fx_node = fx_.add(op, target.target, arguments, by_name, FxNames::snake_case(target.name));
    describe(fx_node, node);
    describe_target(fx_node, target);
    elements(fx_node, node);
    if (node.result != kNowhere) {
      nodes_[node.result] = fx_node;
      example(fx_node, node.result);
    } else if (examples_ && node.bindings) {
      FxGraph::set_meta(fx_node, meta_keys().example_value, whole_example(node));
    }
    if (examples_ && node.bindings) FxGraph::set_meta(fx_node, meta_keys().unbacked_bindings, node.bindings);
  }

  // The example value of a tuple result: the positions of its new unbacked symbols.
  Ref whole_example(const Node& node) {
    std::vector<Ref> parts;
    for (uint32_t i = 0; i < node.element_count; ++i) {
      const Element& element = program_.elements[node.elements + i];
      if (element.container != kWhole || element.tensor == kNowhere)
        record_error("unbacked symbols inside of a nested result");
      const TensorRecord& record = program_.tensors[element.tensor];
      parts.push_back(record.is_symbol() ? record.torch_symbol : examples_->of(record.fake));
    }
    Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
    for (size_t i = 0; i < parts.size(); ++i)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), parts[i].release());
    return tuple;
  }

  // The used parts of a result, right after it.
  void elements(Borrowed whole, const Node& node) {
    std::vector<Ref> parts(node.element_count);
    for (uint32_t i = 0; i < node.element_count; ++i) {
      const uint32_t number = node.elements + i;
      const Element& element = program_.elements[number];
      if (!element.live) continue;
      Borrowed container = element.container == kWhole ? whole : Borrowed(parts[element.container - node.elements]);
      parts[i] = item(container, node, element);
    }
  }

  Ref item(Borrowed container, const Node& node, const Element& element) {
    static constinit Lasting<Ref> operator_getitem;
    const Ref& getitem = operator_getitem.get([] { return torch_name("operator", "getitem"); });
    Ref arguments = checked(PyTuple_Pack(2, container.get(), element.key.get()));
    Ref part = fx_.add(FxOp::CallFunction, getitem, arguments, Borrowed(), "getitem");
    describe(part, node);
    if (const uint32_t tensor = element.tensor; tensor != kNowhere) {
      nodes_[tensor] = part;
      example(part, tensor);
    }
    return part;
  }

  void output() {
    Ref results = checked(PyTuple_New(program_.outputs.size()));
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      PyTuple_SET_ITEM(results.get(), i, tensor(program_.outputs[i]).release());
    Ref arguments = checked(PyTuple_Pack(1, results.get()));
    Ref target = checked(PyUnicode_InternFromString("output"));
    Ref node = fx_.add(FxOp::Output, target, arguments, Borrowed(), "output");
  }

  // ---- metadata

  void describe(Borrowed fx_node, const Node& node) {
    if (node.site != kNowhere) FxGraph::set_meta(fx_node, meta_keys().stack_trace, program_.sites.text(node.site));
    if (node.scope != kNowhere)
      FxGraph::set_meta(fx_node, meta_keys().nn_module_stack,
                        program_.modules.stack(node.scope, options_.module_paths));
    // An unbacked symbol is not recomputed.
    if (node.checkpoint != 0 && !node.bindings) recompute(fx_node, node.checkpoint);
    if (node.separate) FxGraph::set_meta(fx_node, meta_keys().separate, Py_True);
    if (has_separate_segments_ && (node.effects & kMutates) != 0)
      FxGraph::set_meta(fx_node, meta_keys().writes, Py_True);
  }

  // Read by AOTAutograd's partitioner: the node is recomputed in the backward pass rather than saved for it.
  void recompute(Borrowed fx_node, uint16_t checkpoint) {
    static constinit Lasting<Ref> policy;
    const Ref& wanted = policy.get([] {
      Ref policies = torch_name("torch.utils.checkpoint", "CheckpointPolicy");
      return checked(PyObject_GetAttrString(policies.get(), "PREFER_RECOMPUTE"));
    });
    Ref number = checked(PyLong_FromLong(checkpoint));
    FxGraph::set_meta(fx_node, meta_keys().recompute, wanted);
    FxGraph::set_meta(fx_node, meta_keys().ac_graph_id, number);
    if (!recomputed_) recomputed_ = checked(PyList_New(0));
    Ref name = checked(PyObject_GetAttrString(fx_node.get(), "name"));
    check_status(PyList_Append(recomputed_.get(), checked(PyTuple_Pack(2, name.get(), number.get())).get()));
  }

  void describe_target(Borrowed fx_node, const Target& target) {
    Ref name = checked(PyObject_GetAttr(fx_node.get(), meta_keys().name.get()));
    Ref pair = checked(PyTuple_Pack(2, name.get(), target.target.get()));
    Ref stack = checked(PyList_New(1));
    PyList_SET_ITEM(stack.get(), 0, pair.release());
    FxGraph::set_meta(fx_node, meta_keys().source_fn_stack, stack);
  }

  void example(Borrowed fx_node, uint32_t tensor) {
    if (!examples_) return;
    const TensorRecord& record = program_.tensors[tensor];
    if (fake::is_wrapped(record.fake)) return;  // it has a value only inside of its transform
    if (record.is_symbol() && !record.torch_symbol) return;
    Ref value = record.is_symbol() ? record.torch_symbol : examples_->of(record.fake);
    FxGraph::set_meta(fx_node, meta_keys().example_value, value);
  }

  Program& program_;
  ExportOptions options_;
  FxGraph fx_;
  FxNumbers numbers_{fx_};
  Targets targets_;
  std::vector<Ref> nodes_;  // per tensor
  Ref attributes_;
  std::vector<Ref> attribute_nodes_;  // per object of the arena
  std::vector<Ref> scopes_;
  size_t grad_sets_ = 0;  // how many are emitted
  bool has_separate_segments_ = false;
  Ref recomputed_;  // a list of (name, checkpointed region) of such nodes; null: there are none
  std::optional<FxExamples> examples_;
  std::optional<FxExamples> fixed_examples_;  // in a graph with symbols: of inputs that have none
};

}  // namespace

Ref export_fx(Program& program, const ExportOptions& options) { return Exporter(program, options).run(); }

}  // namespace alternator::graph
