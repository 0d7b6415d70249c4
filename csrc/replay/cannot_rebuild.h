// Why a trace's result or effects cannot be made again.
#pragma once

#include <stdexcept>

namespace alternator::replay {

// One sentence. The call then runs eagerly.
class CannotRebuild : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace alternator::replay
