// What csrc/cpython reads from live objects and code objects, compared with Python's own results.
#include "cpython/operations.h"

#include "cpython/decimal_layout.h"
#include "cpython/method_wrappers.h"
#include "cpython/objects.h"
#include "framework.h"

#include <set>

namespace alternator {
namespace {

// The globals of a program after it ran.
class Program {
 public:
  explicit Program(const char* source) : globals_(checked(PyDict_New())) {
    check_status(PyDict_SetItemString(globals_.get(), "__builtins__", PyEval_GetBuiltins()));
    run(source);
  }
  void run(const char* source) { checked(PyRun_String(source, Py_file_input, globals_.get(), globals_.get())).reset(); }
  Ref eval(const char* source) { return checked(PyRun_String(source, Py_eval_input, globals_.get(), globals_.get())); }
  long number(const char* source) { return PyLong_AsLong(eval(source).get()); }
  PyObject* operator[](const char* name) {
    PyObject* value = PyDict_GetItemString(globals_.get(), name);
    ALT_CHECK(value != nullptr, "the program has no such name");
    return value;
  }

 private:
  Ref globals_;
};

std::string text(PyObject* str) { return PyUnicode_AsUTF8(str); }

std::string inline_attributes(PyObject* object) {
  std::string out;
  Py_ssize_t position = 0;
  PyObject *name = nullptr, *value = nullptr;
  while (cpython::next_inline_attribute(object, &position, &name, &value)) {
    out += text(name) + "=" + std::to_string(PyLong_AsLong(value)) + " ";
  }
  return out;
}

TEST(attributes_are_read_without_making_a_dict) {
  Program program(
      "class C: pass\n"
      "o = C()\n"
      "o.first = 1; o.second = 2; o.third = 3\n"
      "del o.first\n"
      "o.first = 4\n");
  PyObject* object = program["o"];
  CHECK(cpython::instance_dict_slot(object) != nullptr);
  CHECK(cpython::instance_dict(object) == nullptr);
  CHECK_EQ(cpython::inline_attribute_count(object), 3);
  CHECK_EQ(inline_attributes(object), "second=2 third=3 first=4 ");
  // Equal, but not the interned object.
  Ref name = program.eval("''.join(['sec', 'ond'])");
  CHECK_EQ(PyLong_AsLong(cpython::inline_attribute(object, name.get())), 2);
  Ref absent = program.eval("'fourth'");
  CHECK(cpython::inline_attribute(object, absent.get()) == nullptr);
  CHECK(cpython::instance_dict(object) == nullptr);

  program.run("d = o.__dict__");
  CHECK(cpython::instance_dict(object) == program["d"]);
  CHECK(*cpython::instance_dict_slot(object) == program["d"]);
  CHECK_EQ(cpython::inline_attribute_count(object), 0);
  CHECK_EQ(inline_attributes(object), "");
  CHECK(cpython::inline_attribute(object, name.get()) == nullptr);
}

TEST(an_absent_attribute_of_the_class_is_not_an_inline_one) {
  Program program(
      "class C: pass\n"
      "other = C(); other.x = 1\n"  // the class's shared keys have the name now
      "o = C(); o.y = 2\n");
  Ref x = program.eval("'x'");
  CHECK(cpython::inline_attribute(program["o"], x.get()) == nullptr);
  CHECK_EQ(inline_attributes(program["o"]), "y=2 ");
}

TEST(objects_without_a_dict) {
  Program program(
      "class S: __slots__ = 'a'\n"
      "s = S(); s.a = 1; n = 5\n"
      "class E(Exception): pass\n"
      "e = E()\n"
      "f = lambda: 0\n");
  for (const char* name : {"s", "n"}) {
    CHECK(cpython::instance_dict_slot(program[name]) == nullptr);
    CHECK(cpython::instance_dict(program[name]) == nullptr);
    CHECK_EQ(cpython::inline_attribute_count(program[name]), 0);
  }
  for (const char* name : {"e", "f"}) {
    CHECK(cpython::instance_dict_slot(program[name]) != nullptr);
    CHECK(cpython::instance_dict(program[name]) == nullptr);
  }
  program.run("e.x = 1; f.x = 2");
  for (const char* name : {"e", "f"}) CHECK(PyDict_Check(cpython::instance_dict(program[name])));
}

TEST(kinds_of_keys) {
  Program program(
      "class S(str): pass\n"
      "plain = {'a': 1, 'b': 2}\n"
      "number = {1: 2}\n"
      "sub = {S('a'): 1}\n");
  CHECK(cpython::has_str_keys_only(program["plain"]));
  CHECK(!cpython::has_str_keys_only(program["number"]));
  CHECK(!cpython::has_str_keys_only(program["sub"]));
}

TEST(entries_come_with_their_hashes) {
  Program program(
      "d = {n: str(n) for n in (3, -1, 'x', (1, 2), 2.5)}\n"
      "del d['x']\n"
      "d['y'] = 'y'\n");
  Ref keys = program.eval("list(d)");
  Py_ssize_t position = 0, seen = 0;
  PyObject *key = nullptr, *value = nullptr;
  Py_hash_t hash = 0;
  while (cpython::next_hashed_entry(program["d"], &position, &key, &value, &hash)) {
    CHECK(key == PyList_GET_ITEM(keys.get(), seen));
    CHECK_EQ(hash, PyObject_Hash(key));
    CHECK(value == PyDict_GetItem(program["d"], key));
    seen++;
  }
  CHECK_EQ(seen, 5);
}

TEST(every_change_of_a_dict_is_a_new_version) {
  Program program("d = {'a': 1, 'b': 2}; other = {'a': 1, 'b': 2}; value = object()");
  std::set<uint64_t> seen{cpython::dict_version(program["d"])};
  for (const char* change : {"d['a'] = value", "d['c'] = 3", "del d['c']", "d.update(other)", "d.pop('a')",
                             "d.setdefault('a', 5)", "d.popitem()", "d |= {'z': 1}", "d.clear()", "d[1] = 2"}) {
    program.run(change);
    const bool is_new = seen.insert(cpython::dict_version(program["d"])).second;
    if (!is_new) testing::fail(__FILE__, __LINE__, std::string(change) + " left the version as it was");
  }
  CHECK(seen.insert(cpython::dict_version(program["other"])).second);
  const uint64_t before = cpython::dict_version(program["d"]);
  program.run("d[1]; d.get(7); len(d); list(d); 3 in d; d == other; d.copy()");
  CHECK_EQ(cpython::dict_version(program["d"]), before);
}

TEST(every_change_of_a_class_is_a_new_version) {
  Program program(
      "class A:\n  x = 1\n"
      "class B(A): pass\n"
      "B.x");
  auto* type = reinterpret_cast<PyTypeObject*>(program["B"]);
  std::set<uint32_t> seen{cpython::type_version(type)};
  CHECK(!seen.contains(0));
  for (const char* change : {"B.y = 1", "A.x = 2", "del A.x", "A.__add__ = lambda a, b: a"}) {
    program.run(change);
    const uint32_t at_once = cpython::type_version(type);
    const bool proves_nothing_old = at_once == 0 || !seen.contains(at_once);
    CHECK(proves_nothing_old);
    program.run("B().__class__; getattr(B, 'x', None); getattr(B(), 'y', None)");
    CHECK(seen.insert(cpython::type_version(type)).second);
  }
}

TEST(the_own_dict_of_a_class) {
  Program program("class A:\n  x = 1\n");
  PyObject* own = cpython::own_dict(reinterpret_cast<PyTypeObject*>(program["A"]));
  CHECK(PyDict_GetItemString(own, "x") != nullptr);
  // CPython's static types keep theirs elsewhere from 3.12 on.
  CHECK(PyDict_GetItemString(cpython::own_dict(&PyLong_Type), "bit_length") != nullptr);
}

TEST(the_order_of_an_ordered_dict) {
  CHECK_EQ(cpython::check_ordered_dict(), 0);
  Program program(
      "from collections import OrderedDict\n"
      "d = OrderedDict((n, 0) for n in range(6))\n"
      "d.move_to_end(2); d.move_to_end(4, last=False); del d[1]\n");
  Ref expected = program.eval("list(d)");
  void* position = nullptr;
  PyObject* key = nullptr;
  Py_ssize_t seen = 0;
  while (cpython::next_ordered_key(program["d"], &position, &key)) {
    CHECK(key == PyList_GET_ITEM(expected.get(), seen++));
  }
  CHECK_EQ(seen, 5);
}

constexpr const char* kHandlers =
    "def f(x):\n"
    "  with x as y:\n"
    "    for z in y:\n"
    "      try: z()\n"
    "      except (KeyError, ValueError) as error: raise y from error\n"
    "      except TypeError: pass\n"
    "      finally: y = [w for w in z]\n"
    "  return y\n";

TEST(decimals_are_told_apart_by_what_they_are_made_of) {
  Program program(
      "from _decimal import Context, Decimal\n"
      "texts = ['0', '-0', '1', '1.0', '1.00', 'NaN', 'sNaN', 'NaN7', '-NaN', 'Infinity', '-Infinity', '9' * 40, '9' * "
      "41]\n"
      "texts += ['8' + '9' * 39, '9' * 39 + '8', '0E+3']\n"
      "one, other = [Decimal(text) for text in texts], [Decimal(text) for text in texts]\n");
  CHECK(cpython::has_known_decimals(reinterpret_cast<PyTypeObject*>(program["Decimal"]),
                                    reinterpret_cast<PyTypeObject*>(program["Context"])));
  const Py_ssize_t count = PyList_GET_SIZE(program["one"]);
  Py_ssize_t nans = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* decimal = PyList_GET_ITEM(program["one"], i);
    nans += cpython::is_decimal_nan(decimal) ? 1 : 0;
    for (Py_ssize_t j = 0; j < count; j++)
      CHECK_EQ(cpython::same_decimal(decimal, PyList_GET_ITEM(program["other"], j)), i == j);
  }
  CHECK_EQ(nans, 4);
}

TEST(the_exception_table_is_read_as_dis_reads_it) {
  Program program(kHandlers);
  program.run(
      "import dis\n"
      "code = f.__code__\n"
      "entries = [tuple(entry) for entry in dis._parse_exception_table(code)]\n"
      "def find(index):\n"
      "  for start, end, target, depth, lasti in entries:\n"
      "    if start <= 2 * index < end: return target // 2, depth, int(lasti)\n"
      "size = len(code.co_code) // 2\n");
  auto* code = reinterpret_cast<PyCodeObject*>(program["code"]);
  const long size = program.number("size");
  int covered = 0;
  for (long index = 0; index < size; index++) {
    Ref expected = checked(PyObject_CallFunction(program["find"], "l", index));
    cpython::Handler handler{};
    const bool found = cpython::find_handler(code, static_cast<int>(index), &handler);
    CHECK_EQ(found, expected.get() != Py_None);
    if (!found) continue;
    covered++;
    CHECK_EQ(handler.target, PyLong_AsLong(PyTuple_GET_ITEM(expected.get(), 0)));
    CHECK_EQ(handler.depth, PyLong_AsLong(PyTuple_GET_ITEM(expected.get(), 1)));
    CHECK_EQ(static_cast<int>(handler.push_lasti), PyLong_AsLong(PyTuple_GET_ITEM(expected.get(), 2)));
  }
  CHECK(covered > 20);
}

TEST(specialised_instructions_are_seen_as_they_were_compiled) {
  Program program(
      "class P:\n"
      "  def __init__(self): self.x = 1\n"
      "  def m(self): return self.x + len([self])\n"
      "def f(p):\n"
      "  total = 0\n"
      "  for n in range(5): total += p.m() * n\n"
      "  return [total, p.x < 3, {'a': n}['a'], (1, 2)[0]]\n"
      "p = P()\n"
      "for _ in range(200): f(p)\n"
      "codes = f.__code__, P.m.__code__\n"
      "plain = [c.co_code for c in codes]\n");
  int rewritten = 0;
  for (int which : {0, 1}) {
    auto* code = reinterpret_cast<PyCodeObject*>(PyTuple_GET_ITEM(program["codes"], which));
    const char* plain = PyBytes_AS_STRING(PyList_GET_ITEM(program["plain"], which));
    cpython::CodeUnit* first = cpython::first_instruction(code);
    for (Py_ssize_t i = 0; i < Py_SIZE(code);) {
      const int opcode = static_cast<unsigned char>(plain[2 * i]);
      CHECK_EQ(cpython::base_opcode(first[i]), opcode);
      CHECK_EQ(cpython::argument(first[i]), static_cast<int>(static_cast<unsigned char>(plain[2 * i + 1])));
      rewritten += *reinterpret_cast<unsigned char*>(first + i) != opcode;
      i += 1 + cpython::caches(opcode);
    }
  }
  CHECK(rewritten > 3);
}

TEST(a_method_wrapper_is_its_slot_and_its_object) {
  Program program("o = []\nw = o.__len__\nslot = list.__len__\n");
  const cpython::MethodWrapper* wrapper = cpython::as_method_wrapper(program["w"]);
  CHECK(wrapper != nullptr);
  CHECK(wrapper->self == program["o"]);
  CHECK(reinterpret_cast<PyObject*>(wrapper->slot) == program["slot"]);
  CHECK(cpython::as_method_wrapper(program["slot"]) == nullptr);
}

TEST(an_ordinary_stack_is_not_low) { CHECK(!cpython::c_stack_low()); }

}  // namespace
}  // namespace alternator
