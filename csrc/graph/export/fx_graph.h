// torch.fx nodes in bulk: about a microsecond each, where Graph.create_node takes thirty.
//
// FX's nodes are C objects with a Python constructor, and its graph keeps three dictionaries beside the list. This file
// fills all of them directly. If this torch's FX is implemented differently, nodes are created by Graph.create_node:
// slower, with the same graph.
#pragma once

#include "graph/export/fx_names.h"
#include "py/error.h"

#include <unordered_map>

namespace alternator::graph {

enum class FxOp : uint8_t { Placeholder, GetAttr, CallFunction, CallMethod, Output };

class FxGraph {
 public:
  FxGraph();

  // Appends a node. `arguments` is a tuple, `keywords` a dict or null; both refer to other nodes directly.
  Ref add(FxOp op, Borrowed target, Borrowed arguments, Borrowed keywords, std::string candidate_name);
  static void set_meta(Borrowed node, Borrowed key, Borrowed value);

  // A torch.fx.GraphModule that generates code lazily. `attributes` is a dict.
  Ref finish(Borrowed attributes);
  Borrowed graph() const { return graph_; }

  // The class of exported modules, asked for once. The package has one of its own, which dispatch provides.
  static Ref (*module_class)();

  // For tests: create every node by Graph.create_node.
  static bool use_slow_path;

 private:
  Ref add_fast(FxOp op, Borrowed target, Borrowed arguments, Borrowed keywords, const std::string& name);
  Borrowed lookup_table(FxOp op, Borrowed target);

  bool fast_;
  Ref graph_;
  Ref root_;
  Ref used_names_, object_names_, base_counts_, table_;
  FxNames names_;
  std::unordered_map<PyObject*, Ref> tables_;  // by target for functions; by op's name for the rest
  Py_ssize_t size_ = 0;
};

}  // namespace alternator::graph
