// alternator._C.replay: residual programs over a world that a test describes by hand.
#include "bindings/bind_switches.h"
#include "bindings/bindings.h"
#include "replay/replay_mutants.h"
#include "replay/residual.h"
#include "replay/tensors.h"

#include <pybind11/stl.h>

namespace alternator {
namespace {

namespace py = pybind11;
using namespace replay;

// A World described by hand. Tensors without a source are the graph's.
class HandWorld final : public World {
 public:
  explicit HandWorld(py::object made_here) : made_here_(std::move(made_here)) {}

  lift::Source* source_of(Borrowed object) override {
    auto found = sources_.find(object.get());
    return found != sources_.end() ? found->second : nullptr;
  }
  bool made_here(Borrowed object) override {
    return !made_here_.is_none() && made_here_(py::handle(object.get())).cast<bool>();
  }
  bool is_graph_tensor(Borrowed tensor) override { return is_tensor(tensor); }
  const std::deque<lift::Shadow>& shadows() override { return shadows_; }
  std::vector<lift::VariableWrite> writes() override { return writes_; }
  std::vector<EffectCall> calls() override { return calls_; }
  void guard_length(const lift::Shadow& shadow) override { lengths.push_back(shadow.source->text()); }

  // `lifted` represents the argument called `name`.
  void preexisting(const py::object& lifted, const std::string& name) {
    Ref text = checked(PyUnicode_InternFromString(name.c_str()));
    know(lifted, tree_.slot(static_cast<Py_ssize_t>(sources_.size()), text));
  }

  void shadow(const std::string& kind, const py::object& copy, const py::object& snapshot, const py::object& original,
              const py::object& owner, bool is_namespace, const std::optional<std::vector<bool>>& lifted_slots,
              const std::vector<py::object>& deleted_keys) {
    lift::Shadow& shadow = shadows_.emplace_back();
    shadow.kind = kind == "list"   ? lift::ShadowKind::kList
                  : kind == "dict" ? lift::ShadowKind::kDict
                  : kind == "set"  ? lift::ShadowKind::kSet
                                   : lift::ShadowKind::kDeque;
    shadow.copy = Ref::share(copy.ptr());
    shadow.snapshot = Ref::share(snapshot.ptr());
    shadow.original = Ref::share(original.ptr());
    shadow.is_namespace = is_namespace;
    shadow.whole = !lifted_slots;
    if (lifted_slots) shadow.lifted_slots = *lifted_slots;
    for (const py::object& key : deleted_keys) shadow.deleted_keys.insert(key.ptr());
    if (!owner.is_none()) {
      shadow.owner = Ref::share(owner.ptr());
      know(copy, tree_.child(sources_.at(owner.ptr()), lift::Access::kDict));
    }
    shadow.source = sources_.at(copy.ptr());
  }

  void place(const std::string& kind, const py::object& owner, const py::object& name, const py::object& value,
             bool remove) {
    lift::VariableWrite write;
    write.kind = kind == "cell"    ? lift::VariableKind::kCell
                 : kind == "field" ? lift::VariableKind::kField
                                   : lift::VariableKind::kTypeAttribute;
    write.owner = sources_.at(owner.ptr());
    if (!name.is_none()) write.name = Ref::share(name.ptr());
    if (!remove) write.value = Ref::share(value.ptr());
    writes_.push_back(std::move(write));
  }

  void call(const py::object& callable, const py::tuple& arguments, const py::object& keywords) {
    calls_.push_back({Ref::share(callable.ptr()), Ref::share(arguments.ptr()),
                      keywords.is_none() ? Ref() : Ref::share(keywords.ptr())});
  }

  std::vector<std::string> identities() const {
    std::vector<std::string> texts;
    for (const lift::Source& source : tree_.sources()) {
      if (source.bears_identity) texts.push_back(source.text());
    }
    return texts;
  }

  std::vector<std::string> lengths;

 private:
  void know(const py::object& lifted, lift::Source* source) {
    sources_[lifted.ptr()] = source;
    held_.push_back(lifted);
  }

  py::object made_here_;
  lift::SourceTree tree_;
  std::unordered_map<PyObject*, lift::Source*> sources_;
  std::vector<py::object> held_;
  std::deque<lift::Shadow> shadows_;
  std::vector<lift::VariableWrite> writes_;
  std::vector<EffectCall> calls_;
};

py::object to_python(const Ref& object) { return py::reinterpret_borrow<py::object>(object.get()); }

struct Built {
  Residual residual;
  std::vector<std::string> needed;
  py::list outputs;
};

Built build(HandWorld& world, const py::object& result) {
  std::vector<Ref> outputs;
  std::vector<lift::Source*> needed;
  Built built;
  try {
    built.residual = Residual::build(world, result.ptr(), &outputs, &needed);
  } catch (const PyError&) {
    throw py::error_already_set();
  }
  for (const lift::Source* source : needed) built.needed.push_back(source->text());
  for (const Ref& output : outputs) built.outputs.append(to_python(output));
  return built;
}

py::object run(const Built& built, const py::dict& values, const py::object& outputs) {
  std::vector<Ref> needed;
  for (const std::string& name : built.needed) needed.push_back(Ref::share(py::object(values[py::str(name)]).ptr()));
  try {
    return py::reinterpret_steal<py::object>(built.residual.run(needed, outputs.ptr()).release());
  } catch (const PyError&) {
    throw py::error_already_set();
  }
}

}  // namespace

void bind_replay(py::module_& module) {
  py::register_exception<CannotRebuild>(module, "CannotRebuild");
  py::class_<HandWorld>(module, "World", "A trace's World, described by hand: for tests.")
      .def(py::init<py::object>(), py::arg("made_here") = py::none())
      .def("preexisting", &HandWorld::preexisting, py::arg("lifted"), py::arg("name"))
      .def("shadow", &HandWorld::shadow, py::arg("kind"), py::arg("copy"), py::arg("snapshot"), py::arg("original"),
           py::kw_only(), py::arg("owner") = py::none(), py::arg("is_namespace") = false,
           py::arg("lifted_slots") = py::none(), py::arg("deleted_keys") = std::vector<py::object>{})
      .def("place", &HandWorld::place, py::arg("kind"), py::arg("owner"), py::arg("name") = py::none(),
           py::arg("value") = py::none(), py::kw_only(), py::arg("remove") = false)
      .def("call", &HandWorld::call, py::arg("callable"), py::arg("arguments"), py::arg("keywords") = py::none())
      .def_property_readonly("identities", &HandWorld::identities)
      .def_readonly("lengths", &HandWorld::lengths)
      .def("build", &build);
  py::class_<Built>(module, "Residual")
      .def("run", &run, py::arg("values") = py::dict(), py::arg("outputs") = py::list())
      .def("text", [](const Built& built) { return built.residual.text(); })
      .def_readonly("needed", &Built::needed)
      .def_readonly("outputs", &Built::outputs);
  add_switches(module, switches());
}

}  // namespace alternator
