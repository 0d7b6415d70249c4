// Reference counts and error translation of csrc/py.
#include "framework.h"
#include "py/error.h"
#include "py/lasting.h"
#include "py/names.h"
#include "py/ref.h"
#include "py/values.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace alternator {
namespace {

Ref fresh() { return checked(PyList_New(0)); }
Py_ssize_t count(Borrowed object) { return Py_REFCNT(object.get()); }

// The message of the pending exception, which is cleared.
std::string taken() { return testing::take_python_error(); }

TEST(steal_takes_over_the_reference) {
  Ref object = fresh();
  CHECK_EQ(count(object), 1);
}

TEST(share_adds_a_reference_and_gives_it_back) {
  Ref object = fresh();
  {
    Ref second = Ref::share(object);
    CHECK_EQ(count(object), 2);
    CHECK(second == object);
  }
  CHECK_EQ(count(object), 1);
  CHECK(!Ref::share(nullptr));
}

TEST(a_copy_owns_its_own_reference) {
  Ref object = fresh();
  Ref copy = object;
  CHECK_EQ(count(object), 2);
  Ref assigned;
  assigned = copy;
  CHECK_EQ(count(object), 3);
  copy.reset();
  assigned = Ref();
  CHECK_EQ(count(object), 1);
  CHECK(!copy);
}

TEST(a_move_leaves_the_count_alone) {
  Ref object = fresh();
  Borrowed lent = object;
  Ref moved = std::move(object);
  CHECK(!object);  // NOLINT(bugprone-use-after-move): that is the promise
  CHECK_EQ(count(moved), 1);
  Ref target = fresh();
  target = std::move(moved);
  CHECK(target == lent);
  CHECK_EQ(count(target), 1);
}

TEST(assigning_releases_the_old_value) {
  Ref old = fresh();
  Ref slot = old;
  CHECK_EQ(count(old), 2);
  slot = fresh();
  CHECK_EQ(count(old), 1);
}

TEST(self_assignment_keeps_the_object) {
  Ref object = fresh();
  Ref& alias = object;
  object = alias;
  CHECK_EQ(count(object), 1);
  object = std::move(alias);
  CHECK(object);
  CHECK_EQ(count(object), 1);
}

TEST(release_gives_the_reference_away) {
  Ref object = fresh();
  PyObject* given = object.release();
  CHECK(!object);
  CHECK_EQ(Py_REFCNT(given), 1);
  Ref::steal(given).reset();
}

Ref* watched_slot = nullptr;
PyObject* seen_by_finalizer = nullptr;

TEST(a_finalizer_sees_the_slot_already_replaced) {
  int anything = 0;
  Ref slot = checked(PyCapsule_New(&anything, nullptr, [](PyObject*) { seen_by_finalizer = watched_slot->get(); }));
  watched_slot = &slot;
  Ref next = fresh();
  slot = next;
  CHECK(next == seen_by_finalizer);
  slot = checked(PyCapsule_New(&anything, nullptr, [](PyObject*) { seen_by_finalizer = watched_slot->get(); }));
  slot.reset();
  CHECK(seen_by_finalizer == nullptr);
}

TEST(borrowed_never_touches_the_count) {
  Ref object = fresh();
  {
    Borrowed lent = object;
    Borrowed again = lent;
    Borrowed typed = object.as<PyListObject>();
    CHECK(lent == again);
    CHECK(lent == typed);
    CHECK(object == lent);
    CHECK(lent == object);
    CHECK(object == object.get());
    CHECK(lent.type() == &PyList_Type);
    CHECK_EQ(count(lent), 1);
  }
  CHECK_EQ(count(object), 1);
  CHECK(!Borrowed());
}

TEST(checked_passes_values_and_throws_on_null) {
  Ref object = fresh();
  Ref same = checked(std::move(object));
  CHECK_EQ(count(same), 1);
  CHECK_RAISES(PyExc_IndexError, checked(PySequence_GetItem(same.get(), 5)));
  CHECK_RAISES(PyExc_IndexError, checked(Ref::steal(PySequence_GetItem(same.get(), 5))));
  check_status(PyList_Append(same.get(), Py_None));
  CHECK_RAISES(PyExc_IndexError, check_status(PySequence_DelItem(same.get(), 5)));
}

TEST(tri_keeps_error_apart_from_no) {
  Ref list = fresh();
  CHECK(contains(list, Py_None).no());
  check_status(PyList_Append(list.get(), Py_None));
  CHECK(contains(list, Py_None).yes());
  CHECK(contains(list, Py_None).value());
  CHECK(truth(Py_False).no());
  CHECK(is_instance(list, &PyList_Type).yes());
  Tri answer = is_instance(list, Py_None);
  CHECK(answer.error());
  CHECK(!answer.yes());
  CHECK(!answer.no());
  CHECK_RAISES(PyExc_TypeError, answer.value());
}

TEST(guarded_returns_the_reference_it_was_given) {
  Ref object = fresh();
  PyObject* result = guarded([&] { return object; });
  CHECK(object == result);
  CHECK_EQ(count(object), 2);
  Ref::steal(result).reset();
  CHECK_EQ(guarded(-1, [] { return 7; }), 7);
  CHECK_EQ(count(object), 1);
}

TEST(guarded_keeps_the_users_exception) {
  CHECK(guarded([]() -> Ref {
          PyErr_SetString(PyExc_ValueError, "from the user");
          throw PyError();
        }) == nullptr);
  CHECK_EQ(taken(), "ValueError: from the user");
  // A null result of the C API, passed on unchanged.
  CHECK(guarded([]() -> Ref { return Ref::steal(PyLong_FromString("x", nullptr, 10)); }) == nullptr);
  CHECK(taken().starts_with("ValueError: invalid literal"));
}

TEST(guarded_never_fails_without_an_exception) {
  CHECK(guarded([]() -> Ref { throw PyError(); }) == nullptr);
  CHECK_EQ(taken(), "SystemError: alternator: error without an exception");
  CHECK(guarded([]() -> Ref { return Ref(); }) == nullptr);
  CHECK_EQ(taken(), "SystemError: alternator: error without an exception");
}

TEST(guarded_translates_cpp_exceptions) {
  CHECK_EQ(guarded(-1, []() -> int { throw std::bad_alloc(); }), -1);
  CHECK(taken().starts_with("MemoryError"));
  CHECK_EQ(guarded(-1, []() -> int { throw std::runtime_error("a bug"); }), -1);
  CHECK_EQ(taken(), "SystemError: a bug");
  CHECK_EQ(guarded(-1, []() -> int { throw 42; }), -1);
  CHECK_EQ(taken(), "SystemError: alternator: an unknown C++ exception");
}

// At shutdown CPython ends daemon threads with pthread_exit, which unwinds them: through our slots, which are noexcept.
// The process must not terminate, so the thread is parked forever.
TEST(guarded_survives_a_thread_that_is_ended_inside) {
  static std::atomic<int> stage = 0;
  pthread_t thread;
  auto body = [](void*) -> void* {
    guarded(-1, []() -> int {
      stage = 1;
      pthread_exit(nullptr);
    });
    stage = 2;
    return nullptr;
  };
  CHECK_EQ(pthread_create(&thread, nullptr, body, nullptr), 0);
  pthread_detach(thread);
  while (stage == 0) usleep(1000);
  usleep(20'000);
  CHECK_EQ(stage, 1);
}

TEST(guarded_releases_what_the_body_held) {
  Ref object = fresh();
  CHECK(guarded([&]() -> Ref {
          Ref held = object;
          Ref also = held;
          ALT_CHECK(count(object) == 1, "three owners");
          return held;
        }) == nullptr);
  CHECK(taken().starts_with("SystemError: alternator: internal error: three owners (count(object) == 1) at "));
  CHECK_EQ(count(object), 1);
}

TEST(a_bug_does_not_lose_the_users_exception) {
  Ref pending = checked(PyObject_CallFunction(PyExc_KeyError, "s", "pending"));
  CHECK(guarded([&]() -> Ref {
          PyErr_SetObject(PyExc_KeyError, pending.get());
          throw InternalError("a bug");
        }) == nullptr);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref owned_type = Ref::steal(type), error = Ref::steal(value), owned_traceback = Ref::steal(traceback);
  CHECK(PyErr_GivenExceptionMatches(error.get(), PyExc_SystemError));
  CHECK(Ref::steal(PyException_GetCause(error.get())) == pending);
  CHECK(Ref::steal(PyException_GetContext(error.get())) == pending);
  CHECK_EQ(count(pending), 3);  // ours, the cause, the context
  error.reset();
  CHECK_EQ(count(pending), 1);
}

TEST(saved_error_puts_back_exactly_what_was_set) {
  Ref pending = checked(PyObject_CallFunction(PyExc_KeyError, "s", "outer"));
  Py_ssize_t before = count(pending);
  PyErr_SetObject(PyExc_KeyError, pending.get());
  Py_ssize_t set = count(pending);
  {
    SavedError saved;
    CHECK(!PyErr_Occurred());
    PyErr_SetString(PyExc_ValueError, "inner");
  }
  CHECK(PyErr_ExceptionMatches(PyExc_KeyError));
  CHECK_EQ(count(pending), set);
  PyErr_Clear();
  CHECK_EQ(count(pending), before);
  {
    SavedError saved;
    PyErr_SetString(PyExc_ValueError, "inner");
  }
  CHECK(!PyErr_Occurred());
}

TEST(names_are_the_interned_strings) {
  check_status(init_names());
  PyObject* first = names::__enter__;
  check_status(init_names());
  CHECK(names::__enter__ == first);
#define ALT_NAME(identifier)                                         \
  {                                                                  \
    Ref interned = checked(PyUnicode_InternFromString(#identifier)); \
    CHECK(interned == names::identifier);                            \
  }
#include "py/names.def"
#undef ALT_NAME
}

TEST(a_lasting_value_is_made_once) {
  static Lasting<int> value;
  int made = 0;
  for (int turn = 0; turn < 3; turn++) CHECK_EQ(value.get([&] { return 40 + ++made; }), 41);
  CHECK_EQ(made, 1);
}

TEST(a_lasting_value_that_another_thread_made_meanwhile_stays) {
  static Lasting<Ref> value;
  Ref late = fresh();
  const Ref* first = nullptr;
  const Ref& found = value.get([&] {
    first = &value.get(fresh);  // as another thread would, while this one runs Python
    return late;
  });
  CHECK(&found == first);
  CHECK_EQ(count(found), 1);
  CHECK_EQ(count(late), 1);
}

// A few elements are stored inline, many on the heap: all moves between the two must work.
TEST(values_own_one_reference_each) {
  for (size_t length : {0, 1, 6, 7, 30}) {
    Ref object = fresh();
    const auto references = static_cast<Py_ssize_t>(length);
    Values values;
    for (size_t i = 0; i < length; i++) values.push_back(object);
    CHECK_EQ(values.size(), length);
    CHECK_EQ(count(object), 1 + references);
    Values copy = values;
    CHECK_EQ(count(object), 1 + 2 * references);
    Values moved = std::move(values);
    values = Values();
    values.push_back(object);
    CHECK_EQ(count(object), 2 + 2 * references);
    values = moved;
    copy = std::move(moved);
    CHECK_EQ(count(object), 1 + 2 * references);
    for (const Ref& value : copy) CHECK(value == object);
    copy.resize(3);
    CHECK_EQ(copy.size(), size_t{3});
    copy.resize(40);
    CHECK(!copy[39]);
    copy.assign(values.begin(), values.end());
    CHECK_EQ(count(object), 1 + 2 * references);
    copy = Values();
    values.resize(0);
    CHECK_EQ(count(object), 1);
  }
}

TEST(a_lasting_value_that_could_not_be_made_is_tried_again) {
  static Lasting<int> value;
  CHECK_RAISES(PyExc_ValueError, value.get([]() -> int {
    PyErr_SetString(PyExc_ValueError, "not now");
    throw PyError();
  }));
  CHECK_EQ(value.get([] { return 7; }), 7);
}

}  // namespace
}  // namespace alternator
