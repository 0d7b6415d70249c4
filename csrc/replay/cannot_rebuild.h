// Why a trace's result or side effects cannot be reconstructed.
#pragma once

#include <stdexcept>

namespace alternator::replay {

// One sentence. The call then runs eagerly.
class CannotRebuild : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace alternator::replay
