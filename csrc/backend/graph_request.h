// What a backend receives with a graph: one Python object.
#pragma once

#include "backend/choose_runner.h"
#include "backend/symbolic_arguments.h"

namespace alternator::backend {

// A named tuple, alternator._C.GraphRequest:
// - export(fake_mode, module_paths, examples): the graph as a torch.fx.GraphModule, with example values in that mode;
//   of a graph with symbols, with these example values of the inputs. All arguments may be None.
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
// Of a graph with symbols (the inputs are those of exported_inputs.h); otherwise None:
// - environment: alternator._C.shapes.Environment.
// - symbols: by number (Expression, source text, "size", "stride", "offset", "integer" or "float", dimension).
// - input_sizes: for each input None, a tuple of Expressions (of a tensor), or an Expression (the input is a number).
// - input_strides: for each input with sizes its strides, or None.
// - numbers: the Expressions that the graph computes from its symbols.
struct GraphInputs {
  Borrowed recorded;  // a list of the real inputs of the program
  const std::vector<const lift::Source*>& sources;
  const SymbolicInputs* symbolic;  // null: the graph has no symbols
  const std::vector<Ref>& values;  // of the entry
};

class GraphRequest {
 public:
  GraphRequest(const std::shared_ptr<graph::Program>& program, const GraphInputs& inputs, Borrowed code,
               const GraphFacts& facts, const RunnerChoice& choice);
  ~GraphRequest();  // the graph can be exported only while the request lives
  GraphRequest(const GraphRequest&) = delete;
  GraphRequest& operator=(const GraphRequest&) = delete;
  Borrowed object() const { return object_; }
  Borrowed environment() const { return environment_; }  // None: the graph has no symbols

 private:
  struct Export;
  static Export& export_of(PyObject* self);
  static PyObject* export_graph(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
  static PyObject* is_as_exported(PyObject* self, PyObject* module);
  static void free_export(PyObject* capsule);
  static PyMethodDef export_definition, as_exported_definition;

  Export* export_;
  Ref held_;  // the capsule that owns it
  Ref object_, environment_;
};

}  // namespace alternator::backend
