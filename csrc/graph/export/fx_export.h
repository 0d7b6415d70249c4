// A recorded program as a torch.fx.GraphModule, in the form that backends know from TorchDynamo.
#pragma once

#include "graph/export/exported_inputs.h"

namespace alternator::graph {

struct ExportOptions {
  // Of a program with symbolic sizes or numbers: what the module takes. Null: Program::inputs.
  const std::vector<ExportedInput>* inputs = nullptr;
  // ... with the example values of these, a list; no other node has one. Null or None: none has.
  Borrowed symbolic_examples;
  // A FakeTensorMode: nodes then carry `example_value` in it. Null or None: no example values.
  Borrowed fake_mode;
  // The real inputs, in the order of Program::inputs: placeholders then get fake_mode.from_tensor() of them, which
  // AOTAutograd requests too. Null or None: they are created from the recorded fakes.
  Borrowed example_inputs;
  // {id(module): path} for nn_module_stack; null or None: modules are named by their type.
  Borrowed module_paths;
};

// The module takes Program::inputs, or what the options say, and returns Program::outputs as a tuple. It contains none
// of our fakes.
Ref export_fx(Program& program, const ExportOptions& options);

}  // namespace alternator::graph
