// Switches that open one channel each through which a size or a number of the traced call could reach the graph as a
// constant: size_switches.def, and the rows of size_readers.def.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

namespace alternator {
class Switches;
}

namespace alternator::graph {

// ALTERNATOR_WITHOUT_SIZES=verify,reader.shape
Switches& size_switches();
// Always false in a build without switches.
bool is_open(std::string_view channel);
// "condition.cat": of the function at this location; "plain.array_nodes": of its file, or "plain" where that has none.
bool is_open_in_function(std::string_view prefix, const std::source_location& at);
bool is_open_in_file(std::string_view prefix, const std::source_location& at);

}  // namespace alternator::graph
