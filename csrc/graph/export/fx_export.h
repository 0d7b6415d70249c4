// A recorded program as a torch.fx.GraphModule, in the form that backends know from TorchDynamo.
#pragma once

#include "graph/record/program.h"

namespace alternator::graph {

struct ExportOptions {
  // A FakeTensorMode: then nodes carry `example_value` in it. Null or None: no example values.
  Borrowed fake_mode;
  // The real inputs, in the order of Program::inputs: placeholders then get fake_mode.from_tensor() of them, which is
  // what AOTAutograd asks for too. Null or None: they are made from what was recorded.
  Borrowed example_inputs;
  // {id(module): path} for nn_module_stack; null or None: modules go by their type.
  Borrowed module_paths;
};

// The module takes Program::inputs and returns Program::outputs as a tuple. No fake of ours is in it.
Ref export_fx(Program& program, const ExportOptions& options);

}  // namespace alternator::graph
