// A program as readable text: one line per node.
#pragma once

#include "graph/record/program.h"

#include <string>

namespace alternator::graph {

// "%3 = linear(%0, %1, None)  # model.py:12"; dead nodes are marked, state changes are on separate lines.
std::string program_text(const Program& program);

}  // namespace alternator::graph
