// A list of references that is short more often than not: the first few lie in the object itself, and cost no
// allocation.
#pragma once

#include "py/ref.h"

#include <algorithm>
#include <array>
#include <memory>

namespace alternator {

class Values {
 public:
  Values() = default;
  Values(const Values& other) { assign(other.begin(), other.end()); }
  Values(Values&& other) noexcept
      : size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, kInside)),
        outside_(std::move(other.outside_)) {
    if (outside_ == nullptr) std::move(other.inside_.begin(), other.inside_.begin() + size_, inside_.begin());
  }
  // By value: what was here before dies last, when nothing of it is found here any more.
  Values& operator=(Values other) noexcept {
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(outside_, other.outside_);
    std::swap(inside_, other.inside_);
    return *this;
  }
  ~Values() = default;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Ref* begin() { return outside_ != nullptr ? outside_.get() : inside_.data(); }
  Ref* end() { return begin() + size_; }
  const Ref* begin() const { return outside_ != nullptr ? outside_.get() : inside_.data(); }
  const Ref* end() const { return begin() + size_; }
  Ref& operator[](size_t i) { return begin()[i]; }
  const Ref& operator[](size_t i) const { return begin()[i]; }

  void push_back(Ref value) {
    resize(size_ + 1);
    begin()[size_ - 1] = std::move(value);
  }
  // More of them are null.
  void resize(size_t size) {
    if (size > capacity_) grow(std::max(size, 2 * capacity_));
    const size_t before = std::exchange(size_, size);
    for (size_t i = size; i < before; i++) begin()[i].reset();
  }
  // Of references, or of pointers that are shared from now on; null is one.
  template <class Iterator>
  void assign(Iterator first, Iterator last) {
    resize(static_cast<size_t>(last - first));
    for (Ref& value : *this) value = Ref::share(*first++);
  }

 private:
  static constexpr size_t kInside = 6;

  void grow(size_t capacity) {
    auto larger = std::make_unique<Ref[]>(capacity);
    std::ranges::move(*this, larger.get());
    outside_ = std::move(larger);
    capacity_ = capacity;
  }

  size_t size_ = 0, capacity_ = kInside;
  std::unique_ptr<Ref[]> outside_;  // null: they are inside
  std::array<Ref, kInside> inside_;
};

}  // namespace alternator
