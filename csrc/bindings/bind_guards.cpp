// alternator._C.guards: sources, guards and guard programs built by hand, for tests, benchmarks and tools.
#include "bindings/bind_switches.h"
#include "bindings/bindings.h"
#include "guards/guard_mutants.h"
#include "guards/guard_program.h"
#include "lift/sources/source.h"
#include "lift/sources/tensor_spec.h"
#include "py/error.h"
#include "py/names.h"

#include <pybind11/stl.h>

#include <chrono>
#include <cstring>

namespace alternator {
namespace {

namespace py = pybind11;
using namespace guards;
using lift::Access;
using lift::GuardKind;
using lift::Source;

py::object lend(PyObject* object) { return py::reinterpret_borrow<py::object>(object); }
Ref shared(const py::object& object) { return object.is_none() ? Ref() : Ref::share(object.ptr()); }

template <class Kind>
Kind named(const std::string& name, const std::vector<const char*>& names) {
  for (size_t i = 0; i < names.size(); i++) {
    if (name == names[i]) return static_cast<Kind>(i);
  }
  throw py::value_error("there is no " + name);
}

Access access_named(const std::string& name) {
  static const std::vector<const char*> names = {
#define ALT_ACCESSOR(kind, text, ...) #kind,
#include "lift/sources/accessors.def"
#undef ALT_ACCESSOR
  };
  return named<Access>(name, names);
}

GuardKind guard_named(const std::string& name) {
  static const std::vector<const char*> names = {
#define ALT_GUARD(kind, sentence, ...) #kind,
#include "lift/sources/guards.def"
#undef ALT_GUARD
  };
  return named<GuardKind>(name, names);
}

// Translates our exceptions to Python ones.
template <class Body>
auto translated(Body&& body) {
  try {
    return body();
  } catch (...) {
    set_python_error();
    throw py::error_already_set();
  }
}

// A tree, then the program that took it over: sources point into either.
struct Owner {
  std::unique_ptr<lift::SourceTree> tree = std::make_unique<lift::SourceTree>();
  std::unique_ptr<GuardProgram> program;

  lift::SourceTree& open() const {
    if (program != nullptr) throw py::value_error("the tree has become a program");
    return *tree;
  }
};

struct PySource {
  std::shared_ptr<Owner> owner;
  Source* source;
};

struct PyTree {
  std::shared_ptr<Owner> owner = translated([] { return std::make_shared<Owner>(); });
  PySource wrap(Source* source) const { return {owner, source}; }
};

// Represents a value that is guarded to be absent.
PyObject* absent() {
  static PyObject* object = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return object;
}

struct PyProgram {
  std::shared_ptr<Owner> owner;

  PyProgram(const PyTree& tree, const std::vector<PySource>& needed) : owner(tree.owner) {
    std::vector<Source*> sources;
    for (const PySource& source : needed) {
      if (source.owner != owner) throw py::value_error("a source of another tree");
      sources.push_back(source.source);
    }
    owner->open();
    owner->program = translated(
        [&] { return std::make_unique<GuardProgram>(std::move(owner->tree), sources, AmbientGuard::capture()); });
  }
  GuardProgram& program() const { return *owner->program; }

  // A list with null where Python has no value.
  static std::vector<PyObject*> slots_of(const py::sequence& slots) {
    std::vector<PyObject*> pointers;
    for (py::handle slot : slots) pointers.push_back(slot.ptr() == absent() ? nullptr : slot.ptr());
    return pointers;
  }

  py::object check(const py::object& function, const py::sequence& slots) const {
    const std::vector<PyObject*> pointers = slots_of(slots);
    std::vector<Ref> values;
    const bool holds = translated([&] { return program().check({function.ptr(), pointers.data()}, &values); });
    if (!holds) return py::none();
    py::list result;
    for (const Ref& value : values) result.append(lend(value ? value.get() : absent()));
    return result;
  }
};

}  // namespace

void bind_guards(py::module_& module) {
  if (init_names() < 0) throw py::error_already_set();
  module.attr("absent") = lend(absent());
  add_switches(module, switches());
  module.def("set_bindings", &GuardProgram::set_bindings, "False: every check walks.");
  module.def("set_verify", &GuardProgram::set_verify, "True: every check is also made by walking, and must agree.");
  module.def("is_plain", [](const py::object& object) { return lift::is_plain(object.ptr()); });
  module.def("plain_equal",
             [](const py::object& a, const py::object& b) { return lift::plain_equal(a.ptr(), b.ptr()); });
  module.def("show", [](const py::object& object) { return lift::show(object.ptr()); });
  module.def("follow", [](const PySource& source, const py::object& parent) {
    Ref owner;
    PyObject* found = lift::follow(*source.source, parent.ptr(), &owner);
    return lend(found != nullptr ? found : absent());
  });

  py::class_<PySource>(module, "Source")
      .def_property_readonly("text", [](const PySource& self) { return self.source->text(); })
      .def_property_readonly("id", [](const PySource& self) { return self.source->id; })
      .def_property_readonly("parent",
                             [](const PySource& self) -> std::optional<PySource> {
                               if (self.source->parent == nullptr) return std::nullopt;
                               return PySource{self.owner, self.source->parent};
                             })
      .def_property_readonly("guards", [](const PySource& self) { return self.source->guards.size(); })
      .def_property(
          "bears_identity", [](const PySource& self) { return self.source->bears_identity; },
          [](const PySource& self, bool value) { self.source->bears_identity = value; })
      .def("__eq__", [](const PySource& self, const PySource& other) { return self.source == other.source; });

  py::class_<PyTree>(module, "SourceTree", "Where values come from, and what must hold of them.")
      .def(py::init<>())
      .def("function", [](const PyTree& self) { return self.wrap(self.owner->open().function()); })
      .def("slot", [](const PyTree& self, Py_ssize_t index,
                      const py::str& name) { return self.wrap(self.owner->open().slot(index, name.ptr())); })
      .def("constant", [](const PyTree& self,
                          const py::object& object) { return self.wrap(self.owner->open().constant(object.ptr())); })
      .def(
          "child",
          [](const PyTree& self, const PySource& parent, const std::string& access, const py::object& key,
             Py_ssize_t index) {
            const bool has_key = !key.is(lend(absent()));
            return self.wrap(self.owner->open().child(parent.source, access_named(access),
                                                      has_key ? Borrowed(key.ptr()) : Borrowed(), index));
          },
          py::arg("parent"), py::arg("access"), py::arg("key") = lend(absent()), py::arg("index") = 0)
      .def(
          "guard",
          [](const PyTree& self, const PySource& source, const std::string& kind, const py::object& object,
             const py::object& second, Py_ssize_t number, const PySource* other) {
            lift::Guard guard{guard_named(kind)};
            if (guard.kind == GuardKind::kTensor) {
              const bool is_spec = py::isinstance<lift::TensorSpec>(object);
              if (!is_spec && !lift::is_tensor(object.ptr())) throw py::type_error("kTensor is made from a tensor");
              guard.tensor = std::make_shared<const lift::TensorSpec>(is_spec ? object.cast<lift::TensorSpec>()
                                                                              : lift::describe_tensor(object.ptr()));
            } else if (!object.is(lend(absent()))) {
              guard.object = Ref::share(object.ptr());
            }
            guard.second = shared(second);
            guard.number = number;
            if (other != nullptr) guard.other = other->source;
            translated([&] {
              self.owner->open().guard(source.source, std::move(guard));
              return true;
            });
          },
          py::arg("source"), py::arg("kind"), py::arg("object") = lend(absent()), py::arg("second") = py::none(),
          py::arg("number") = 0, py::arg("other") = static_cast<const PySource*>(nullptr))
      .def("set_site", [](const PyTree& self, const py::object& code, int index) {
        self.owner->open().set_site(code.is_none() ? Borrowed() : Borrowed(code.ptr()), index);
      });

  py::class_<PyProgram>(module, "Program", "Takes a tree over.")
      .def(py::init<const PyTree&, const std::vector<PySource>&>(), py::arg("tree"),
           py::arg("needed") = std::vector<PySource>())
      .def("check", &PyProgram::check, py::arg("function") = py::none(), py::arg("slots") = py::tuple(),
           "What the needed sources find, or None.")
      .def(
          "explain",
          [](const PyProgram& self, const py::object& function, const py::sequence& slots) {
            const std::vector<PyObject*> pointers = PyProgram::slots_of(slots);
            const Explanation why = self.program().explain({function.ptr(), pointers.data()});
            return py::dict(py::arg("source") = why.source, py::arg("sentence") = why.sentence,
                            py::arg("kind") = why.kind, py::arg("file") = why.file, py::arg("function") = why.function,
                            py::arg("line") = why.line, py::arg("text") = why.text());
          },
          py::arg("function") = py::none(), py::arg("slots") = py::tuple())
      .def(
          "time_checks",
          [](const PyProgram& self, const py::object& function, const py::sequence& slots, int count) {
            const std::vector<PyObject*> pointers = PyProgram::slots_of(slots);
            const Roots roots{function.ptr(), pointers.data()};
            std::vector<Ref> values;
            bool holds = true;
            const auto start = std::chrono::steady_clock::now();
            for (int i = 0; i < count; i++) {
              values.clear();
              holds = self.program().check(roots, &values) && holds;
            }
            const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
            if (!holds) throw py::value_error("a check failed");
            return spent.count() / count;
          },
          "Seconds for one check, on average.")
      .def_property_readonly("failure", [](const PyProgram& self) { return self.program().failure(); })
      .def_property_readonly("texts", [](const PyProgram& self) { return self.program().texts(); })
      .def_property_readonly("counts",
                             [](const PyProgram& self) {
                               const GuardProgram::Counts counts = self.program().counts();
                               return py::dict(py::arg("walked") = counts.walked, py::arg("bound") = counts.bound,
                                               py::arg("bindings_made") = counts.bindings_made,
                                               py::arg("bindings_stale") = counts.bindings_stale,
                                               py::arg("asked") = counts.asked, py::arg("bindings") = counts.bindings,
                                               py::arg("operations") = counts.operations);
                             })
      .def_property_readonly("node_count", [](const PyProgram& self) { return self.program().node_count(); })
      .def_property_readonly("check_count", [](const PyProgram& self) { return self.program().check_count(); });

  py::class_<AmbientGuard>(module, "Ambient", "The state around a call.")
      .def_static("capture", [] { return translated([] { return AmbientGuard::capture(); }); })
      .def("matches", &AmbientGuard::matches)
      .def("mismatch", &AmbientGuard::mismatch)
      .def_property_readonly("texts", &AmbientGuard::texts);

  py::class_<lift::TensorSpec>(module, "TensorSpec", "What a guard wants of a tensor.")
      .def(py::init([](const py::object& tensor) {
        if (!lift::is_tensor(tensor.ptr())) throw py::type_error("expected a torch.Tensor");
        return lift::describe_tensor(tensor.ptr());
      }))
      .def("matches", [](const lift::TensorSpec& self, const py::object& object) { return self.matches(object.ptr()); })
      .def("text_against", &lift::TensorSpec::text_against)
      .def_property(
          "offset", [](const lift::TensorSpec& self) { return self.offset; },
          [](lift::TensorSpec& self, std::optional<int64_t> offset) { self.offset = offset; })
      .def_property_readonly("text", &lift::TensorSpec::text)
      .def("__eq__", [](const lift::TensorSpec& a, const lift::TensorSpec& b) { return a == b; });
}

}  // namespace alternator
