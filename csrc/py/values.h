// A list of references that is short more often than not: the first few lie in the object itself, and cost no
// allocation. Of the room for them only what is used is ever touched.
#pragma once

#include "py/ref.h"

#include <algorithm>
#include <array>
#include <memory>

namespace alternator {

class Values {
 public:
  Values() noexcept {}  // NOLINT(modernize-use-equals-default): `= default` would clear the room
  Values(const Values& other) { assign(other.begin(), other.end()); }
  Values(Values&& other) noexcept { take(other); }
  // By value: what was here before dies last, when nothing of it is found here any more.
  Values& operator=(Values other) noexcept {
    const Values before(std::move(*this));
    take(other);
    return *this;
  }
  ~Values() {
    PyObject** all = data();
    for (size_t i = 0; i < size_; i++) Py_XDECREF(all[i]);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Ref* begin() { return reinterpret_cast<Ref*>(data()); }
  Ref* end() { return begin() + size_; }
  const Ref* begin() const { return reinterpret_cast<const Ref*>(const_cast<Values*>(this)->data()); }
  const Ref* end() const { return begin() + size_; }
  Ref& operator[](size_t i) { return begin()[i]; }
  const Ref& operator[](size_t i) const { return begin()[i]; }

  void push_back(Ref value) {
    resize(size_ + 1);
    data()[size_ - 1] = value.release();
  }
  // More of them are null.
  void resize(size_t size) {
    if (size > capacity_) grow(std::max(size, 2 * capacity_));
    const size_t before = std::exchange(size_, size);
    PyObject** all = data();
    for (size_t i = before; i < size; i++) all[i] = nullptr;
    for (size_t i = size; i < before; i++) Py_XDECREF(all[i]);
  }
  // Of references, or of pointers that are shared from now on; null is one.
  template <class Iterator>
  void assign(Iterator first, Iterator last) {
    resize(static_cast<size_t>(last - first));
    for (Ref* to = begin(); first != last; ++first, ++to) *to = Ref::share(*first);
  }

 private:
  static constexpr size_t kInside = 12;
  // A reference is nothing but a pointer.
  static_assert(sizeof(Ref) == sizeof(PyObject*) && alignof(Ref) == alignof(PyObject*));

  PyObject** data() { return preexisting_ != nullptr ? preexisting_.get() : inside_.data(); }
  void grow(size_t capacity) {
    auto larger = std::make_unique_for_overwrite<PyObject*[]>(capacity);
    std::copy_n(data(), size_, larger.get());
    preexisting_ = std::move(larger);
    capacity_ = capacity;
  }
  // This one is empty, and without room of its own.
  void take(Values& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kInside);
    preexisting_ = std::move(other.preexisting_);
    if (preexisting_ == nullptr) std::copy_n(other.inside_.data(), size_, inside_.data());
  }

  size_t size_ = 0, capacity_ = kInside;
  std::unique_ptr<PyObject*[]> preexisting_;  // null: they are inside
  std::array<PyObject*, kInside> inside_;
};

}  // namespace alternator
