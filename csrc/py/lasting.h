// A value that is made on first use and lives as long as the process.
#pragma once

#include <memory>

namespace alternator {

// Unlike a static inside of a function it holds no lock while it is made: making it may run Python, which may let
// another thread in, which may want it too. The GIL protects it; a second one that was made meanwhile is thrown away.
template <class T>
class Lasting {
 public:
  constexpr Lasting() = default;

  template <class Make>
  const T& get(Make&& make) {
    if (value_ == nullptr) [[unlikely]] {
      auto made = std::make_unique<T>(make());
      if (value_ == nullptr) value_ = made.release();
    }
    return *value_;
  }
  const T& get() {
    return get([] { return T(); });
  }

 private:
  const T* value_ = nullptr;
};

}  // namespace alternator
