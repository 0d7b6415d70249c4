#include "graph/export/fx_graph.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"

namespace alternator::graph {
namespace {

Ref intern(const char* text) { return checked(PyUnicode_InternFromString(text)); }

// The parts of torch.fx that we use.
struct FxApi {
  Ref graph = torch_name("torch.fx", "Graph");
  Ref node = torch_name("torch.fx", "Node");
  Ref graph_module = FxGraph::module_class();
  Ref no_keywords;
  Ref no_arguments = checked(PyTuple_New(0));
  Ref ops[5] = {intern("placeholder"), intern("get_attr"), intern("call_function"), intern("call_method"),
                intern("output")};
  Ref meta = intern("meta");
  // The fast path; `base` is null where FX's implementation is not the known one.
  PyTypeObject* base = nullptr;
  Ref update, prepend;

  FxApi() {
    Ref immutable_dict = torch_name("torch.fx.immutable_collections", "immutable_dict");
    no_keywords = checked(PyObject_CallNoArgs(immutable_dict.get()));
    Ref bases = checked(PyObject_GetAttrString(node.get(), "__bases__"));
    if (PyTuple_GET_SIZE(bases.get()) != 1) return;
    PyObject* candidate = PyTuple_GET_ITEM(bases.get(), 0);
    update = Ref::steal(PyObject_GetAttrString(candidate, "_update_args_kwargs"));
    prepend = Ref::steal(PyObject_GetAttrString(candidate, "_prepend"));
    PyErr_Clear();
    // Node must add nothing to its C base class: no __new__, no slots.
    auto* type = node.as<PyTypeObject>();
    auto* base_type = reinterpret_cast<PyTypeObject*>(candidate);
    if (!update || !prepend || type->tp_new != base_type->tp_new || base_type->tp_init == nullptr) return;
    base = base_type;
  }
};

const FxApi& fx() {
  static constinit Lasting<FxApi> api;
  return api.get();
}

Ref attribute(Borrowed object, const char* name) { return checked(PyObject_GetAttrString(object.get(), name)); }

}  // namespace

bool FxGraph::use_slow_path = false;
Ref (*FxGraph::module_class)() = [] { return torch_name("torch.fx", "GraphModule"); };

FxGraph::FxGraph()
    : fast_(fx().base != nullptr && !use_slow_path), graph_(checked(PyObject_CallNoArgs(fx().graph.get()))) {
  if (!fast_) return;
  try {
    root_ = attribute(graph_, "_root");
    Ref names = attribute(graph_, "_graph_namespace");
    used_names_ = attribute(names, "_used_names");
    object_names_ = attribute(names, "_obj_to_name");
    base_counts_ = attribute(names, "_base_count");
    Ref lookup = attribute(graph_, "_find_nodes_lookup_table");
    table_ = attribute(lookup, "table");
    Ref length = attribute(graph_, "_len");
  } catch (const PyError&) {
    PyErr_Clear();
    fast_ = false;
    return;
  }
  fast_ = PySet_CheckExact(used_names_.get()) && PyDict_CheckExact(object_names_.get()) &&
          PyDict_CheckExact(base_counts_.get()) && PyDict_Check(table_.get());
}

// FX indexes nodes by op, and functions by target: {(op, target or None): {node: None}}.
Borrowed FxGraph::lookup_table(FxOp op, Borrowed target) {
  const bool by_target = op == FxOp::CallFunction;
  const Ref& name = fx().ops[static_cast<size_t>(op)];
  Ref& table = tables_[by_target ? target.get() : name.get()];
  if (!table) {
    Ref key = checked(PyTuple_Pack(2, name.get(), by_target ? target.get() : Py_None));
    table = checked(PyObject_GetItem(table_.get(), key.get()));  // a defaultdict
    if (!PyDict_CheckExact(table.get())) ALT_CHECK(false, "torch.fx has an unknown node table");
  }
  return table;
}

Ref FxGraph::add_fast(FxOp op, Borrowed target, Borrowed arguments, Borrowed keywords, const std::string& name) {
  const FxApi& api = fx();
  Ref py_name = checked(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  auto* type = api.node.as<PyTypeObject>();
  Ref node = checked(type->tp_new(type, api.no_arguments.get(), nullptr));
  Ref init = checked(
      PyTuple_Pack(5, graph_.get(), py_name.get(), api.ops[static_cast<size_t>(op)].get(), target.get(), Py_None));
  check_status(api.base->tp_init(node.get(), init.get(), nullptr));

  PyObject* update[] = {node.get(), arguments.get(), keywords ? keywords.get() : api.no_keywords.get()};
  Ref done = checked(PyObject_Vectorcall(api.update.get(), update, 3, nullptr));
  PyObject* prepend[] = {root_.get(), node.get()};
  done = checked(PyObject_Vectorcall(api.prepend.get(), prepend, 2, nullptr));

  check_status(PySet_Add(used_names_.get(), py_name.get()));
  check_status(PyDict_SetItem(object_names_.get(), node.get(), py_name.get()));
  check_status(PyDict_SetItem(lookup_table(op, target).get(), node.get(), Py_None));
  ++size_;
  return node;
}

Ref FxGraph::add(FxOp op, Borrowed target, Borrowed arguments, Borrowed keywords, std::string candidate_name) {
  if (fast_) return add_fast(op, target, arguments, keywords, names_.create(std::move(candidate_name)));
  return checked(PyObject_CallMethod(graph_.get(), "create_node", "OOOOs", fx().ops[static_cast<size_t>(op)].get(),
                                     target.get(), arguments.get(), keywords ? keywords.get() : Py_None,
                                     candidate_name.c_str()));
}

void FxGraph::set_meta(Borrowed node, Borrowed key, Borrowed value) {
  Ref meta = checked(PyObject_GetAttr(node.get(), fx().meta.get()));
  check_status(PyDict_SetItem(meta.get(), key.get(), value.get()));
}

Ref FxGraph::finish(Borrowed attributes) {
  if (fast_) {
    Ref size = checked(PyLong_FromSsize_t(size_));
    check_status(PyObject_SetAttrString(graph_.get(), "_len", size.get()));
    for (const auto& [base, count] : names_.counts()) {
      Ref number = checked(PyLong_FromUnsignedLong(count));
      check_status(PyDict_SetItemString(base_counts_.get(), base.c_str(), number.get()));
    }
  }
  return checked(PyObject_CallFunctionObjArgs(fx().graph_module.get(), attributes.get(), graph_.get(), nullptr));
}

}  // namespace alternator::graph
