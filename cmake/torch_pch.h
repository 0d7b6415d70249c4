// The heavy headers that nearly every room above torch includes, precompiled once for all of them. A source file still
// includes what it uses: this file only makes that cheap. None of our headers belong here, because a change here
// rebuilds every such room, nor a header that includes pybind11: its templates are instantiated again in every file,
// seven seconds each.
#pragma once

// The rooms above the interpreter use its internals (cpython/version.h); the macro must be set before Python.h.
#define Py_BUILD_CORE 1
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
