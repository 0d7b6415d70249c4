// A small-vector of references: the first few are stored inline and need no allocation. Unused inline slots are never
// touched.
#pragma once

#include "py/ref.h"

#include <algorithm>
#include <array>
#include <memory>

namespace alternator {

class Values {
 public:
  Values() noexcept {}  // NOLINT(modernize-use-equals-default): `= default` would clear the inline slots
  Values(const Values& other) { assign(other.begin(), other.end()); }
  Values(Values&& other) noexcept { take(other); }
  // By value: the old references are released last, after this object holds the new ones.
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
  // New elements are null.
  void resize(size_t size) {
    if (size > capacity_) grow(std::max(size, 2 * capacity_));
    const size_t before = std::exchange(size_, size);
    PyObject** all = data();
    for (size_t i = before; i < size; i++) all[i] = nullptr;
    for (size_t i = size; i < before; i++) Py_XDECREF(all[i]);
  }
  // From a range of references or of borrowed pointers, null included; takes a new reference to each.
  template <class Iterator>
  void assign(Iterator first, Iterator last) {
    resize(static_cast<size_t>(last - first));
    for (Ref* to = begin(); first != last; ++first, ++to) *to = Ref::share(*first);
  }

 private:
  static constexpr size_t kInline = 12;
  // A Ref is layout-compatible with a pointer.
  static_assert(sizeof(Ref) == sizeof(PyObject*) && alignof(Ref) == alignof(PyObject*));

  PyObject** data() { return heap_ != nullptr ? heap_.get() : inline_.data(); }
  void grow(size_t capacity) {
    auto larger = std::make_unique_for_overwrite<PyObject*[]>(capacity);
    std::copy_n(data(), size_, larger.get());
    heap_ = std::move(larger);
    capacity_ = capacity;
  }
  // Precondition: this object is empty and has no heap block.
  void take(Values& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kInline);
    heap_ = std::move(other.heap_);
    if (heap_ == nullptr) std::copy_n(other.inline_.data(), size_, inline_.data());
  }

  size_t size_ = 0, capacity_ = kInline;
  std::unique_ptr<PyObject*[]> heap_;  // null: the elements are in inline_
  std::array<PyObject*, kInline> inline_;
};

}  // namespace alternator
