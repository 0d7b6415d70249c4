// The submodules of alternator._C, one per component.
#pragma once

#include <pybind11/pybind11.h>

namespace alternator {

void bind_fake(pybind11::module_& module);
void bind_graph(pybind11::module_& module);
void bind_guards(pybind11::module_& module);
void bind_replay(pybind11::module_& module);

}  // namespace alternator
