#include "graph/export/fx_target.h"

#include "graph/record/named_callable.h"
#include "graph/record/node_effects.h"
#include "graph/record/torch_types.h"

#include <string_view>

namespace alternator::graph {
namespace {

struct Operator {
  const char* function;
  uint8_t arguments;
  bool reflected;
};

const Operator* find_operator(std::string_view method) {
  static const std::unordered_map<std::string_view, Operator> table = {
#define ALT_OPERATOR(METHOD, FUNCTION, ARGUMENTS) {METHOD, {FUNCTION, ARGUMENTS, false}},
#define ALT_REFLECTED(METHOD, FUNCTION) {METHOD, {FUNCTION, 2, true}},
#include "graph/record/operator_names.def"
#undef ALT_OPERATOR
#undef ALT_REFLECTED
  };
  const auto found = table.find(method);
  return found == table.end() ? nullptr : &found->second;
}

Ref operator_function(const char* name) { return torch_name("operator", name); }
Ref builtin(const char* name) { return torch_name("builtins", name); }
Ref text(std::string_view value) { return checked(PyUnicode_FromStringAndSize(value.data(), value.size())); }

bool is_magic(std::string_view name) { return name.size() > 4 && name.starts_with("__") && name.ends_with("__"); }

Ref attribute_name(Borrowed descriptor) {
  Ref name = Ref::steal(PyObject_GetAttrString(descriptor.get(), "__name__"));
  if (name) return name;
  PyErr_Clear();
  Ref getter = checked(PyObject_GetAttrString(descriptor.get(), "fget"));  // a property has no __name__ before 3.13
  return checked(PyObject_GetAttrString(getter.get(), "__name__"));
}

bool is_method_wrapper(Borrowed callable) { return Py_IS_TYPE(callable.get(), &_PyMethodWrapper_Type); }

// Tensor.add, if it is an attribute of torch.Tensor: then `x.add(...)` means the same.
bool is_tensor_method(Borrowed callable, const std::string& name) {
  Ref found = Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(torch_types().tensor), name.c_str()));
  if (!found) PyErr_Clear();
  return found.get() == callable.get();
}

bool is_number(const Program& program, Value value) {
  if (value.kind() != ValueKind::Object) return false;
  PyTypeObject* type = program.arena.object(value).type();
  return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyComplex_Type;
}

// A getter, setter or deleter: torch passes `Tensor.T.__get__`.
Target attribute_target(const Node& node) {
  Ref descriptor = checked(PyObject_GetAttrString(node.callable.get(), "__self__"));
  Ref attribute = attribute_name(descriptor);
  if (node.has(kReadsAttribute)) {
    // Backends need x.data as a call: they would trace through the attribute.
    if (descriptor.get() == torch_types().tensor_data.get())
      return {Target::Form::Function, torch_name("torch._C._autograd", "_get_data_attr"), Ref(), "_get_data_attr"};
    return {Target::Form::Attribute, builtin("getattr"), std::move(attribute), "getattr"};
  }
  const bool sets = node.has(kSetsAttribute);
  return {Target::Form::Attribute, builtin(sets ? "setattr" : "delattr"), std::move(attribute),
          sets ? "setattr" : "delattr"};
}

// A method that a torch.Tensor override hides (x.unflatten() calls super().unflatten()): the torch function of that
// name consists of the same operator. Null: there is none.
Ref function_of_method(Borrowed callable, const std::string& name) {
  if (!Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) || name.empty() ||
      PyType_IsSubtype(torch_types().tensor, callable.as<PyDescrObject>()->d_type) == 0)
    return {};
  Ref found = Ref::steal(PyObject_GetAttrString(torch_name("torch._C", "_VariableFunctions").get(), name.c_str()));
  // As generated code would look it up.
  PyObject* torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");  // borrowed
  Ref written = found && torch != nullptr ? Ref::steal(PyObject_GetAttrString(torch, name.c_str())) : Ref();
  PyErr_Clear();
  return found && written.get() == found.get() ? std::move(found) : Ref();
}

Target function_target(Borrowed callable, std::string name, bool overridden = false) {
  Ref target = can_be_named(callable) ? Ref::share(callable) : Ref();
  // A subclass's __torch_function__ would receive another function.
  if (!target && !overridden) target = function_of_method(callable, name);
  if (!target) target = make_named_callable(callable);
  if (name.empty() || target.get() != callable.get()) name = callable_name(target);
  return {Target::Form::Function, std::move(target), Ref(), std::move(name)};
}

Target find(const Program& program, const Node& node) {
  std::string name = callable_name(node.callable);
  const bool accesses = node.has(kReadsAttribute) || node.has(kSetsAttribute) || node.has(kDeletesAttribute);
  if (accesses && is_method_wrapper(node.callable)) return attribute_target(node);
  const bool on_tensor = node.positional > 0 && program.argument(node, 0).is_tensor();
  if (!on_tensor || name.empty() || node.overridden || !is_tensor_method(node.callable, name))
    return function_target(node.callable, std::move(name), node.overridden);
  if (const Operator* op = find_operator(name);
      op != nullptr && op->arguments == node.positional && node.keyword == 0) {
    if (!op->reflected) return {Target::Form::Function, operator_function(op->function), Ref(), op->function};
    if (is_number(program, program.argument(node, 1)))
      return {Target::Form::Swapped, operator_function(op->function), Ref(), op->function};
  }
  Ref method = text(name);
  return {Target::Form::Method, std::move(method), Ref(),
          is_magic(name) ? name.substr(2, name.size() - 4) : std::move(name)};
}

}  // namespace

const Target& Targets::of(const Program& program, const Node& node) {
  const bool first_tensor = node.positional > 0 && program.argument(node, 0).is_tensor();
  const bool second_number = node.positional > 1 && is_number(program, program.argument(node, 1));
  const Key key{node.callable.get(), node.argument_count() << 4 | node.overridden << 3 | (node.keyword != 0) << 2 |
                                         first_tensor << 1 | second_number};
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  // Every access creates a new method wrapper, but nodes keep theirs alive: addresses are unique.
  return known_.emplace(key, find(program, node)).first->second;
}

}  // namespace alternator::graph
