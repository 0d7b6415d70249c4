// alternator._C.fake
#include "bindings/bindings.h"
#include "fake/error_type.h"
#include "fake/fake.h"
#include "fake/flags.h"
#include "fake/functorch_state.h"
#include "fake/op_table.h"
#include "fake/python_calls.h"
#include "fake/storage.h"
#include "fake/tensor_impl.h"
#include "py/error.h"
#include "py/exception_frames.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace alternator {
namespace {

namespace py = pybind11;
using namespace fake;

// `with session:` on the thread that enters it.
class PySession {
 public:
  PySession(bool lift_real_tensors, bool copy_attributes)
      : session_(Options{lift_real_tensors ? RealTensors::Lift : RealTensors::Refuse, copy_attributes}) {}

  Session& session() { return session_; }
  void enter() { active_.push_back(std::make_unique<Active>(session_)); }
  void exit() {
    if (active_.empty()) throw py::value_error("the session is not active");
    active_.pop_back();
  }

 private:
  Session session_;
  std::vector<std::unique_ptr<Active>> active_;
};

// In C++, so that no KeyboardInterrupt arrives between an exception and the restoration. One object serves all threads
// and nested `with` statements.
class ThreadKept {
 public:
  void enter() { entered().emplace_back(); }
  bool exit(const py::object&, const py::object& error, const py::object&) {
    if (entered().empty()) return false;
    const TransformsAsBefore before = std::move(entered().back());
    entered().pop_back();
    if (error.is_none()) return false;
    // Torch context managers that were entered and not exited would be exited when the exception dies.
    if (PyErr_GivenExceptionMatches(error.ptr(), PyExc_Exception) == 0) end_frames(error.ptr());
    before.restore();
    return false;
  }

 private:
  static std::vector<TransformsAsBefore>& entered() {
    static thread_local std::vector<TransformsAsBefore> all;
    return all;
  }
};

const at::Tensor& unpack(const py::handle& object) {
  if (!THPVariable_Check(object.ptr())) throw py::type_error("expected a torch.Tensor");
  return THPVariable_Unpack(object.ptr());
}

py::object wrap(const at::Tensor& tensor) { return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)); }

// Translates our errors (and torch's) to Python exceptions of their own classes.
template <class Body>
auto translated(Body&& body) {
  return [body = std::forward<Body>(body)]<class... Arguments>(Arguments&&... arguments) {
    try {
      return body(std::forward<Arguments>(arguments)...);
    } catch (Error& error) {
      PyErr_SetString(error.python_type(), error.what());
      throw py::error_already_set();
    } catch (const PyError&) {
      throw py::error_already_set();
    }
  };
}

py::object kind_of(const std::string& name, const std::string& overload) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle) return py::none();
  return py::str(name_of(op_of(*handle).kind));
}

// UntypedStorage.is_shared reads the data pointer and does not catch the exception of a fake's storage: the process
// would terminate. No other method of that class does this.
void protect_is_shared() {
  const py::object type = py::module_::import("torch").attr("UntypedStorage");
  const py::object original = type.attr("is_shared");
  type.attr("is_shared") = py::cpp_function(
      [original](const py::object& self) -> py::object {
        const auto* storage = reinterpret_cast<const c10::StorageImpl*>(self.attr("_cdata").cast<uintptr_t>());
        return data_forbidden(*storage) ? py::object(py::bool_(false)) : original(self);
      },
      py::is_method(type), py::name("is_shared"));
}

}  // namespace

void bind_fake(py::module_& module) {
  protect_is_shared();
  for (const auto& [kind, name] : {std::pair<std::optional<FailureKind>, const char*>{std::nullopt, "FakeError"},
                                   {FailureKind::DataDependent, "DataDependentError"},
                                   {FailureKind::Unsupported, "UnsupportedError"},
                                   {FailureKind::RealTensor, "RealTensorError"},
                                   {FailureKind::Escaped, "EscapedError"}}) {
    module.attr(name) = py::reinterpret_borrow<py::object>(error_class(kind));
  }
  py::class_<PySession>(module, "Session", "The tensors of one trace. `with session:` makes it this thread's.")
      .def(py::init<bool, bool>(), py::kw_only(), py::arg("lift_real_tensors") = false,
           py::arg("copy_attributes") = true)
      .def("__enter__",
           [](py::object self) {
             self.cast<PySession&>().enter();
             return self;
           })
      .def("__exit__", [](PySession& self, const py::args&) { self.exit(); })
      .def("fake_of",
           [](PySession& self, const py::object& real) {
             unpack(real);
             return translated([&] {
               return py::reinterpret_steal<py::object>(self.session().fake_of(Borrowed(real.ptr())).release());
             })();
           })
      .def("real_of",
           [](PySession& self, const py::object& fake) -> py::object {
             const at::Tensor real = self.session().real_of(unpack(fake));
             return real.defined() ? wrap(real) : py::none();
           })
      .def("constant",
           [](PySession& self, const py::object& value) { return wrap(self.session().constant(unpack(value))); })
      .def("known_value",
           [](PySession& self, const py::object& fake) -> py::object {
             const std::optional<at::Tensor> value = self.session().known_value(unpack(fake));
             return value ? wrap(*value) : py::none();
           })
      .def_property_readonly("failure",
                             [](PySession& self) -> py::object {
                               const Failure* failure = self.session().failure();
                               if (failure == nullptr) return py::none();
                               return py::make_tuple(py::reinterpret_borrow<py::object>(error_class(failure->kind)),
                                                     failure->op, failure->reason);
                             })
      .def("clear_failure", [](PySession& self) { self.session().clear_failure(); })
      .def_property_readonly("counts",
                             [](PySession& self) {
                               const Session::Counts counts = self.session().counts();
                               py::dict result;
                               result["operators"] = counts.operators;
                               result["python_metas"] = counts.python_metas;
                               result["fake_tensor_mode"] = counts.fake_tensor_mode;
                               return result;
                             })
      .def("answer_method",
           [](PySession& self, const py::object& function, const py::tuple& arguments, const py::dict& keywords) {
             return translated([&]() -> py::object {
               Ref answer = answer_method(self.session(), function.ptr(), arguments.ptr(), keywords.ptr());
               return answer ? py::reinterpret_steal<py::object>(answer.release())
                             : py::reinterpret_borrow<py::object>(Py_NotImplemented);
             })();
           })
      .def_property_readonly("id", [](PySession& self) { return self.session().id(); });

  py::class_<Flags>(module, "Flags", "Process-wide torch flags.")
      .def_static("now", &Flags::now, "The current flags; None: torch cannot report them.")
      .def("apply", &Flags::apply)
      .def_static("setters", [] {
        std::vector<std::string> names;
        for (const FlagRow& row : Flags::rows()) names.emplace_back(row.setter);
        return names;
      });
  py::class_<ThreadKept>(module, "ThreadKept",
                         "Restores torch's thread state if its `with` statement exits with an exception.")
      .def(py::init<>())
      .def("__enter__", &ThreadKept::enter)
      .def("__exit__", &ThreadKept::exit);
  module.def("is_fake", [](const py::object& tensor) { return is_fake(unpack(tensor)); });
  module.def("session_of", [](const py::object& tensor) { return session_of(unpack(tensor)); });
  module.def(
      "describe", [](const py::object& tensor) { return describe(unpack(tensor)); },
      "A description of a fake, without its data.");
  module.def(
      "keys", [](const py::object& tensor) { return c10::toString(unpack(tensor).key_set()); },
      "Dispatch keys, for debugging.");
  module.def("kernel_kind", &kind_of, py::arg("name"), py::arg("overload") = "",
             "How an operator's metadata is found.");
}

}  // namespace alternator
