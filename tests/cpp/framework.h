// The C++ unit test framework: small, built into an extension module that pytest drives (tests/test_cpp.py).
//
//   TEST(a_moved_ref_is_null) {
//     Ref list = checked(PyList_New(0));
//     CHECK_EQ(Py_REFCNT(list.get()), 1);
//   }
//
// A failed CHECK ends its test. A test that leaves a Python exception set, or throws, fails.
#pragma once

#include "py/error.h"

#include <sstream>
#include <string>
#include <vector>

namespace alternator::testing {

struct Test {
  const char* name;
  const char* file;
  int line;
  void (*body)();
};

// Every TEST of the extension, in order of registration.
std::vector<Test>& registry();

struct Registration {
  explicit Registration(Test test) { registry().push_back(test); }
};

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const char* file, int line, const std::string& message);

// The pending Python exception as "Type: message"; clears it. Empty if there is none.
std::string take_python_error();

template <class T>
std::string show(const T& value) {
  if constexpr (requires(std::ostream& stream) { stream << value; }) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
  } else {
    return "(a value)";
  }
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (!(a == b)) fail(file, line, std::string(text) + ": " + show(a) + " is not " + show(b));
}

// Expects `body` to throw PyError with an exception of that type set, and clears it.
template <class Body>
void check_raises(PyObject* type, Body&& body, const char* text, const char* file, int line) {
  try {
    std::forward<Body>(body)();
  } catch (const PyError&) {
    bool matches = PyErr_ExceptionMatches(type) != 0;
    std::string error = take_python_error();
    if (!matches) fail(file, line, std::string(text) + " raised " + error);
    return;
  }
  fail(file, line, std::string(text) + " raised nothing");
}

}  // namespace alternator::testing

#define TEST(name)                                                                                                \
  static void test_##name();                                                                                      \
  static const ::alternator::testing::Registration registration_##name({#name, __FILE__, __LINE__, test_##name}); \
  static void test_##name()

#undef CHECK  // c10's logging has one; in a test ours is meant
#define CHECK(...)                                                                                         \
  do {                                                                                                     \
    if (!(__VA_ARGS__)) ::alternator::testing::fail(__FILE__, __LINE__, "CHECK(" #__VA_ARGS__ ") failed"); \
  } while (false)

#define CHECK_EQ(a, b) ::alternator::testing::check_equal(a, b, #a " == " #b, __FILE__, __LINE__)

#define CHECK_RAISES(type, ...) \
  ::alternator::testing::check_raises(type, [&]() { (void)(__VA_ARGS__); }, #__VA_ARGS__, __FILE__, __LINE__)
