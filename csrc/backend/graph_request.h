// What a backend receives with a graph: one Python object.
#pragma once

#include "backend/choose_runner.h"
#include "lift/sources/source.h"

namespace alternator::backend {

// A named tuple, alternator._C.GraphRequest:
// - export(fake_mode, module_paths): the graph as a torch.fx.GraphModule, with example values in that mode; both
//   arguments may be None.
// - is_as_exported(module): whether that module would still do what was recorded.
// - inputs: the graph's real inputs in order.
// - sources: for each input its source text, and whether it is a parameter or buffer of a module.
// - code: the code object of the traced function.
// - shape_env: the ShapeEnv of the unbacked symbols; None: the graph has none. Example values must belong to a
//   FakeTensorMode with this ShapeEnv.
// - runner: how the graph is to run, see choose_runner.h: "recorded", "compiled" or "compiled in segments".
// - reason: why it is not compiled; None: it is, or the backend never compiles.
// - facts: alternator._C.GraphFacts, the fields of graph_facts.h that a backend reads.
// - autograd_functions: the classes of autograd functions that the graph applies.
class GraphRequest {
 public:
  GraphRequest(const std::shared_ptr<graph::Program>& program, Borrowed inputs,
               const std::vector<const lift::Source*>& sources, Borrowed code, const GraphFacts& facts,
               const RunnerChoice& choice);
  ~GraphRequest();  // the graph can be exported only while the request lives
  GraphRequest(const GraphRequest&) = delete;
  GraphRequest& operator=(const GraphRequest&) = delete;
  Borrowed object() const { return object_; }

 private:
  struct Export;
  static Export& export_of(PyObject* self);
  static PyObject* export_graph(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
  static PyObject* is_as_exported(PyObject* self, PyObject* module);
  static void free_export(PyObject* capsule);
  static PyMethodDef export_definition, as_exported_definition;

  Export* export_;
  Ref held_;  // the capsule that owns it
  Ref object_;
};

}  // namespace alternator::backend
