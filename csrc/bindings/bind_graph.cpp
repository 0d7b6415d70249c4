// alternator._C.graph
#include "bindings/bindings.h"
#include "fake/fake.h"
#include "graph/export/fx_export.h"
#include "graph/export/fx_graph.h"
#include "graph/record/node_effects.h"
#include "graph/record/program_text.h"
#include "graph/record/record_error.h"
#include "graph/record/recorder.h"
#include "graph/record/torch_types.h"
#include "graph/run/program_runner.h"

#include <torch/csrc/utils/pybind.h>

namespace alternator {
namespace {

namespace py = pybind11;
using namespace graph;

py::object take(Ref object) { return py::reinterpret_steal<py::object>(object.release()); }
py::object lend(Borrowed object) { return py::reinterpret_borrow<py::object>(object.get()); }

const at::Tensor& tensor_of(const py::handle& object) {
  if (!is_tensor(object.ptr())) throw py::type_error("expected a torch.Tensor");
  return as_tensor(object.ptr());
}

// Translates our errors to Python exceptions.
template <class Body>
auto with_python_errors(Body&& body) {
  try {
    return with_torch_errors(body);
  } catch (const PyError&) {
    throw py::error_already_set();
  }
}

// A finished program and what was made from it.
struct PyProgram {
  std::unique_ptr<Program> program;
  std::unique_ptr<Replay> replay;

  explicit PyProgram(std::unique_ptr<Program> finished)
      : program(std::move(finished)), replay(std::make_unique<Replay>(*program)) {}
};

// A recorder with its own session.
struct PyRecorder {
  fake::Session session;
  Recorder recorder;

  explicit PyRecorder(bool lines) : recorder(session, lines ? std::make_unique<PythonStack>() : nullptr) {}
};

py::list nodes_of(const Program& program) {
  py::list nodes;
  for (const Node& node : program.nodes) {
    py::dict row;
    row["callable"] = lend(node.callable);
    row["name"] = callable_name(node.callable);
    row["live"] = node.live;
    row["mutates"] = (node.effects & kMutates) != 0;
    row["random"] = (node.effects & kRandom) != 0;
    row["acts"] = (node.effects & (kActs | kChecks)) != 0;
    row["line"] = node.site == kNowhere ? py::object(py::none()) : py::int_(program.sites.line(node.site));
    nodes.append(row);
  }
  return nodes;
}

// recorder.call(callable, *args, **kwargs): the direct entry point, as used by the tracing loop.
PyObject* recorder_call(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                        PyObject* keyword_names) noexcept {
  return guarded([&]() -> Ref {
    if (count < 1) {
      PyErr_SetString(PyExc_TypeError, "call(callable, *args, **kwargs)");
      throw PyError();
    }
    auto& recorder = py::handle(self).cast<PyRecorder&>().recorder;
    return with_torch_errors([&] { return recorder.call(arguments[0], arguments + 1, count - 1, keyword_names); });
  });
}
PyMethodDef call_definition = {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(recorder_call)),
                               METH_FASTCALL | METH_KEYWORDS, "Makes a torch call and records it."};

}  // namespace

void bind_graph(py::module_& module) {
  module.attr("RecordError") = lend(record_error_class());
  module.def(
      "use_slow_fx", [](bool slow) { FxGraph::use_slow_path = slow; }, "For tests: build nodes by Graph.create_node.");

  py::class_<PyProgram>(module, "Program", "A recorded program.")
      .def("replay",
           [](PyProgram& self, const py::args& inputs) {
             return with_python_errors(
                 [&] { return take(self.replay->run(&PyTuple_GET_ITEM(inputs.ptr(), 0), inputs.size())); });
           })
      .def_property_readonly("inputs",
                             [](PyProgram& self) {
                               py::list inputs;
                               for (uint32_t i : self.program->inputs) {
                                 const Input& input = self.program->declared[i];
                                 inputs.append(py::make_tuple(lend(input.label), lend(input.source)));
                               }
                               return inputs;
                             })
      .def(
          "to_fx",
          [](PyProgram& self, const py::object& fake_mode, const py::object& example_inputs,
             const py::object& module_paths) {
            return with_python_errors([&] {
              return take(export_fx(*self.program, {.fake_mode = fake_mode.ptr(),
                                                    .example_inputs = example_inputs.ptr(),
                                                    .module_paths = module_paths.ptr()}));
            });
          },
          py::kw_only(), py::arg("fake_mode") = py::none(), py::arg("example_inputs") = py::none(),
          py::arg("module_paths") = py::none(), "The program as a torch.fx.GraphModule.")
      .def(
          "unflatten",
          [](PyProgram& self, const py::sequence& outputs) {
            return with_python_errors([&] { return take(unflatten(*self.program, outputs.ptr())); });
          },
          "What the program returns, given the tensors that its graph returned.")
      .def_property_readonly("output_count", [](PyProgram& self) { return self.program->outputs.size(); })
      .def("__str__", [](PyProgram& self) { return program_text(*self.program); })
      .def_property_readonly("nodes", [](PyProgram& self) { return nodes_of(*self.program); });

  py::class_<PyRecorder> recorder(module, "Recorder",
                                  "Records torch calls on fakes. `with recorder:` begins and ends.");
  recorder.def(py::init<bool>(), py::kw_only(), py::arg("lines") = true)
      .def(
          "fake_of",
          [](PyRecorder& self, const py::object& real, const py::object& label) {
            tensor_of(real);
            return with_python_errors([&] {
              Ref fake = self.session.fake_of(Borrowed(real.ptr()));
              self.recorder.declare(as_tensor(fake), label.ptr(), real.ptr());
              return take(std::move(fake));
            });
          },
          py::arg("real"), py::arg("label") = py::none())
      .def("__enter__",
           [](py::object self) {
             self.cast<PyRecorder&>().recorder.begin();
             return self;
           })
      .def("__exit__", [](PyRecorder& self, const py::args&) { self.recorder.end(); })
      .def("enter_module", [](PyRecorder& self, const py::object& object) { self.recorder.enter_module(object.ptr()); })
      .def("leave_module", [](PyRecorder& self) { self.recorder.leave_module(); })
      .def("finish", [](PyRecorder& self, const py::object& result) {
        return with_python_errors([&] { return std::make_unique<PyProgram>(self.recorder.finish(result.ptr())); });
      });
  // pybind11's own functions build a tuple and a dict for every call.
  py::object call = take(checked(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(recorder.ptr()), &call_definition)));
  recorder.attr("call") = call;
}

}  // namespace alternator
