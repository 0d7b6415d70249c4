#include "trace/numpy/array_conversions.h"
#include "trace/core/tracer.h"
#include "trace/numpy/array_nodes.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/record/torch_types.h"
#include "graph/record/without_torch_functions.h"
#include "py/import.h"
#include "py/lasting.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace alternator::trace {

namespace {

constexpr Py_ssize_t kMostTensorElements = 1 << 14;  // embedded in a graph

// torch's functions that make a tensor of an array, and the method that makes an array of a tensor.
struct Conversions {
  PyObject *tensor, *as_tensor, *from_numpy, *numpy;
};

const Conversions& conversions() {
  static constinit Lasting<Conversions> lasting;
  return lasting.get([] {
    auto of = [](Borrowed owner, const char* name) {
      return checked(PyObject_GetAttrString(owner.get(), name)).release();
    };
    Ref torch = import_module("torch");
    return Conversions{of(torch, "tensor"), of(torch, "as_tensor"), of(torch, "from_numpy"),
                       of(THPVariableClass, "numpy")};
  });
}

// Builtins of torch are bound again on each look-up.
bool is_same(Borrowed callable, PyObject* function) {
  if (!PyCFunction_Check(callable.get()) || !PyCFunction_Check(function)) return callable == Borrowed(function);
  return callable.as<PyCFunctionObject>()->m_ml == reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
}

bool has_type_of_arrays(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
      return true;
    default:
      return false;
  }
}

bool has_canonical_strides(Borrowed array) {
  const lift::ArrayFields& fields = lift::fields_of(array);
  Py_ssize_t stride = lift::element_size(array);
  for (int i = fields.dimensions; i-- > 0;) {
    if (fields.strides[i] != stride) return false;
    stride *= fields.shape[i];
  }
  return true;
}

// Nothing else refers to the array's memory: only the current call holds it.
bool is_last_user(Borrowed array) {
  Borrowed owner = lift::array_owner(array);
  return owner && Py_REFCNT(array.get()) == 1 && (owner == array || Py_REFCNT(owner.get()) == 1);
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  stop(report::Reason::native_call, name + " of an array " + why);
}

}  // namespace

Ref make_example_array(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); i++) last += (sizes[i] - 1) * strides[i];
  const fake::Inactive inactive;
  const fake::WithoutTransforms untransformed;
  const at::Tensor memory = at::zeros({std::max<int64_t>(last + 1, 1)}, at::TensorOptions(at::kCPU).dtype(type));
  const at::Tensor tensor = memory.as_strided(sizes, strides);
  const graph::WithoutTorchFunctions without_functions;
  return checked(PyObject_CallMethod(Ref::steal(THPVariable_Wrap(tensor)).get(), "numpy", nullptr));
}

Ref torch_type(Tracer& t, Borrowed array) {
  const Paused paused(t);  // numpy computes the name in Python code
  Ref name = checked(PyObject_GetAttrString(lift::fields_of(array).dtype, "name"));
  const char* text = PyUnicode_AsUTF8(name.get());
  if (text == nullptr) throw PyError();
  static constexpr std::string_view kNames[] = {"bool",  "int8",    "int16",   "int32",  "int64",
                                                "uint8", "float16", "float32", "float64"};
  const bool is_known = std::find(std::begin(kNames), std::end(kNames), text) != std::end(kNames);
  return is_known ? graph::torch_name("torch", text) : Ref();
}

// --- arrays of tensors ----------------------------------------------------------------------------------------------

Ref array_of_tensor(Tracer& t, Borrowed callable, Borrowed tensor) {
  if (!graph::is_tensor(tensor) || t.is_transformed() || t.recorder.is_silent() || t.function_modes->is_active() ||
      t.torch_functions->is_overridden(tensor) || tensor.type() != reinterpret_cast<PyTypeObject*>(THPVariableClass))
    return {};
  const at::Tensor& fake = fake::unpack(tensor.get());
  if (!fake::is_fake(fake) || fake::is_wrapped(fake) || !fake.device().is_cpu() || fake.layout() != at::kStrided ||
      fake.requires_grad() || fake.is_conj() || fake.is_neg() || !has_type_of_arrays(fake) ||
      fake.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || fake.numel() > kMostExampleElements ||
      t.session.known_value(fake) || t.recorder.is_checkpointed()) {
    return {};
  }
  Ref array = [&] {
    const Paused paused(t);
    return make_example_array(fake.sizes(), fake.strides(), fake.scalar_type());
  }();
  if (!lift::is_number_array(array.get())) return {};
  PyObject* arguments[] = {tensor.get()};
  t.lifter.symbolic_arrays.add(array);
  t.recorder.note_array_call(callable, arguments, 1, {}, Ref(array), false);
  return array;
}

Ref numpy_of_tensor(Tracer& t, const Call& call) {
  if (!call.has_positional(0) || !PyCFunction_Check(call.callable.get())) return {};
  Borrowed method = conversions().numpy;
  if (call.callable.as<PyCFunctionObject>()->m_ml != method.as<PyMethodDescrObject>()->d_method) return {};
  return array_of_tensor(t, method, PyCFunction_GET_SELF(call.callable.get()));
}

// --- tensors of concrete arrays -------------------------------------------------------------------------------------

namespace {

// A call that makes a tensor of a concrete array.
struct Conversion {
  const std::string& name;
  bool from_numpy, copies;  // it is torch.from_numpy, torch.tensor
  Ref array;
  bool is_number;  // a numpy scalar was given
  bool last_use;   // nothing else refers to the array
  bool preexisting = false;
  Ref type = {};        // of the tensor
  bool shares = false;  // memory with the array
};

void check_array(Tracer& t, Conversion* made) {
  // A user's torch-function mode (a default device is one) would see other functions than these.
  if (at::impl::PythonTorchFunctionTLS::stack_len() != 1) refuse(made->name, "under a torch-function mode");
  made->type = torch_type(t, made->array);
  if (!made->type) refuse(made->name, "whose type torch does not have");
  if (lift::element_count(made->array) > kMostTensorElements) refuse(made->name, "that is large");
  Borrowed owner = lift::array_owner(made->array);
  made->preexisting = owner && t.lifter.known(owner) != nullptr;
}

// The keyword arguments of the call that is recorded.
struct Keywords {
  std::vector<const char*> names;
  std::vector<Ref> values;
  void add(const char* name, Ref value) {
    names.push_back(name);
    values.push_back(std::move(value));
  }
};

Keywords take_keywords(const Call& call, Conversion* made) {
  using namespace std::string_view_literals;
  Keywords keywords;
  for (size_t i = 0; i < call.keywords(); i++) {
    const char* keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i)));
    if (keyword == nullptr) throw PyError();
    PyObject* value = call.arguments[call.positional + i];
    const bool is_known =
        keyword == "dtype"sv || keyword == "device"sv || (made->copies && keyword == "requires_grad"sv);
    if (made->from_numpy || !is_known) refuse(made->name, std::string("with ") + keyword);
    if (value == Py_None) continue;
    if (keyword == "dtype"sv) {
      made->shares = made->shares && value == made->type.get();
      made->type = Ref::share(value);
      continue;
    }
    keywords.add(keyword, Ref::share(value));
  }
  if (made->from_numpy) keywords.add("device", checked(PyUnicode_FromString("cpu")));
  keywords.add("dtype", Ref(made->type));
  return keywords;
}

Ref record_tensor(Tracer& t, const Conversion& made, const Keywords& keywords, bool is_empty, bool has_zero_stride) {
  std::vector<PyObject*> given = {nullptr};
  Ref data =
      is_empty ? checked(Py_BuildValue("(i)", 0)) : checked(PyObject_CallMethod(made.array.get(), "tolist", nullptr));
  Ref stride = is_empty ? checked(Py_BuildValue("(i)", has_zero_stride ? 0 : 1)) : Ref();
  given.push_back(data.get());
  if (is_empty) given.push_back(stride.get());
  const size_t positional = given.size() - 1;
  Ref names = checked(PyTuple_New(static_cast<Py_ssize_t>(keywords.names.size())));
  for (size_t i = 0; i < keywords.names.size(); i++) {
    PyTuple_SET_ITEM(names.get(), static_cast<Py_ssize_t>(i),
                     checked(PyUnicode_InternFromString(keywords.names[i])).release());
    given.push_back(keywords.values[i].get());
  }
  return call_torch(
      t, {graph::torch_name("torch", is_empty ? "empty_strided" : "tensor"), given.data() + 1, positional, names});
}

}  // namespace

// torch.tensor(array) copies, torch.from_numpy(array) and torch.as_tensor(array) share the memory: here that is a copy
// too, so no write to either may be observable through the other (see shared_changed()).
Ref tensor_of_array(Tracer& t, const Call& call, const std::string& name) {
  const bool from_numpy = is_same(call.callable, conversions().from_numpy),
             copies = is_same(call.callable, conversions().tensor);
  if ((!from_numpy && !copies && !is_same(call.callable, conversions().as_tensor)) || call.positional != 1) return {};
  PyObject* argument = call.arguments[0];
  const bool is_number = lift::is_numpy_number(argument) && !from_numpy;
  if (!is_number && !lift::is_array(argument)) return {};
  Conversion made{name, from_numpy, copies, {}, is_number, lift::is_array(argument) && is_last_user(argument)};
  made.array = Ref::share(argument);
  if (is_number) {
    const Paused paused(t);
    made.array = checked(PyObject_CallOneArg(graph::torch_name("numpy", "asarray").get(), argument));
  }
  check_array(t, &made);
  Borrowed array = made.array, owner = lift::array_owner(array);
  // numpy gives empty arrays zero strides, and torch keeps them.
  const bool is_empty = lift::element_count(array) == 0 && lift::fields_of(array).dimensions == 1;
  const bool has_zero_stride = is_empty && lift::fields_of(array).strides[0] == 0;
  if (!owner || (lift::element_count(array) == 0 && !is_empty) || !(has_zero_stride || has_canonical_strides(array)))
    refuse(name, "with non-contiguous strides");
  made.shares = !copies && !is_number;
  if (made.shares && !made.preexisting && !lift::is_writeable(array)) refuse(name, "that is read-only");
  const Keywords keywords = take_keywords(call, &made);
  Ref tensor = record_tensor(t, made, keywords, is_empty, has_zero_stride);
  if (made.shares && (made.preexisting || !made.last_use)) {
    if (t.deferred->points.empty()) {
      t.deferred->points = t.points_here();
      t.deferred->event = t.event_here(report::Reason::native_call, name + ": the tensor and the array share memory");
    }
    const lift::ArrayFields& memory = lift::fields_of(owner);
    const auto size = static_cast<size_t>(lift::element_count(owner) * lift::element_size(owner));
    t.arrays->shared.push_back({Ref::share(owner), std::string(memory.data, size), Ref(tensor),
                                t.recorder.program().nodes.size(), made.preexisting});
  }
  return tensor;
}

// --- tensors of symbolic arrays -------------------------------------------------------------------------------------

Ref tensor_of_symbolic(Tracer& t, const Call& call, const std::string& name) {
  using namespace std::string_view_literals;
  Borrowed array = call.arguments[0];
  const bool copies = is_same(call.callable, conversions().tensor);
  const bool is_known =
      copies || is_same(call.callable, conversions().from_numpy) || is_same(call.callable, conversions().as_tensor);
  if (call.positional != 1 || !is_known) refuse(name, "that is computed from a tensor");
  if (t.is_transformed() || t.recorder.is_silent() || t.recorder.is_checkpointed())
    refuse(name, "inside a transform or a checkpoint");
  if (at::impl::PythonTorchFunctionTLS::stack_len() != 1) refuse(name, "under a torch-function mode");
  t.array_nodes->note_symbolic_array(array, name);
  Ref type = torch_type(t, t.lifter.symbolic_arrays.stand_in(array));
  if (!type) refuse(name, "whose type torch does not have");
  const lift::ArrayFields& fields = lift::fields_of(t.lifter.symbolic_arrays.stand_in(array));
  if (!lift::is_writeable(array)) refuse(name, "that is read-only");
  const Py_ssize_t size = lift::element_size(array);
  std::vector<int64_t> sizes, strides;
  for (int i = 0; i < fields.dimensions; i++) {
    if (fields.shape[i] == 0 || fields.strides[i] < 0 || fields.strides[i] % size != 0)
      refuse(name, "with strides that torch does not support");
    sizes.push_back(fields.shape[i]);
    strides.push_back(fields.strides[i] / size);
  }
  const at::ScalarType own_type = reinterpret_cast<THPDtype*>(type.get())->scalar_type;
  at::ScalarType wanted = own_type;
  std::vector<PyObject*> given = {nullptr, array.get()};
  for (size_t i = 0; i < call.keywords(); i++) {
    const char* keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(call.keyword_names.get(), static_cast<Py_ssize_t>(i)));
    if (keyword == nullptr) throw PyError();
    PyObject* value = call.arguments[call.positional + i];
    given.push_back(value);
    if (value == Py_None) continue;
    if (keyword != "dtype"sv || !THPDtype_Check(value)) refuse(name, std::string("with ") + keyword);
    wanted = reinterpret_cast<THPDtype*>(value)->scalar_type;
  }
  at::Tensor fake = at::empty_strided(sizes, strides, at::TensorOptions(at::kCPU).dtype(own_type));
  if (copies || wanted != own_type) fake = fake.to(wanted, /*non_blocking=*/false, /*copy=*/true);
  Ref tensor = checked(THPVariable_Wrap(fake));
  t.recorder.note_array_call(call.callable, given.data() + 1, 1, call.keyword_names, Ref(tensor), false);
  return tensor;
}

}  // namespace alternator::trace
