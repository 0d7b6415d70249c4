// alternator._C: the C++ core, as a Python module with one submodule per component.
#include "bindings/bind_shapes.h"
#include "bindings/bind_switches.h"
#include "bindings/bindings.h"

#include "dispatch/init.h"
#include "graph/sizes/size_switches.h"
#include "lift/lifting/lift_mutants.h"

#include <torch/version.h>

namespace alternator {
namespace {

pybind11::module_ submodule(pybind11::module_& parent, const char* name, const char* text) {
  pybind11::module_ module = parent.def_submodule(name, text);
  // So that `import alternator._C.fake` works too.
  const std::string full_name = std::string("alternator._C.") + name;
  pybind11::module_::import("sys").attr("modules")[full_name.c_str()] = module;
  module.attr("__name__") = full_name;
  return module;
}

}  // namespace
}  // namespace alternator

PYBIND11_MODULE(_C, module) {
  using namespace alternator;
  module.doc() = "Alternator's core.";
  // Torch's C++ headers change between releases: alternator/_load.py compares this with the torch that is imported.
  module.attr("built_for_torch") = TORCH_VERSION;
  pybind11::module_ fake = submodule(module, "fake", "Tensors without data.");
  bind_fake(fake);
  pybind11::module_ graph = submodule(module, "graph", "The recorded program.");
  bind_graph(graph);
  pybind11::module_ sizes = submodule(module, "sizes", "The channels of sizes and numbers.");
  add_switches(sizes, alternator::graph::size_switches());
  pybind11::module_ guards = submodule(module, "guards", "Sources, guards and the programs that check them.");
  bind_guards(guards);
  pybind11::module_ replay = submodule(module, "replay", "Residual programs.");
  bind_replay(replay);
  pybind11::module_ lift = submodule(module, "lift", "The lifting table.");
  add_switches(lift, alternator::lift::switches());
  pybind11::module_ shapes = submodule(module, "shapes", "Expressions over sizes and other numbers of a call.");
  if (bind_shapes(shapes.ptr()) < 0) throw pybind11::error_already_set();
  if (dispatch::init_dispatch(module.ptr()) < 0) throw pybind11::error_already_set();
}
