// Our own rules: operators whose metadata torch computes only in Python, or slowly.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>

namespace alternator::fake {

// The rule of an operator ("aten::embedding", "aten::var.correction"), or null.
const c10::KernelFunction* find_rule(const std::string& op);

}  // namespace alternator::fake
