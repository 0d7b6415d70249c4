// The heavy headers that nearly every torch room includes, precompiled once for all of them.
// A source file still includes what it uses: this file only makes that cheap. Nothing of ours belongs here,
// because a change here rebuilds every torch room.
#pragma once

#include <Python.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

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
