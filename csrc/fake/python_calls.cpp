#include "fake/python_calls.h"

#include "fake/fake_errors.h"
#include "fake/session.h"
#include "fake/storage.h"

#include "py/error.h"
#include "py/lasting.h"

#include <torch/csrc/autograd/python_variable.h>

#include <sstream>
#include <unordered_map>

namespace alternator::fake {
namespace {

namespace py = pybind11;
using Handler = py::object (*)(Session&, const py::tuple&, const py::dict&);

const at::Tensor& self_of(const py::tuple& arguments) { return THPVariable_Unpack(arguments[0].ptr()); }
py::object wrap(const at::Tensor& tensor) { return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)); }

[[noreturn]] void refuse(const char* method) {
  fail(FailureKind::DataDependent, std::string("Tensor.") + method, "the result depends on the data of a tensor");
}

// x.new_tensor(data, ...): torch.tensor of x's dtype and device.
py::object new_tensor(Session&, const py::tuple& arguments, const py::dict& keywords) {
  py::dict options(keywords);  // shares the dict: copy before writing
  options = py::dict(options.attr("copy")());
  py::object data;
  if (arguments.size() > 1) {
    data = arguments[1];
  } else {
    data = options.attr("pop")("data");
  }
  for (const char* name : {"dtype", "device"}) {
    if (!options.contains(name) || options[name].is_none()) options[name] = arguments[0].attr(name);
  }
  return py::module_::import("torch").attr("tensor")(data, **options);
}

// x.new(sizes...) or x.new(data): the old spelling of new_empty and new_tensor.
py::object new_legacy(Session& session, const py::tuple& arguments, const py::dict& keywords) {
  const py::tuple rest = arguments[py::slice(1, py::ssize_t(arguments.size()), 1)];
  const py::object sizes = rest.size() == 1 && py::isinstance(rest[0], py::module_::import("torch").attr("Size"))
                               ? py::object(rest[0])
                               : py::object(rest);
  bool only_integers = true;
  for (const py::handle item : sizes) only_integers &= PyLong_Check(item.ptr()) != 0;
  if (only_integers)
    return arguments[0].attr("new_empty")(
        py::len(sizes) == 0 ? py::object(py::make_tuple(0)) : py::object(py::tuple(sizes)), **keywords);
  return new_tensor(session, arguments, keywords);
}

template <const char* kMethod>
py::object data_method(Session& session, const py::tuple& arguments, const py::dict& keywords) {
  const std::optional<at::Tensor> value = session.known_value(self_of(arguments));
  if (!value) refuse(kMethod);
  const Inactive inactive;
  return wrap(*value).attr(kMethod)(*py::tuple(arguments[py::slice(1, py::ssize_t(arguments.size()), 1)]), **keywords);
}
// Memory that Python and the tensor would share: a copy of a constant is not enough.
template <const char* kMethod>
py::object memory_method(Session&, const py::tuple&, const py::dict&) {
  refuse(kMethod);
}
constexpr char kToList[] = "tolist", kRepr[] = "__repr__", kStr[] = "__str__", kNumpy[] = "numpy",
               kArray[] = "__array__", kDataPtr[] = "data_ptr", kDlpack[] = "__dlpack__";

// The only memory that could be shared is that of a storage that torch does not let us read; GPU memory counts as
// shared.
py::object is_shared(Session&, const py::tuple& arguments, const py::dict&) {
  return py::bool_(as_fake(self_of(arguments))->fake_device().is_cuda());
}

py::object deepcopy(Session& session, const py::tuple& arguments, const py::dict&) {
  const at::Tensor& self = self_of(arguments);
  TORCH_CHECK(
      self.is_leaf(),
      "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.");
  py::object memo = arguments.size() > 1 ? py::object(arguments[1]) : py::object(py::dict());
  const py::object key = py::int_(reinterpret_cast<uintptr_t>(arguments[0].ptr()));
  if (memo.contains(key)) return memo[key];
  const c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const FakeTensorImpl* fake = as_fake(self);
  at::Tensor copy = session.state().make(make_storage(impl->unsafe_storage().nbytes()),
                                         keys_for(fake->fake_device(), false), impl->dtype(), fake->fake_device());
  static_cast<FakeTensorImpl*>(copy.unsafeGetTensorImpl())->copy_geometry(*impl);
  copy.unsafeGetTensorImpl()->set_requires_grad(self.requires_grad());
  py::object result = py::reinterpret_steal<py::object>(THPVariable_Wrap(copy, Py_TYPE(arguments[0].ptr())));
  memo[key] = result;
  const py::object attributes = arguments[0].attr("__dict__");
  if (py::len(attributes) != 0)
    result.attr("__dict__") = py::module_::import("copy").attr("deepcopy")(attributes, memo);
  return result;
}

// Keyed by the identity of the method object: never freed.
const std::unordered_map<PyObject*, Handler>& handlers() {
  static constinit Lasting<const std::unordered_map<PyObject*, Handler>*> made;
  return *made.get([] {
    const py::object type = py::module_::import("torch").attr("Tensor");
    auto* table = new std::unordered_map<PyObject*, Handler>;
    const std::pair<const char*, Handler> rows[] = {
        {"new_tensor", new_tensor},
        {"new", new_legacy},
        {"tolist", data_method<kToList>},
        {"__repr__", data_method<kRepr>},
        {"numpy", memory_method<kNumpy>},
        {"__array__", memory_method<kArray>},
        {"data_ptr", memory_method<kDataPtr>},
        {"__dlpack__", memory_method<kDlpack>},
        {"__deepcopy__", deepcopy},
        {"is_shared", is_shared},
    };
    for (const auto& [name, handler] : rows) table->emplace(pybind11::object(type.attr(name)).release().ptr(), handler);
    return table;
  });
}

}  // namespace

Ref answer_method(Session& session, Borrowed function, Borrowed arguments, Borrowed keywords) {
  const auto found = handlers().find(function.get());
  if (found == handlers().end()) return Ref();
  const auto positional = py::reinterpret_borrow<py::tuple>(arguments.get());
  if (positional.empty() || !THPVariable_Check(positional[0].ptr()) || as_fake(self_of(positional)) == nullptr)
    return Ref();
  const py::dict named = keywords ? py::reinterpret_borrow<py::dict>(keywords.get()) : py::dict();
  try {
    return Ref::steal(found->second(session, positional, named).release().ptr());
  } catch (py::error_already_set& error) {
    error.restore();
    throw PyError();
  }
}

std::string describe(const at::Tensor& tensor) {
  const FakeTensorImpl* fake = as_fake(tensor);
  if (fake == nullptr) return "a real tensor";
  std::ostringstream text;
  text << "tensor(..., device='" << fake->fake_device() << "', size=(";
  for (int64_t i = 0; i < tensor.dim(); i++) text << (i == 0 ? "" : ", ") << tensor.sym_size(i);
  text << (tensor.dim() == 1 ? ",)" : ")") << ", dtype=" << tensor.scalar_type();
  if (tensor.requires_grad()) {
    if (const auto& history = tensor.grad_fn())
      text << ", grad_fn=<" << history->name() << ">";
    else
      text << ", requires_grad=True";
  }
  text << ")";
  return text.str();
}

}  // namespace alternator::fake
