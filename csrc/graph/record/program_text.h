// A program as text, for people: one line a node.
#pragma once

#include "graph/record/program.h"

#include <string>

namespace alternator::graph {

// "%3 = linear(%0, %1, None)  # model.py:12"; dead nodes are marked, state changes stand on lines of their own.
std::string program_text(const Program& program);

}  // namespace alternator::graph
