// The heavy headers that nearly every torch room includes, precompiled once for all of them.
// A source file still includes what it uses: this file only makes that cheap. Nothing of ours belongs here,
// because a change here rebuilds every torch room, and nothing that brings pybind11 along: its templates are
// instantiated anew in every file, seven seconds each.
#pragma once

// The rooms over the interpreter see its internals (cpython/version.h), which must be decided before Python.h.
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
