#include "graph/sizes/size_reader.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace alternator::graph {
namespace {

enum class Reads : uint8_t { kSizes, kLength, kElements, kBytes, kNothing, kViewOrCopy };

constexpr struct {
  Reads kind;
  const char* name;
} kRows[] = {
#define ALT_READER(kind, name) {Reads::kind, name},
#include "graph/sizes/size_readers.def"
#undef ALT_READER
};

// The function that a node calls for an attribute: the descriptor itself for a method, its __get__ for a getter.
const std::unordered_map<PyObject*, Reads>& readers() {
  static constinit Lasting<const std::unordered_map<PyObject*, Reads>*> table;
  return *table.get([] {
    auto* made = new std::unordered_map<PyObject*, Reads>();
    for (const auto& row : kRows) {
      const bool is_function = std::strncmp(row.name, "torch.", 6) == 0;
      PyObject* owner = reinterpret_cast<PyObject*>(torch_types().tensor);
      Ref found = is_function ? torch_name("torch", row.name + 6) : Ref::steal(PyObject_GetAttrString(owner, row.name));
      if (!found) PyErr_Clear();  // another torch
      if (found) made->emplace(found.release(), row.kind);
    }
    return made;
  });
}

// A bound method wrapper stands for the descriptor that it belongs to.
PyObject* identity_of(const Node& node) {
  PyObject* callable = node.function().get();
  if (Py_IS_TYPE(callable, &_PyMethodWrapper_Type)) {
    PyObject* self = PyObject_GetAttrString(callable, "__self__");
    if (self == nullptr) throw PyError();
    Py_DECREF(self);  // the wrapper owns it
    return self;
  }
  return callable;
}

}  // namespace

bool SizeReader::is_made(Borrowed object, uint32_t made) const {
  const std::vector<TensorRecord>& tensors = solver_.program().tensors;
  const c10::TensorImpl* impl = as_tensor(object).unsafeGetTensorImpl();
  return std::any_of(tensors.begin() + made, tensors.end(),
                     [&](const TensorRecord& record) { return record.fake.unsafeGetTensorImpl() == impl; });
}

// A plain int where the expression is a constant.
Ref SizeReader::number(shapes::Expression expression, Borrowed result) {
  if (expression == nullptr) return {};
  ALT_CHECK(expression->has_hint && PyLong_Check(result.get()) &&
                expression->hint.integer == PyLong_AsLongLong(result.get()),
            "the expression of a size differs from the size");
  return solver_.symbols().number(expression);
}

Ref SizeReader::tuple(const Sizes& sizes, Borrowed result) {
  Ref items = checked(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (size_t d = 0; d < sizes.size(); d++) {
    Ref item = number(sizes[d], PyTuple_GET_ITEM(result.get(), static_cast<Py_ssize_t>(d)));
    PyTuple_SET_ITEM(items.get(), static_cast<Py_ssize_t>(d), item.release());
  }
  return checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(torch_types().size), items.get()));
}

// x.size(d)
Ref SizeReader::size(uint32_t tensor, const Node& node, Borrowed result) {
  Program& program = solver_.program();
  const Value position = node.argument_count() > 1 ? program.argument(node, 1) : Value{};
  if (position.kind() != ValueKind::Object) return {};
  const Sizes sizes = solver_.sizes_of(tensor);
  long long d = PyLong_AsLongLong(program.arena.object(position).get());
  if (d == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return {};
  }
  if (d < 0) d += static_cast<long long>(sizes.size());
  return d >= 0 && d < static_cast<long long>(sizes.size()) ? number(sizes[static_cast<size_t>(d)], result) : Ref();
}

Ref SizeReader::read(const Node& node, Ref result, uint32_t made) {
  Program& program = solver_.program();
  shapes::ShapeEnvironment& environment = solver_.environment();
  const auto row = readers().find(identity_of(node));
  const Value first = node.argument_count() > 0 ? program.argument(node, 0) : Value{};
  if (row != readers().end() && !node.wrapped && !node.overridden && first.is_tensor() &&
      program.tensors[first.index].fake.defined()) {
    const uint32_t tensor = first.index;
    Ref read;
    shapes::Expression product = environment.integer(1);
    switch (row->second) {
      case Reads::kNothing:
        return result;
      case Reads::kViewOrCopy:
        views_or_copies_.push_back(tensor);
        return result;
      case Reads::kSizes:
        read = PyTuple_Check(result.get()) ? tuple(solver_.sizes_of(tensor), result) : size(tensor, node, result);
        break;
      case Reads::kLength:
        read = number(solver_.sizes_of(tensor).front(), result);
        break;
      case Reads::kBytes:
        product = environment.integer(static_cast<int64_t>(program.tensors[tensor].fake.element_size()));
        [[fallthrough]];
      case Reads::kElements:
        for (const shapes::Expression size : solver_.sizes_of(tensor)) product = environment.multiply(product, size);
        read = number(product, result);
        break;
    }
    if (read) return read;
    solver_.specialize_arguments(node);
    return result;
  }
  // A new tensor tells nothing until it is asked; a named tuple of tensors has as many in each call.
  if (is_tensor(result) && is_made(result, made)) return result;
  const bool is_in_place = is_tensor(result) && node.has(kInPlaceMethod) && !node.has(kReplacesStorage) &&
                           !node.has(kRestrides) && first.is_tensor() &&
                           program.tensors[first.index].fake.is_same(as_tensor(result));
  if (is_in_place || result.get() == Py_None) return result;
  solver_.specialize_arguments(node);
  return result;
}

void SizeReader::fix_views() {
  for (const uint32_t tensor : views_or_copies_) solver_.specialize(tensor);
  views_or_copies_.clear();
}

}  // namespace alternator::graph
