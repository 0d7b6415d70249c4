#include "graph/sizes/torch_sizes.h"

#include "fake/fake.h"
#include "fake/python_tensor.h"
#include "fake/tensor_impl.h"
#include "graph/record/torch_types.h"
#include "graph/sizes/layout_solver.h"
#include "graph/sizes/size_switches.h"
#include "py/lasting.h"
#include "shapes/python_objects.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

namespace alternator::graph {

namespace {

Ref (*loader)() = nullptr;
Lasting<Ref> sizes_function;
bool is_loaded = false;
thread_local bool was_lacking = false;

struct NotKnown {};

// The arguments of a call as the function of the package takes them.
class Described {
 public:
  Described(SizeSolver& solver, const Node& node, Borrowed environment)
      : solver_(solver), program_(solver.program()), environment_(environment) {
    for (uint32_t i = 0; i < node.positional; i++)
      check_status(PyList_Append(positional.get(), object(program_.argument(node, i)).get()));
    for (uint32_t i = 0; i < node.keyword; i++)
      check_status(PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(node.keyword_names.get(), i),
                                  object(program_.argument(node, node.positional + i)).get()));
  }

  Ref positional = checked(PyList_New(0));
  Ref keywords = checked(PyDict_New());
  Ref tensors = checked(PyDict_New());  // sizes, and strides or None, by the addresses of the fakes

 private:
  Ref object(Value value) {
    return rebuild(program_.arena, value, [&](Value leaf) { return leaf_object(leaf); });
  }

  Ref leaf_object(Value leaf) {
    if (leaf.kind() == ValueKind::Object) return Ref::share(program_.arena.object(leaf));
    if (!leaf.is_tensor()) throw NotKnown();
    const TensorRecord& record = program_.tensors[leaf.index];
    if (record.expression != nullptr)
      return shapes::python_expression(environment_, solver_.environment().simplify(record.expression));
    if (record.is_symbol() || !record.fake.defined() || !SizeSolver::has_plain_sizes(record.fake)) throw NotKnown();
    const std::optional<Sizes> strides = strides_of(leaf.index);
    const Ref sizes = tuple_of(solver_.sizes_of(leaf.index));
    const Ref steps = strides ? tuple_of(*strides) : Ref::share(Py_None);
    Ref fake = Ref::steal(THPVariable_Wrap(record.fake));
    const Ref key = checked(PyLong_FromVoidPtr(fake.get()));
    check_status(PyDict_SetItem(tensors.get(), key.get(), checked(PyTuple_Pack(2, sizes.get(), steps.get())).get()));
    return fake;
  }

  std::optional<Sizes> strides_of(uint32_t tensor) {
    if (program_.tensors[tensor].varies) return solver_.layouts().strides_of(tensor);
    Sizes strides;
    for (const int64_t stride : program_.tensors[tensor].fake.strides())
      strides.push_back(solver_.environment().integer(stride));
    return strides;
  }

  Ref tuple_of(const Sizes& expressions) {
    Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(expressions.size())));
    for (size_t i = 0; i < expressions.size(); i++)
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i),
                       shapes::python_expression(environment_, expressions[i]).release());
    return tuple;
  }

  SizeSolver& solver_;
  Program& program_;
  Borrowed environment_;
};

bool is_operator(Borrowed callable) {
  static constinit Lasting<Ref> overload, packet;
  const auto is = [&](Lasting<Ref>& type, const char* name) {
    return callable.type() == type.get([&] { return torch_name("torch._ops", name); }).as<PyTypeObject>();
  };
  return is(packet, "OpOverloadPacket") || is(overload, "OpOverload");
}

// The tensors of a result: itself, or what is in it.
std::optional<std::vector<uint32_t>> tensors_in(const Program& program, Borrowed result) {
  const auto found = [&](Borrowed object) {
    const c10::TensorImpl* impl = as_tensor(object).unsafeGetTensorImpl();
    uint32_t id = static_cast<uint32_t>(program.tensors.size());
    while (id > 0 && program.tensors[id - 1].fake.unsafeGetTensorImpl() != impl) id--;
    return id > 0 ? id - 1 : kNowhere;
  };
  std::vector<uint32_t> tensors;
  if (is_tensor(result)) return std::vector{found(result)};
  if (!PyTuple_Check(result.get()) && !PyList_Check(result.get())) return std::nullopt;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result.get()); i++) {
    PyObject* item = PySequence_Fast_GET_ITEM(result.get(), i);
    if (!is_tensor(item)) return std::nullopt;
    tensors.push_back(found(item));
  }
  return tensors;
}

Ref call_sizes(SizeSolver& solver, const Node& node, Borrowed environment) {
  const Described described(solver, node, environment);
  const size_t count = solver.symbols().count();
  Ref numbers = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; i++)
    PyTuple_SET_ITEM(numbers.get(), static_cast<Py_ssize_t>(i),
                     shapes::python_expression(environment, solver.environment().symbol(i)).release());
  return solver.eagerly([&] {
    const fake::Inactive inactive;
    const c10::impl::ExcludeDispatchKeyGuard outside(fake::kFakeKey);
    return checked(PyObject_CallFunctionObjArgs(sizes_function.get(loader).get(), environment.get(), numbers.get(),
                                                node.callable.get(), described.positional.get(),
                                                described.keywords.get(), described.tensors.get(), nullptr));
  });
}

}  // namespace

// There is no rule for it: its sizes are known from nowhere else.
bool was_told_by_torch(const SizeSolver& solver, const Node& node, uint32_t tensor) {
  bool is_known = false;
  if (is_operator(node.callable)) solver.each_known([&](uint32_t known, const Sizes&) { is_known |= known == tensor; });
  return is_known;
}

void set_torch_sizes(Ref (*load)()) { loader = load; }

bool has_lacked_torch_sizes() { return std::exchange(was_lacking, false); }

void load_torch_sizes() {
  (void)sizes_function.get(loader);
  is_loaded = true;
}

bool ask_torch(SizeSolver& solver, const Node& node, Borrowed result) {
  if (loader == nullptr || !solver.eagerly || !is_operator(node.callable) || node.effects != kPure || node.wrapped ||
      node.overridden || node.separate)
    return false;
  const std::optional<std::vector<uint32_t>> tensors = tensors_in(solver.program(), result);
  if (!tensors || std::ranges::find(*tensors, kNowhere) != tensors->end()) return false;
  if (!is_loaded) {
    was_lacking = true;
    return false;
  }
  const std::shared_ptr<fake::BackedSymbols>& symbols = solver.program().backed;
  const Ref environment = shapes::python_environment({symbols, &symbols->environment});
  Ref found;
  try {
    found = call_sizes(solver, node, environment);
  } catch (const NotKnown&) {
    return false;
  }
  PyObject *rows, *conditions;
  if (found.get() == Py_None) return false;
  if (PyArg_ParseTuple(found.get(), "O!O!", &PyList_Type, &rows, &PyList_Type, &conditions) == 0) throw PyError();
  if (PyList_GET_SIZE(rows) != static_cast<Py_ssize_t>(tensors->size())) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(conditions); i++) {
    const shapes::Expression condition = shapes::expression_of(environment, PyList_GET_ITEM(conditions, i));
    if (condition == nullptr || !condition->has_hint) return false;
    if (!is_open("torchs_condition") && !symbols->decide(condition)) return false;
  }
  for (size_t t = 0; t < tensors->size(); t++) {
    Borrowed row = PyList_GET_ITEM(rows, static_cast<Py_ssize_t>(t));
    Sizes sizes;
    for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(row.get()); d++)
      sizes.push_back(shapes::expression_of(environment, PyTuple_GET_ITEM(row.get(), d)));
    if (!solver.know((*tensors)[t], sizes)) return false;
  }
  return true;
}

}  // namespace alternator::graph
