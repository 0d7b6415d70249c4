#include "fake/counted_elements.h"

#include "fake/python_modes.h"
#include "fake/stand_ins.h"
#include "fake/storage.h"
#include "fake/unbacked_ops.h"
#include "fake/unbacked_sizes.h"

#include "py/error.h"
#include "py/import.h"
#include "py/lasting.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <limits>

namespace alternator::fake {
namespace {

namespace py = pybind11;
using shapes::Expression;

// The most that torch would say of a count of `elements`, which are not known.
py::object bound_of(const c10::SymInt& elements, const py::object& shape_env) {
  static constinit Lasting<std::pair<Ref, Ref>> names;
  const auto& [bound_sympy, infinity] = names.get([] {
    Ref ranges = import_module("torch.utils._sympy.value_ranges"),
        numbers = import_module("torch.utils._sympy.numbers");
    return std::pair(checked(PyObject_GetAttrString(ranges.get(), "bound_sympy")),
                     checked(PyObject_GetAttrString(numbers.get(), "IntInfinity")));
  });
  const py::object node = py::cast(elements).attr("node");
  const py::object range =
      py::reinterpret_borrow<py::object>(bound_sympy.get())(node.attr("expr"), shape_env.attr("var_to_range"));
  py::object upper = range.attr("upper");
  if (py::isinstance(upper, py::reinterpret_borrow<py::object>(infinity.get())))
    return py::int_(std::numeric_limits<int64_t>::max() - 1);
  return upper;
}

// Nothing: its number of elements has no expression.
std::optional<c10::SymInt> count_of(SessionState& session, const at::Tensor& tensor) {
  SessionState::Seen& row = seen_row(session, tensor);
  if (row.count) return row.count;
  const OutsideSession outside;
  if (row.theirs.defined()) {
    const py::object memo = py::reinterpret_steal<py::object>(THPVariable_Wrap(row.theirs)).attr("nonzero_memo");
    if (!memo.is_none()) return row.count = memo.cast<c10::SymInt>();
  }
  UnbackedSizes& numbers = session.unbacked_sizes();
  Expression elements = numbers.environment.integer(1);
  for (const c10::SymInt& size : tensor.sym_sizes())
    elements = numbers.environment.multiply(elements, numbers.of(size));
  if (elements == nullptr) return std::nullopt;
  const std::optional<c10::SymInt> all = numbers.number(elements);
  if (!all) return std::nullopt;
  if (elements->is_integer(0)) return row.count = c10::SymInt(0);
  const py::object shape_env = py::reinterpret_borrow<py::object>(session.shape_env().get());
  const py::object limit = all->is_heap_allocated() ? bound_of(*all, shape_env) : py::int_(all->as_int_unchecked());
  const py::object count = shape_env.attr("create_unbacked_symint")();
  shape_env.attr("_constrain_range_for_size")(count.attr("node").attr("expr"), py::none(), limit);
  row.count = count.cast<c10::SymInt>();
  if (row.theirs.defined()) set_memo(row.theirs, *row.count);
  return row.count;
}

// int64 on the device of `like`.
at::Tensor make_indices(SessionState& session, const at::Tensor& like, c10::SymIntArrayRef sizes,
                        c10::SymIntArrayRef strides, const c10::SymInt& bytes) {
  const c10::Device device = as_fake(like)->fake_device();
  at::Tensor made = session.make(make_storage(bytes), keys_for(device, c10::InferenceMode::is_enabled()),
                                 caffe2::TypeMeta::Make<int64_t>(), device);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

std::optional<c10::SymInt> bytes_of(SessionState& session, const c10::SymInt& count, int64_t each) {
  UnbackedSizes& numbers = session.unbacked_sizes();
  const Expression bytes = numbers.environment.scale(numbers.of(count), each * static_cast<int64_t>(sizeof(int64_t)));
  return bytes != nullptr ? numbers.number(bytes) : std::nullopt;
}

// The positions as torch returns them: a column after the other.
std::optional<at::Tensor> nonzero(SessionState& session, const at::Tensor& tensor) {
  const std::optional<c10::SymInt> count = count_of(session, tensor);
  if (!count || !count->is_heap_allocated()) return std::nullopt;
  const std::optional<c10::SymInt> bytes = bytes_of(session, *count, tensor.dim());
  if (!bytes) return std::nullopt;
  return make_indices(session, tensor, {*count, tensor.dim()}, {1, *count}, *bytes);
}

// x[mask] as x[i, j, ...] with positions for each dimension of the mask.
bool index(const Call& call) {
  SessionState& session = call.session;
  const at::Tensor& self = call.arguments()[0].toTensor();
  c10::List<std::optional<at::Tensor>> positions;
  int64_t dimension = 0;
  for (const std::optional<at::Tensor> index : call.arguments()[1].toOptionalTensorList()) {
    const bool is_given = index.has_value() && index->defined();
    if (!is_given || at::isIntegralType(index->scalar_type(), /*includeBool=*/false)) {
      if (is_given && (as_fake(*index) == nullptr || index->scalar_type() == at::kByte)) return false;
      positions.push_back(index);
      dimension++;
      continue;
    }
    if (index->scalar_type() != at::kBool || index->dim() == 0 || as_fake(*index) == nullptr) return false;
    UnbackedSizes& numbers = session.unbacked_sizes();
    for (int64_t d = 0; d < index->dim(); d++, dimension++) {
      if (dimension >= self.dim()) return false;
      const Expression size = numbers.of(index->sym_size(d));
      if (size == nullptr || size != numbers.of(self.sym_size(dimension))) return false;
    }
    const std::optional<c10::SymInt> count = count_of(session, *index);
    if (!count || !count->is_heap_allocated()) return false;
    numbers.note_size(numbers.of(*count));
    const std::optional<c10::SymInt> bytes = bytes_of(session, *count, 1);
    if (!bytes) return false;
    for (int64_t d = 0; d < index->dim(); d++)
      positions.push_back(make_indices(session, *index, {*count}, {1}, *bytes));
  }
  torch::jit::Stack stack{self, std::move(positions)};
  const Call integers{session, call.op, call.handle, call.keys, stack, call.device};
  // A mask selects nothing that is not there.
  if (!compute_with_stand_ins(integers, Failing::kCannot)) return false;
  call.stack.resize(call.stack.size() - call.op.argument_count);
  call.stack.insert(call.stack.end(), stack.begin(), stack.end());
  return true;
}

c10::OperatorHandle named(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

}  // namespace

bool compute_counted(const Call& call) {
  static const c10::OperatorHandle kIndex = named("aten::index", "Tensor"), kNonzero = named("aten::nonzero", "");
  const py::gil_scoped_acquire gil;
  if (call.handle == kIndex) return as_fake(call.arguments()[0].toTensor()) != nullptr && index(call);
  if (call.handle != kNonzero) return false;
  const std::optional<at::Tensor> positions = nonzero(call.session, call.arguments()[0].toTensor());
  if (!positions) return false;
  call.stack.resize(call.stack.size() - call.op.argument_count);
  call.stack.emplace_back(*positions);
  return true;
}

}  // namespace alternator::fake
