// What a guard check must not touch: the error indicator, the allocators, the collector, user code.
#include "framework.h"
#include "guards/guard_program.h"
#include "py/names.h"

#include <torch/csrc/autograd/python_variable.h>

namespace alternator::guards {
namespace {

using lift::Access;
using lift::GuardKind;
using lift::Source;

Ref text(const char* value) { return checked(PyUnicode_InternFromString(value)); }
Ref number(long value) { return checked(PyLong_FromLong(value)); }

// Runs Python source and returns its namespace.
Ref run(const char* source) {
  Ref names = checked(PyDict_New());
  check_status(PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins()));
  checked(PyRun_String(source, Py_file_input, names.get(), names.get())).reset();
  return names;
}
Borrowed get(const Ref& names, const char* name) {
  Borrowed found = PyDict_GetItemString(names.get(), name);
  ALT_CHECK(found, name);
  return found;
}

lift::Guard guard_of(GuardKind kind, Borrowed object = {}, Py_ssize_t count = 0) {
  lift::Guard guard{kind};
  guard.object = Ref::share(object);
  guard.number = count;
  return guard;
}

constexpr const char* kModel = R"(
import torch, collections
class Model:
    def __init__(self):
        self.__dict__['weight'] = torch.nn.Parameter(torch.ones(2, 3))
        self.items = [1, 2.5, 'x']
        self.table = {'a': 1, 2: 3}
        self.order = collections.OrderedDict(a=1, b=2)
        self.tags = {'only'}
class Inline:
    def __init__(self):
        self.x = 1
model, inline = Model(), Inline()
x = torch.ones(4)
)";

// One guard program with most kinds of guards on these objects.
std::unique_ptr<GuardProgram> program_for(const Ref& names) {
  Borrowed model = get(names, "model"), x = get(names, "x");
  auto tree = std::make_unique<lift::SourceTree>();
  lift::SourceTree& t = *tree;
  std::vector<Source*> needed;
  auto tensor = [&](Source* source, Borrowed value) {
    lift::Guard guard{GuardKind::kTensor};
    guard.tensor = std::make_shared<const lift::TensorSpec>(lift::describe_tensor(value));
    t.guard(source, std::move(guard));
    source->bears_identity = true;
    needed.push_back(source);
  };
  Source* self = t.slot(0, text("self"));
  t.guard(self, guard_of(GuardKind::kType, reinterpret_cast<PyObject*>(model.type())));
  self->bears_identity = true;
  Source* attributes = t.child(self, Access::kDict);
  t.guard(attributes, guard_of(GuardKind::kLacksKey, text("missing")));
  Ref weight = checked(PyObject_GetAttrString(model.get(), "weight"));
  tensor(t.child(attributes, Access::kItem, text("weight")), weight);
  Source* items = t.child(attributes, Access::kItem, text("items"));
  t.guard(items, guard_of(GuardKind::kLength, {}, 3));
  t.guard(t.child(items, Access::kIndex, {}, 1), guard_of(GuardKind::kEquals, checked(PyFloat_FromDouble(2.5))));
  Source* table = t.child(attributes, Access::kItem, text("table"));
  t.guard(t.child(table, Access::kItem, number(2)), guard_of(GuardKind::kEquals, number(3)));
  Source* order = t.child(attributes, Access::kItem, text("order"));
  t.guard(order, guard_of(GuardKind::kKeys, checked(Py_BuildValue("(ss)", "a", "b"))));
  Source* tags = t.child(attributes, Access::kItem, text("tags"));
  t.guard(t.child(tags, Access::kElement, {}, 0), guard_of(GuardKind::kEquals, text("only")));
  Source* other = t.slot(1, text("inline"));
  Source* inline_x = t.child(t.child(other, Access::kDict), Access::kItem, text("x"));
  t.guard(inline_x, guard_of(GuardKind::kEquals, number(1)));
  tensor(t.slot(2, text("x")), x);
  return std::make_unique<GuardProgram>(std::move(tree), needed, AmbientGuard::capture());
}

struct Slots {
  explicit Slots(const Ref& names)
      : values{get(names, "model").get(), get(names, "inline").get(), get(names, "x").get()} {}
  PyObject* values[3];
  Roots roots() const { return {nullptr, values}; }
};

TEST(a_check_finds_what_is_needed) {
  check_status(init_names());
  Ref names = run(kModel);
  auto program = program_for(names);
  Slots slots(names);
  for (int i = 0; i < 5; i++) {
    std::vector<Ref> values;
    CHECK(program->check(slots.roots(), &values));
    CHECK_EQ(values.size(), 2u);
    CHECK(values[1] == slots.values[2]);
  }
  CHECK(program->counts().bound > 0);
  CHECK_EQ(program->explain(slots.roots()).text(), "");
}

TEST(a_pending_exception_stays) {
  check_status(init_names());
  Ref names = run(kModel);
  auto program = program_for(names);
  Slots slots(names);
  Ref pending = checked(PyObject_CallFunction(PyExc_KeyError, "s", "pending"));
  for (int i = 0; i < 6; i++) {
    PyErr_SetObject(PyExc_KeyError, pending.get());
    std::vector<Ref> values;
    const bool holds = program->check(slots.roots(), &values);
    PyObject* wrong[3] = {Py_None, Py_None, Py_None};
    std::vector<Ref> none;
    const bool fails = !program->check({nullptr, wrong}, &none);
    const std::string why = program->explain({nullptr, wrong}).text();
    const auto texts = program->texts();
    CHECK(PyErr_ExceptionMatches(PyExc_KeyError));
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Ref owned[3] = {Ref::steal(type), Ref::steal(value), Ref::steal(traceback)};
    CHECK(owned[1] == pending);
    CHECK(holds);
    CHECK(fails);
    CHECK(!why.empty());
    CHECK(texts.size() > 8);
  }
}

// --- allocation -------------------------------------------------------------------------------------------

struct Counting {
  PyMemAllocatorEx original;
  size_t count = 0;
};
Counting counters[3];

void* counted_malloc(void* context, size_t size) {
  auto* counting = static_cast<Counting*>(context);
  counting->count++;
  return counting->original.malloc(counting->original.ctx, size);
}
void* counted_calloc(void* context, size_t count, size_t size) {
  auto* counting = static_cast<Counting*>(context);
  counting->count++;
  return counting->original.calloc(counting->original.ctx, count, size);
}
void* counted_realloc(void* context, void* memory, size_t size) {
  auto* counting = static_cast<Counting*>(context);
  counting->count++;
  return counting->original.realloc(counting->original.ctx, memory, size);
}
void counted_free(void* context, void* memory) {
  auto* counting = static_cast<Counting*>(context);
  counting->original.free(counting->original.ctx, memory);
}

// Counts the calls of CPython's allocators in its scope.
class CountAllocations {
 public:
  CountAllocations() {
    for (int domain = 0; domain < 3; domain++) {
      Counting& counting = counters[domain];
      counting.count = 0;
      PyMem_GetAllocator(static_cast<PyMemAllocatorDomain>(domain), &counting.original);
      PyMemAllocatorEx counted{&counting, counted_malloc, counted_calloc, counted_realloc, counted_free};
      PyMem_SetAllocator(static_cast<PyMemAllocatorDomain>(domain), &counted);
    }
  }
  ~CountAllocations() {
    for (int domain = 0; domain < 3; domain++) {
      PyMem_SetAllocator(static_cast<PyMemAllocatorDomain>(domain), &counters[domain].original);
    }
  }
  size_t count() const { return counters[0].count + counters[1].count + counters[2].count; }
};

TEST(a_check_allocates_nothing_of_pythons) {
  check_status(init_names());
  Ref names = run(kModel);
  auto program = program_for(names);
  Slots slots(names);
  std::vector<Ref> values;
  values.reserve(8);
  for (bool bindings : {true, false}) {
    GuardProgram::set_bindings(bindings);
    for (int i = 0; i < 4; i++) {
      values.clear();
      CHECK(program->check(slots.roots(), &values));
    }
    values.clear();
    size_t count;
    bool holds;
    {
      CountAllocations counting;
      holds = program->check(slots.roots(), &values);
      count = counting.count();
    }
    CHECK(holds);
    CHECK_EQ(count, 0u);
  }
  GuardProgram::set_bindings(true);
}

TEST(no_collection_runs_in_a_check) {
  check_status(init_names());
  // A gradient that Python has never seen gets its Python object in the check; a collection there would run the
  // finalizer.
  Ref names = run(R"(
import gc, torch
class Loud:
    ran = 0
    def __del__(self):
        Loud.ran += 1
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
gc.collect()
gc.disable()
for _ in range(100):
    cycle = Loud(); cycle.me = cycle
del cycle
threshold = gc.get_threshold()
gc.enable()
gc.set_threshold(1, 1, 1)
)");
  auto tree = std::make_unique<lift::SourceTree>();
  Source* source = tree->child(tree->slot(0, text("x")), Access::kGrad);
  GuardProgram program(std::move(tree), {source}, AmbientGuard::capture());
  auto ran = [&] { return PyLong_AsLong(checked(PyObject_GetAttrString(get(names, "Loud").get(), "ran")).get()); };
  const long before = ran();
  PyObject* slots[1] = {get(names, "x").get()};
  std::vector<Ref> values;
  values.reserve(1);
  const bool holds = program.check({nullptr, slots}, &values);
  const long after = ran();
  const bool collects = PyGC_IsEnabled() != 0;
  checked(PyRun_String("gc.set_threshold(*threshold)", Py_file_input, names.get(), names.get())).reset();
  CHECK(holds);
  CHECK(lift::is_tensor(values[0]));
  CHECK_EQ(before, after);
  CHECK(collects);
}

TEST(the_collector_is_shown_what_a_program_holds) {
  check_status(init_names());
  Ref names = run(kModel);
  auto program = program_for(names);
  Slots slots(names);
  for (int i = 0; i < 4; i++) {
    std::vector<Ref> values;
    CHECK(program->check(slots.roots(), &values));
  }
  size_t shown = 0;
  bool shows_an_instance = false;
  program->each_object([&](Ref& object) {
    if (!object) return;
    shown++;
    for (PyObject* slot : slots.values) shows_an_instance |= object == slot;
  });
  CHECK(shown > 5);
  CHECK(!shows_an_instance);  // those are referred to weakly
}

TEST(sources_of_a_tree) {
  check_status(init_names());
  lift::SourceTree tree;
  Source* self = tree.slot(0, text("self"));
  CHECK(tree.slot(0, text("self")) == self);
  CHECK(tree.slot(1, text("self")) != self);
  Source* x = tree.child(tree.child(self, Access::kDict), Access::kItem, text("x"));
  CHECK_EQ(x->text(), "self.x");
  Ref same = checked(PyUnicode_FromString("x"));  // not interned
  CHECK(tree.child(tree.child(self, Access::kDict), Access::kItem, same) == x);
  CHECK_EQ(tree.sources().size(), 4u);
  CHECK_EQ(tree.roots().size(), 2u);
  tree.guard(x, guard_of(GuardKind::kLength, {}, 2));
  tree.guard(x, guard_of(GuardKind::kLength, {}, 2));
  tree.guard(x, guard_of(GuardKind::kLength, {}, 3));
  CHECK_EQ(x->guards.size(), 2u);
  Ref module = checked(Py_CompileString("1\n\n2", "file.py", Py_file_input));
  tree.set_site(module, 0);
  tree.guard(x, guard_of(GuardKind::kTruth, {}, 1));
  CHECK(tree.site(x->guards.back().site).code == module);
  CHECK(!tree.site(x->guards.front().site).code);
}

TEST(a_pin_knows_its_object_again) {
  check_status(init_names());
  Ref names = run("class C: pass\nc = C()\ndef f(): pass");
  Pin instance(get(names, "c")), function(get(names, "f")), type(get(names, "C"));
  CHECK(instance.is_weak());
  CHECK(function.is_weak());
  CHECK(!type.is_weak());
  CHECK(instance.is(get(names, "c").get()));
  CHECK(!instance.is(get(names, "f").get()));
  check_status(PyDict_DelItemString(names.get(), "c"));
  CHECK(instance.get() == nullptr);
  Ref bare = checked(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  Pin held(bare);
  CHECK(!held.is_weak());  // it cannot be referred to weakly
  CHECK_EQ(Py_REFCNT(bare.get()), 2);
}

}  // namespace
}  // namespace alternator::guards
