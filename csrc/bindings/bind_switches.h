// Python bindings of a component's mutant switches.
#pragma once

#include "py/switches.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace alternator {

inline void add_switches(pybind11::module_& module, Switches& switches) {
  module.attr("has_mutants") = kHasMutants;
  module.def("mutant_names", [&switches] { return switches.names(); });
  module.def("set_mutant", [&switches](const std::string& name, bool off) {
    if (!switches.set(name, off)) throw pybind11::value_error("no such switch: " + name);
  });
}

}  // namespace alternator
