#include "graph/export/fx_snapshot.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"

namespace alternator::graph {
namespace {

struct Names {
  Ref graph = checked(PyUnicode_InternFromString("_graph"));
  Ref codegen = checked(PyUnicode_InternFromString("_codegen"));
  Ref transformer = checked(PyUnicode_InternFromString("_body_transformer"));
  Ref root = checked(PyUnicode_InternFromString("_root"));
  Ref next = checked(PyUnicode_InternFromString("_next"));
  Ref op = checked(PyUnicode_InternFromString("op"));
  Ref target = checked(PyUnicode_InternFromString("target"));
  Ref arguments = checked(PyUnicode_InternFromString("_args"));
  Ref keywords = checked(PyUnicode_InternFromString("_kwargs"));
  Ref get_attr = checked(PyUnicode_InternFromString("get_attr"));
  Ref forward = checked(PyUnicode_InternFromString("forward"));
  Ref code_generator = torch_name("torch.fx.graph", "CodeGen");
  Ref module = torch_name("torch.nn", "Module");
};
const Names& names() {
  static constinit Lasting<Names> lasting;
  return lasting.get();
}

Ref get(Borrowed object, const Ref& name) { return checked(PyObject_GetAttr(object.get(), name.get())); }

}  // namespace

// All objects that determine the generated code, in a fixed order; empty if it may depend on others.
std::vector<Ref> FxSnapshot::parts_of(Borrowed module) {
  const Names& known = names();
  Ref attributes = checked(PyObject_GenericGetDict(module.get(), nullptr));
  if (contains(attributes, known.forward).value()) return {};
  Ref graph = get(module, known.graph);
  Ref codegen = get(graph, known.codegen);
  if (Py_TYPE(codegen.get()) != known.code_generator.as<PyTypeObject>()) return {};
  if (get(codegen, known.transformer).get() != Py_None) return {};

  std::vector<Ref> parts = {Ref::share(reinterpret_cast<PyObject*>(Py_TYPE(module.get()))), graph, codegen};
  Ref root = get(graph, known.root);
  for (Ref node = get(root, known.next); node.get() != root.get(); node = get(node, known.next)) {
    Ref op = get(node, known.op);
    Ref target = get(node, known.target);
    if (op.get() == known.get_attr.get()) {
      Ref value = checked(PyObject_GetAttr(module.get(), target.get()));
      if (is_instance(value, known.module).value()) return {};  // a subgraph
      parts.push_back(std::move(value));
    }
    parts.push_back(node);
    parts.push_back(std::move(op));
    parts.push_back(std::move(target));
    parts.push_back(get(node, known.arguments));
    parts.push_back(get(node, known.keywords));
  }
  return parts;
}

FxSnapshot::FxSnapshot(Borrowed module) : parts_(parts_of(module)) {}

bool FxSnapshot::holds(Borrowed module) const {
  const std::vector<Ref> now = parts_of(module);
  if (now.empty() || now.size() != parts_.size()) return false;
  for (size_t i = 0; i < now.size(); ++i)
    if (now[i].get() != parts_[i].get()) return false;
  return true;
}

}  // namespace alternator::graph
