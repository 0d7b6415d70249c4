#include "graph/sizes/size_reader.h"

#include "graph/record/node_effects.h"
#include "graph/record/torch_types.h"
#include "graph/sizes/layout_solver.h"
#include "graph/sizes/rule_call.h"
#include "graph/sizes/size_rules.h"
#include "graph/sizes/size_switches.h"
#include "graph/sizes/torch_sizes.h"
#include "py/lasting.h"

#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace alternator::graph {

enum class SizeReader::Reads : uint8_t {
  kSizes,
  kLength,
  kElements,
  kBytes,
  kNothing,
  kViewOrCopy,
  kContiguous,
  kSameSizes,
  kStrides,
  kOffset,
  kDimOrder,
  kStructure,
  kWhichArgument,
  kFixedCount,
  kFixedWeights,
};

namespace {

using Reads = SizeReader::Reads;

struct Row {
  Reads kind;
  const char* name;
};

constexpr Row kRows[] = {
#define ALT_READER(kind, name) {Reads::kind, name},
#include "graph/sizes/size_readers.def"
#undef ALT_READER
};

// The function that a node calls for an attribute: the descriptor itself for a method, its __get__ for a getter. Null:
// another torch.
Ref resolve(std::string_view name) {
  Ref found = Ref::share(reinterpret_cast<PyObject*>(torch_types().tensor));
  for (const char* module : {"torch", "operator"}) {
    if (!name.starts_with(std::string(module) + '.')) continue;
    found = checked(PyImport_ImportModule(module));
    name.remove_prefix(std::strlen(module) + 1);
  }
  while (found && !name.empty()) {
    const size_t end = std::min(name.find('.'), name.size());
    found = Ref::steal(PyObject_GetAttrString(found.get(), std::string(name.substr(0, end)).c_str()));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  if (!found) PyErr_Clear();
  return found;
}

const std::unordered_map<PyObject*, Row>& readers() {
  static constinit Lasting<const std::unordered_map<PyObject*, Row>*> table;
  return *table.get([] {
    auto* made = new std::unordered_map<PyObject*, Row>();
    for (const Row& row : kRows) {
      if (Ref found = resolve(row.name)) made->emplace(found.release(), row);
    }
    return made;
  });
}

// Rows that say that a call tells nothing: without one, it specializes. Without one of the others, nothing does.
bool is_harmless(Reads kind) {
  return kind == Reads::kNothing || kind == Reads::kFixedCount || kind == Reads::kFixedWeights;
}

// Functions of torch's API: where no table says otherwise, the structure of their results does not depend on sizes.
// Nothing is known of the operators of torch.ops, which anyone may define.
bool is_of_torch(const Node& node) {
  if (node.wrapped || node.overridden) return false;
  const Borrowed callable = node.callable;
  PyTypeObject* type = callable.type();
  return PyCFunction_Check(callable.get()) || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
         type == &_PyMethodWrapper_Type || (PyFunction_Check(callable.get()) && !is_users_function(callable)) ||
         callable.get() == reinterpret_cast<PyObject*>(torch_types().parameter);
}

// torch.return_types
bool is_named_tuple(Borrowed result) {
  return PyTuple_Check(result.get()) && !PyTuple_CheckExact(result.get()) && is_native_of_torch(result.type());
}

// Whether all overloads of the operator that a native function of torch calls give tensors, each of them one.
bool has_fixed_count(const Node& node) {
  const Borrowed callable = node.callable;
  if (!PyCFunction_Check(callable.get()) && callable.type() != &PyMethodDescr_Type) return false;
  Ref name = Ref::steal(PyObject_GetAttrString(callable.get(), "__name__"));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    return false;
  }
  const auto& operators = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(std::string("aten::") + text));
  const auto gives_tensors = [](const std::shared_ptr<torch::jit::Operator>& overload) {
    return std::ranges::all_of(overload->schema().returns(), [](const c10::Argument& result) {
      return result.type()->kind() == c10::TypeKind::TensorType;
    });
  };
  return !operators.empty() && std::ranges::all_of(operators, gives_tensors);
}

}  // namespace

bool SizeReader::is_made(Borrowed object, uint32_t made) const {
  const std::vector<TensorRecord>& tensors = solver_.program().tensors;
  const c10::TensorImpl* impl = as_tensor(object).unsafeGetTensorImpl();
  return std::any_of(tensors.begin() + made, tensors.end(),
                     [&](const TensorRecord& record) { return record.fake.unsafeGetTensorImpl() == impl; });
}

// As many new tensors as its class says, or as many as a row says: nested at most once.
bool SizeReader::holds_only_made(Borrowed result, uint32_t made, int depth) const {
  if (is_tensor(result)) return is_made(result, made);
  if (result.get() == Py_None) return true;
  if (depth == 0 || (!PyTuple_Check(result.get()) && !PyList_Check(result.get()))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result.get()); i++) {
    if (!holds_only_made(PySequence_Fast_GET_ITEM(result.get(), i), made, depth - 1)) return false;
  }
  return true;
}

// A plain int where the expression is a constant.
Ref SizeReader::number(shapes::Expression expression, Borrowed result) {
  if (expression == nullptr) return {};
  ALT_CHECK(
      expression->has_hint && PyLong_Check(result.get()) && expression->hint.integer == PyLong_AsLongLong(result.get()),
      "the expression of a size differs from the size");
  return solver_.symbols().number(expression);
}

Ref SizeReader::tuple(const Sizes& sizes, Borrowed result, PyTypeObject* type) {
  Ref items = checked(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (size_t d = 0; d < sizes.size(); d++) {
    Ref item = number(sizes[d], PyTuple_GET_ITEM(result.get(), static_cast<Py_ssize_t>(d)));
    if (!item) return {};
    PyTuple_SET_ITEM(items.get(), static_cast<Py_ssize_t>(d), item.release());
  }
  if (type == &PyTuple_Type) return items;
  return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), items.get()));
}

// x.size(d), x.stride(d): one of these.
Ref SizeReader::part(const Sizes& sizes, const Node& node, Borrowed result) {
  Program& program = solver_.program();
  const Value position = node.argument_count() > 1 ? program.argument(node, 1) : Value{};
  if (position.kind() != ValueKind::Object) return {};
  long long d = PyLong_AsLongLong(program.arena.object(position).get());
  if (d == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return {};
  }
  if (d < 0) d += static_cast<long long>(sizes.size());
  return d >= 0 && d < static_cast<long long>(sizes.size()) ? number(sizes[static_cast<size_t>(d)], result) : Ref();
}

// Guards whether two tensors have the same sizes. False: not both are tensors.
bool SizeReader::compare_sizes(const Node& node) {
  const Program& program = solver_.program();
  if (node.argument_count() != 2) return false;
  std::array<Sizes, 2> sizes;
  for (uint32_t i = 0; i < 2; i++) {
    const Value value = program.argument(node, i);
    if (!value.is_tensor() || !SizeSolver::has_plain_sizes(program.tensors[value.index].fake)) return false;
    sizes[i] = solver_.sizes_of(value.index);
  }
  bool are_same = sizes[0].size() == sizes[1].size();
  for (size_t d = 0; are_same && d < sizes[0].size(); d++)
    are_same = solver_.symbols().decide(solver_.environment().equal(sizes[0][d], sizes[1][d]));
  return true;
}

// x.is_contiguous(), and x.contiguous() where that is x.
Ref SizeReader::read_contiguous(const Node& node, Borrowed result) {
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  if (node.argument_count() > 1) {
    const Value given = solver_.program().argument(node, 1);
    PyObject* object = given.kind() == ValueKind::Object ? solver_.program().arena.object(given).get() : nullptr;
    if (node.argument_count() != 2 || object == nullptr || !THPMemoryFormat_Check(object)) return {};
    format = reinterpret_cast<THPMemoryFormat*>(object)->memory_format;
  }
  const uint32_t tensor = solver_.program().argument(node, 0).index;
  const std::optional<bool> found = solver_.layouts().is_contiguous(tensor, format);
  return found && *found == (result.get() != Py_False) ? Ref::share(result) : Ref();
}

Ref SizeReader::read_layout(Reads reads, const Node& node, Borrowed result) {
  const uint32_t tensor = solver_.program().argument(node, 0).index;
  LayoutSolver& layouts = solver_.layouts();
  if (reads == Reads::kOffset) return number(layouts.offset_of(tensor), result);
  if (reads == Reads::kStrides) {
    const std::optional<Sizes> strides = layouts.strides_of(tensor);
    if (!strides) return {};
    return PyTuple_Check(result.get()) ? tuple(*strides, result, &PyTuple_Type) : part(*strides, node, result);
  }
  const std::optional<std::vector<int64_t>> order =
      node.argument_count() == 1 ? layouts.dim_order(tensor) : std::nullopt;
  if (!order || PyTuple_GET_SIZE(result.get()) != static_cast<Py_ssize_t>(order->size())) return {};
  for (size_t i = 0; i < order->size(); i++) {
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(result.get(), static_cast<Py_ssize_t>(i))) != (*order)[i]) return {};
  }
  return Ref::share(result);
}

// What rows of size_readers.def say of the first argument; null: nothing that can be expressed.
Ref SizeReader::read_first(Reads reads, const Node& node, Borrowed result) {
  const uint32_t tensor = solver_.program().argument(node, 0).index;
  const at::Tensor& fake = solver_.program().tensors[tensor].fake;
  shapes::ShapeEnvironment& environment = solver_.environment();
  // x.contiguous() is x, or x.is_contiguous().
  const bool is_same = is_tensor(result) ? as_tensor(result).is_same(fake) : result.get() == Py_True;
  if (reads == Reads::kContiguous && (is_same || !is_tensor(result))) {
    if (has_constant_layout(solver_, tensor)) return Ref::share(result);
    return read_contiguous(node, result);
  }
  if (reads == Reads::kViewOrCopy || reads == Reads::kContiguous) {
    const bool may_be_argument = reads == Reads::kContiguous;
    views_or_copies_.push_back(
        {tensor, as_tensor(result), may_be_argument && node.argument_count() == 1, may_be_argument});
    return Ref::share(result);
  }
  if (!SizeSolver::has_plain_sizes(fake)) return {};
  if (reads == Reads::kSameSizes) return compare_sizes(node) ? Ref::share(result) : Ref();
  if (reads >= Reads::kStrides) return read_layout(reads, node, result);
  const Sizes sizes = solver_.sizes_of(tensor);
  if (reads == Reads::kSizes) {
    auto* size_type = reinterpret_cast<PyTypeObject*>(torch_types().size);
    return PyTuple_Check(result.get()) ? tuple(sizes, result, size_type) : part(sizes, node, result);
  }
  if (reads == Reads::kLength) return number(sizes.front(), result);
  const bool in_bytes = reads == Reads::kBytes;
  shapes::Expression product = environment.integer(in_bytes ? static_cast<int64_t>(fake.element_size()) : 1);
  for (const shapes::Expression size : sizes) product = environment.multiply(product, size);
  return number(product, result);
}

// A new tensor tells nothing until it is asked; neither does an argument that was written to.
bool SizeReader::tells_nothing(const Node& node, Borrowed result, uint32_t made) const {
  if (is_tensor(result) && is_made(result, made)) return true;
  const Value first = node.argument_count() > 0 ? solver_.program().argument(node, 0) : Value{};
  const bool is_written = node.has(kWritesFirst) || node.has(kInPlaceMethod);
  const bool is_in_place = is_tensor(result) && is_written && !node.has(kReplacesStorage) && !node.has(kRestrides) &&
                           first.is_tensor() && solver_.program().tensors[first.index].fake.is_same(as_tensor(result));
  // Setting an attribute may replace the sizes: x.data = y.
  const bool is_set = node.has(kSetsAttribute) || (node.has(kUnversioned) && !node.has(kWritesFirst));
  return is_in_place || (result.get() == Py_None && !is_set);
}

Ref SizeReader::read(const Node& node, Ref result, uint32_t made) {
  if (!is_of_torch(node)) {
    const bool is_known = holds_only_made(result, made) && ask_torch(solver_, node, result);
    if (!is_known && !is_open("foreign_call")) solver_.specialize_arguments(node);
    return result;
  }
  const auto found = readers().find(identity_of(node));
  const Row* row = found != readers().end() ? &found->second : nullptr;
  if (row != nullptr && is_open(std::string("reader.") + row->name)) {
    if (!is_harmless(row->kind)) return result;
    row = nullptr;
  }
  const auto is = [&](Reads kind) { return row != nullptr && row->kind == kind; };
  const bool is_which = is(Reads::kWhichArgument);
  if (is_which || is(Reads::kStructure)) {
    // Not of what an argument is returned for.
    const bool is_sequence = PyTuple_Check(result.get()) || PyList_Check(result.get());
    const int64_t count = is_sequence ? PySequence_Size(result.get()) : 1;
    const bool is_new = is_sequence ? node.element_count == count : is_tensor(result) && is_made(result, made);
    if (!(is_which || is_new) || !guard_structure(solver_, node, count)) solver_.specialize_arguments(node);
    return result;
  }
  const Value first = node.argument_count() > 0 ? solver_.program().argument(node, 0) : Value{};
  if (is(Reads::kNothing) && is_tensor(result) && has_keyword(node, "memory_format")) {
    // x.to(memory_format=...) is x where that has the layout.
    if (!is_made(result, made) || !first.is_tensor()) {
      solver_.specialize_arguments(node);
    } else {
      views_or_copies_.push_back({first.index, as_tensor(result), false, true});
    }
    return result;
  }
  if (is(Reads::kNothing)) return result;
  const bool reads_first = row != nullptr && row->kind < Reads::kStructure && !is(Reads::kNothing);
  if (reads_first && first.is_tensor() && solver_.program().tensors[first.index].fake.defined()) {
    Ref read = read_first(row->kind, node, result);
    if (read) return read;
    solver_.specialize_arguments(node);
    return result;
  }
  if (node.has(kRestrides) && solver_.note_restrided(node)) return result;
  if (is(Reads::kFixedWeights)) specialize_weights(node);
  const bool is_fixed = is(Reads::kFixedCount) || is(Reads::kFixedWeights) || is_named_tuple(result) ||
                        (PyTuple_Check(result.get()) && has_fixed_count(node));
  const bool tells = is_fixed ? !holds_only_made(result, made) : !tells_nothing(node, result, made);
  if (tells && !is_open("unlisted_call")) solver_.specialize_arguments(node);
  return result;
}

void SizeReader::specialize_weights(const Node& node) {
  const RuleCall call(solver_, node, int64_t{0});
  constexpr uint32_t kBehindState = 2;  // function(input, state, weights ...)
  std::vector<Value> all, weights;
  for (uint32_t i = kBehindState; i < node.argument_count(); i++) {
    const Value argument = solver_.program().argument(node, i);
    all.push_back(argument);
    if (argument.kind() == ValueKind::Tuple || argument.kind() == ValueKind::List) weights = call.children(argument);
  }
  if (weights.empty()) weights = std::move(all);
  for (const Value weight : weights)
    if (weight.is_tensor()) solver_.specialize(weight.index);
}

// False: it is not known on what it depends.
bool SizeReader::guard_view(const ViewOrCopy& call) {
  LayoutSolver& layouts = solver_.layouts();
  const Program& program = solver_.program();
  if (call.is_contiguous) return layouts.is_contiguous(call.tensor, at::MemoryFormat::Contiguous) == false;
  if (call.may_be_argument) return false;
  const auto made = std::ranges::find_if(program.tensors,
                                         [&](const TensorRecord& record) { return record.fake.is_same(call.result); });
  if (made == program.tensors.end()) return false;
  const auto result = static_cast<uint32_t>(made - program.tensors.begin());
  if (solver_.is_restrided(result)) return false;
  if (result == call.tensor) return true;  // of one dimension, which does not depend on its size
  const at::Tensor& argument = program.tensors[call.tensor].fake;
  const bool is_view = share_memory(argument, call.result);
  try {
    return layouts.view_strides(call.tensor, solver_.sizes_of(result)).has_value() == is_view;
  } catch (const NoRule&) {
    return false;
  }
}

void SizeReader::fix_copy(const at::Tensor& tensor) {
  for (const ViewOrCopy& call : views_or_copies_) {
    if (call.may_be_argument && call.result.is_same(tensor) && !guard_view(call)) solver_.specialize(call.tensor);
  }
}

void SizeReader::fix_views() {
  const Program& program = solver_.program();
  // What a write to one of the two changes depends on it; what is written elsewhere does not.
  std::unordered_set<const c10::StorageImpl*> written;
  bool is_known = true;
  const auto storage_of = [](const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  };
  for (const Node& node : program.nodes) {
    if ((node.effects & kMutates) == 0) continue;
    is_known = is_known && !node.has(kReplacesStorage) && !node.has(kSetsAttribute);
    program.each_written(node, [&](uint32_t tensor) {
      if (program.tensors[tensor].fake.defined()) written.insert(storage_of(program.tensors[tensor].fake));
    });
  }
  for (const ViewOrCopy& call : views_or_copies_) {
    const bool is_written =
        written.contains(storage_of(program.tensors[call.tensor].fake)) || written.contains(storage_of(call.result));
    if (!is_known || (is_written && !guard_view(call))) solver_.specialize(call.tensor);
  }
  views_or_copies_.clear();
}

}  // namespace alternator::graph
