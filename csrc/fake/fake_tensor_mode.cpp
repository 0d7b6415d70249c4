// The last resort: runs one operator in torch's FakeTensorMode, on FakeTensors made from our fakes.
#include "fake/fake_errors.h"
#include "fake/kernels.h"
#include "fake/op_arguments.h"
#include "fake/python_modes.h"

#include "py/error.h"
#include "py/lasting.h"

#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace alternator::fake {
namespace {

namespace py = pybind11;

struct Imports {
  py::object fake_tensor, fake_tensor_mode, device, data_dependent, dynamic_shape, unsupported_operator;
};

// Never freed: they may be used until the interpreter exits.
const Imports& imports() {
  static constinit Lasting<const Imports*> made;
  return *made.get([] {
    const py::module_ torch = py::module_::import("torch");
    const py::module_ subclasses = py::module_::import("torch._subclasses.fake_tensor");
    return new Imports{subclasses.attr("FakeTensor"),
                       subclasses.attr("FakeTensorMode"),
                       torch.attr("device"),
                       subclasses.attr("DataDependentOutputException"),
                       subclasses.attr("DynamicOutputShapeException"),
                       subclasses.attr("UnsupportedOperatorException")};
  });
}

py::object python_device(c10::Device device) { return imports().device(py::str(device.str())); }

at::Tensor to_fake_tensor(const py::object& mode, const at::Tensor& tensor, c10::Device device) {
  at::Tensor meta =
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta).requires_grad(false));
  return make_fake_tensor(mode, meta, device);
}

// A result of FakeTensorMode as a fake of ours.
at::Tensor from_fake_tensor(const SessionState& session, const at::Tensor& found) {
  refuse_other_kinds(found);
  const c10::Device device = device_of_fake_tensor(found);
  at::Tensor meta =
      at::empty_strided(found.sizes(), found.strides(), found.options().device(c10::kMeta).requires_grad(false));
  return session.adopt(meta, device);
}

}  // namespace

py::object make_fake_tensor_mode(const py::object& shape_env) {
  return imports().fake_tensor_mode(py::arg("shape_env") = shape_env);
}

at::Tensor make_fake_tensor(const py::object& mode, const at::Tensor& meta, c10::Device device) {
  const py::object made =
      imports().fake_tensor(mode, py::reinterpret_steal<py::object>(THPVariable_Wrap(meta)), python_device(device));
  return THPVariable_Unpack(made.ptr());
}

c10::Device device_of_fake_tensor(const at::Tensor& tensor) {
  return with_index(
      py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)).attr("fake_device").cast<c10::Device>());
}

py::object call_in_mode(const py::object& mode, const c10::OperatorHandle& handle, const torch::jit::Stack& arguments) {
  py::list positional;
  py::dict keywords;
  const auto& schema = handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    // A scalar that torch has wrapped in a tensor is unwrapped.
    const bool is_number = arguments[i].isTensor() && arguments[i].toTensor().defined() &&
                           arguments[i].toTensor().device().is_cpu() &&
                           arguments[i].toTensor().unsafeGetTensorImpl()->is_wrapped_number() &&
                           !arguments[i].toTensor().unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
    py::object value = is_number ? py::cast(arguments[i].toTensor().item()) : torch::jit::toPyObject(arguments[i]);
    if (schema[i].kwarg_only())
      keywords[schema[i].name().c_str()] = value;
    else
      positional.append(value);
  }
  const py::object function = py::reinterpret_borrow<py::object>(torch::detail::getTorchApiFunction(handle));
  mode.attr("__enter__")();
  py::object result;
  try {
    result = function(*py::tuple(positional), **keywords);
  } catch (...) {
    mode.attr("__exit__")(py::none(), py::none(), py::none());
    throw;
  }
  mode.attr("__exit__")(py::none(), py::none(), py::none());
  return result;
}

bool is_data_dependent(const py::error_already_set& error) {
  return error.matches(imports().data_dependent) || error.matches(imports().dynamic_shape);
}

bool is_unsupported(const py::error_already_set& error) {
  return error.matches(imports().unsupported_operator) || error.matches(PyExc_NotImplementedError);
}

void return_results(const Call& call, const py::object& result,
                    const std::function<std::optional<at::Tensor>(const at::Tensor&)>& back) {
  torch::jit::Stack outputs;
  const auto& returns = call.handle.schema().returns();
  if (returns.size() == 1) {
    outputs.push_back(torch::jit::toIValue(result, returns[0].type()));
  } else {
    const py::tuple items(result);
    for (size_t i = 0; i < returns.size(); i++) outputs.push_back(torch::jit::toIValue(items[i], returns[i].type()));
  }
  replace_tensors(outputs.data(), outputs.size(),
                  [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> { return back(tensor); });
  call.stack.resize(call.stack.size() - call.op.argument_count);
  call.stack.insert(call.stack.end(), outputs.begin(), outputs.end());
}

bool compute_in_fake_tensor_mode(const Call& call) {
  // A view would have to share its storage, a mutated argument to change its metadata: neither can be transferred back.
  if (call.op.returns_view || call.op.mutates) return false;
  const py::gil_scoped_acquire gil;
  try {
    const OutsideSession outside;
    const py::object mode = make_fake_tensor_mode(py::none());
    torch::jit::Stack arguments(call.arguments(), call.arguments() + call.op.argument_count);
    replace_tensors(arguments.data(), arguments.size(),
                    [&](const at::Tensor& tensor, size_t) -> std::optional<at::Tensor> {
                      const FakeTensorImpl* fake = as_fake(tensor);
                      if (fake == nullptr) return std::nullopt;
                      return to_fake_tensor(mode, tensor, fake->fake_device());
                    });
    const py::object result = call_in_mode(mode, call.handle, arguments);

    return_results(call, result, [&](const at::Tensor& tensor) { return from_fake_tensor(call.session, tensor); });
    return true;
  } catch (const py::error_already_set& error) {
    if (is_data_dependent(error))
      fail(FailureKind::DataDependent, call.op.name, "the result depends on the data of a tensor");
    if (is_unsupported(error)) return false;
    throw;
  }
}

}  // namespace alternator::fake
