// A value that is created on first use and lives as long as the process.
#pragma once

#include <memory>

namespace alternator {

// Unlike a function-local static it holds no lock during initialization: that may run Python, which may switch to
// another thread that needs the value too. Protected by the GIL; a second value that was created meanwhile is
// discarded.
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
