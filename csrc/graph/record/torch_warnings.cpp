#include "graph/record/torch_warnings.h"

#include "cpython/current_globals.h"
#include "py/error.h"
#include "py/forking.h"
#include "py/import.h"
#include "py/lasting.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>

namespace alternator::graph {

namespace {

thread_local WarningsKept* keeper = nullptr;
thread_local PyObject *matched_text = nullptr, *matched_module = nullptr;  // borrowed
thread_local std::vector<Warning> noted;
thread_local size_t noted_before = 0;  // at the last call of new_warnings()

// An entry of warnings.filters matches one pattern against the message and another against the module that the warning
// is attributed to, and checks the warning's category with issubclass(). These three objects dispatch to the thread's
// keeper.
PyObject* match_text(PyObject*, PyObject* text) {
  matched_text = text;
  return PyBool_FromLong(keeper != nullptr ? 1 : 0);
}
PyObject* match_module(PyObject*, PyObject* module) {
  matched_module = module;
  return PyBool_FromLong(keeper != nullptr ? 1 : 0);
}
PyObject* has_subclass(PyObject*, PyObject* category) {
  if (keeper == nullptr || matched_text == nullptr) Py_RETURN_FALSE;
  keeper->keep(std::exchange(matched_text, nullptr), category, std::exchange(matched_module, nullptr));
  Py_RETURN_TRUE;
}

Ref make_asked(const char* name, PyMethodDef* methods) {
  PyType_Slot slots[] = {{Py_tp_methods, methods}, {}};
  PyType_Spec spec = {name, sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};
  return checked(PyObject_CallNoArgs(checked(PyType_FromSpec(&spec)).get()));
}

Ref make_filter() {
  static PyMethodDef of_text[] = {{"match", match_text, METH_O, nullptr}, {}};
  static PyMethodDef of_module[] = {{"match", match_module, METH_O, nullptr}, {}};
  static PyMethodDef of_category[] = {{"__subclasscheck__", has_subclass, METH_O, nullptr}, {}};
  return checked(Py_BuildValue("(sNNNi)", "ignore", make_asked("alternator.graph.AnyText", of_text).release(),
                               make_asked("alternator.graph.AnyCategory", of_category).release(),
                               make_asked("alternator.graph.AnyModule", of_module).release(), 0));
}

// The innermost frame of the module: with a stacklevel, that is not the innermost frame of all.
Ref frame_of(Borrowed module) {
  Ref innermost = Ref::share(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (Ref frame = innermost; frame && module;) {
    Ref globals = Ref::steal(PyFrame_GetGlobals(frame.as<PyFrameObject>()));
    Borrowed name = PyDict_GetItemString(globals.get(), "__name__");
    if (name && PyUnicode_Check(name.get()) && PyUnicode_Compare(name.get(), module.get()) == 0) return frame;
    frame = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame.as<PyFrameObject>())));
  }
  return innermost;
}

PyObject* filter() {
  static constinit Lasting<PyObject*> lasting;
  return lasting.get([] { return make_filter().release(); });
}

PyObject* filters_name() {
  static constinit Lasting<PyObject*> name;
  return name.get([] { return checked(PyUnicode_InternFromString("filters")).release(); });
}

// The current warnings.filters; null: there is no such list.
Ref filters_now() {
  static constinit Lasting<PyObject*> names;
  PyObject* in = names.get([] { return Py_NewRef(PyModule_GetDict(import_module("warnings").get())); });
  Borrowed filters = PyDict_GetItemWithError(in, filters_name());
  return filters && PyList_CheckExact(filters.get()) ? Ref::share(filters) : Ref();
}

// __warningregistry__ in a module's globals records which lines have warned already: the trace must neither write there
// nor miss a warning that was shown before. So a frame of a trace has these globals while it makes a torch call.
PyObject* globals_of_trace() {
  static constinit Lasting<PyObject*> lasting;
  return lasting.get([] {
    Ref made = checked(PyDict_New());
    Ref builtins = import_module("builtins"), name = checked(PyUnicode_InternFromString("alternator.trace"));
    check_status(PyDict_SetItemString(made.get(), "__builtins__", builtins.get()));  // imports look them up
    check_status(PyDict_SetItemString(made.get(), "__name__", name.get()));
    return made.release();
  });
}

// --- the class of the module ---------------------------------------------------------------------------------------

PyTypeObject* module_class = nullptr;

// Torch's set_warn_always flag: a TORCH_WARN_ONCE warning is issued each time.
bool repeats_before = false;
SwitchedBy repeating() {
  static int all = 0;
  static thread_local int own = 0;
  return {all, own};
}
[[maybe_unused]] const bool in_child = in_children([] {
  if (repeating().keep_own()) c10::WarningUtils::set_warnAlways(repeats_before);
});

// The getter of `warnings.filters`, which native code that warns uses too.
PyObject* get_filters(PyObject* module, void*) {
  PyObject* filters = PyDict_GetItemWithError(PyModule_GetDict(module), filters_name());
  if (filters == nullptr) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_AttributeError, "module 'warnings' has no attribute 'filters'");
    return nullptr;
  }
  if (keeper == nullptr || !PyList_CheckExact(filters)) return Py_NewRef(filters);
  return keeper->lend(filters).release();
}

int set_filters(PyObject* module, PyObject* filters, void*) {
  PyObject* names = PyModule_GetDict(module);
  if (filters == nullptr) return PyDict_DelItem(names, filters_name());
  return PyDict_SetItem(names, filters_name(), keeper != nullptr ? keeper->original(filters).get() : filters);
}

// A module cannot be pickled, but special picklers look up its exact class.
PyObject* reduce(PyObject*, PyObject*) {
  Ref importing = Ref::steal(PyImport_ImportModule("importlib"));
  Ref import = importing ? Ref::steal(PyObject_GetAttrString(importing.get(), "import_module")) : Ref();
  return import ? Py_BuildValue("(O(s))", import.get(), "warnings") : nullptr;
}

// As warnings.warn() does in a frame of these globals.
void warn_at(const Warning& warning, const Warning& place) {
  Ref name = checked(PyUnicode_InternFromString("__warningregistry__"));
  Ref empty = checked(PyDict_New());
  Ref registry = Ref::share(PyDict_SetDefault(place.globals.get(), name.get(), empty.get()));
  if (!registry) throw PyError();
  PyObject* found = PyDict_GetItemString(place.globals.get(), "__name__");
  Ref module =
      found != nullptr && PyUnicode_Check(found) ? Ref::share(found) : checked(PyUnicode_FromString("<string>"));
  check_status(PyErr_WarnExplicitObject(warning.category.get(), warning.text.get(), place.file.get(), place.line,
                                        module.get(), registry.get()));
}

bool is_same(const Warning& one, const Warning& other) {
  return one.category == other.category && PyUnicode_Compare(one.text.get(), other.text.get()) == 0;
}

}  // namespace

int init_warnings() {
  static PyGetSetDef fields[] = {{"filters", get_filters, set_filters, nullptr, nullptr}, {}};
  static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {}};
  PyType_Slot slots[] = {{Py_tp_getset, fields}, {Py_tp_methods, methods}, {}};
  PyType_Spec spec = {"alternator.graph.WarningsModule", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  try {
    Ref bases = checked(PyTuple_Pack(1, &PyModule_Type));
    Ref made = checked(PyType_FromSpecWithBases(&spec, bases.get()));
    Ref module = import_module("warnings");
    if (Py_TYPE(module.get()) != &PyModule_Type) return 0;  // somebody else has changed its class
    check_status(PyObject_SetAttrString(module.get(), "__class__", made.get()));
    module_class = reinterpret_cast<PyTypeObject*>(made.release());
  } catch (const PyError&) {
    return -1;
  }
  return 0;
}

bool is_plain_module_class(PyTypeObject* type) { return type == &PyModule_Type || type == module_class; }

WarningsKept::WarningsKept(Kind kind) : outer_(std::exchange(keeper, this)), repeats_(kind == Kind::kFake) {
  if (!repeats_) return;
  if (repeating().begin()) repeats_before = c10::WarningUtils::get_warnAlways();
  c10::WarningUtils::set_warnAlways(true);
  place_ = cpython::current_globals();
  if (place_ != nullptr && *place_ != globals_of_trace()) real_ = std::exchange(*place_, globals_of_trace());
}

WarningsKept::~WarningsKept() {
  keeper = outer_;
  if (real_ != nullptr) *place_ = real_;
  if (!repeats_) return;
  if (repeating().end()) c10::WarningUtils::set_warnAlways(repeats_before);
}

// Code that changes the filters temporarily (warnings.catch_warnings) saves the list that it gets here, installs a copy
// of it, and restores the saved list in the end. The copy contains our filter, after the ones that this code added.
Ref WarningsKept::lend(Borrowed filters) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters.get()); i++) {
    if (PyList_GET_ITEM(filters.get(), i) == filter()) return Ref::share(filters);
  }
  Ref lent = Ref::steal(PyList_GetSlice(filters.get(), 0, PyList_GET_SIZE(filters.get())));
  if (!lent || PyList_Insert(lent.get(), 0, filter()) < 0) return Ref();
  lent_.emplace_back(Ref(lent), Ref::share(filters));
  return lent;
}

Borrowed WarningsKept::original(Borrowed filters) const {
  for (const auto& [lent, original] : lent_) {
    if (lent.get() == filters.get()) return original;
  }
  return filters;
}

void WarningsKept::keep(Borrowed text, Borrowed category, Borrowed module) {
  Warning& warning = kept_.emplace_back();
  warning.text = Ref::share(text);
  warning.category = Ref::share(category);
  Ref frame = frame_of(module);
  if (!frame) return;
  Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame.as<PyFrameObject>())));
  warning.file = Ref::share(code.as<PyCodeObject>()->co_filename);
  warning.globals = Ref::steal(PyFrame_GetGlobals(frame.as<PyFrameObject>()));
  for (const WarningsKept* of = this; of != nullptr && warning.globals.get() == globals_of_trace(); of = of->outer_) {
    if (of->real_ != nullptr) warning.globals = Ref::share(of->real_);
  }
  warning.line = PyFrame_GetLineNumber(frame.as<PyFrameObject>());
}

// Whether the filter applies to a category that torch uses.
static bool concerns_torch(PyObject* category) {
  if (!PyType_Check(category)) return true;
  auto is = [&](PyObject* one) {
    return PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(one), reinterpret_cast<PyTypeObject*>(category)) != 0;
  };
  return is(PyExc_UserWarning) || is(PyExc_DeprecationWarning) || is(PyExc_FutureWarning) || is(PyExc_RuntimeWarning);
}

bool may_raise_warnings() {
  Ref filters = filters_now();
  for (Py_ssize_t i = 0; filters && i < PyList_GET_SIZE(filters.get()); i++) {
    PyObject* one = PyList_GET_ITEM(filters.get(), i);
    if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) < 3) return true;
    PyObject* action = PyTuple_GET_ITEM(one, 0);
    const bool raises = !PyUnicode_Check(action) || PyUnicode_CompareWithASCIIString(action, "error") == 0;
    if (raises && concerns_torch(PyTuple_GET_ITEM(one, 2))) return true;
  }
  return !filters;
}

// For each of them the index of a trace warning with the same text; SIZE_MAX: none.
static std::vector<size_t> find_places(const std::vector<Warning>& warnings, const std::vector<Warning>& places) {
  std::vector<size_t> found(warnings.size(), SIZE_MAX);
  std::vector<bool> taken(places.size());
  for (size_t w = 0; w < warnings.size(); w++) {
    for (size_t i = 0; i < places.size() && found[w] == SIZE_MAX; i++) {
      if (!taken[i] && is_same(places[i], warnings[w])) found[w] = i;
    }
    if (found[w] != SIZE_MAX) taken[found[w]] = true;
  }
  return found;
}

void give(std::vector<Warning> warnings, const std::vector<Warning>* places) {
  static const std::vector<Warning> none;
  WarningsInTurn(std::move(warnings), places != nullptr ? *places : none).give_rest();
}

static thread_local WarningsInTurn* in_turn = nullptr;

WarningsInTurn::WarningsInTurn(std::vector<Warning> warnings, const std::vector<Warning>& places)
    : outer_(std::exchange(in_turn, this)),
      warnings_(std::move(warnings)),
      at_(find_places(warnings_, places)),
      places_(places) {}

WarningsInTurn::~WarningsInTurn() { in_turn = outer_; }

void WarningsInTurn::give_until(size_t count) {
  if (in_turn != nullptr) in_turn->give_until_(count);
}

void WarningsInTurn::give_until_(size_t count) {
  std::vector<Warning> due, later;
  std::vector<size_t> due_at, later_at;
  for (size_t w = 0; w < warnings_.size(); w++) {
    const bool is_due = at_[w] < count || count == SIZE_MAX;
    (is_due ? due : later).push_back(std::move(warnings_[w]));
    (is_due ? due_at : later_at).push_back(at_[w]);
  }
  warnings_ = std::move(later), at_ = std::move(later_at);
  for (size_t w = 0; w < due.size(); w++) {
    const Warning& place = due_at[w] != SIZE_MAX ? places_[due_at[w]] : due[w];
    if (place.globals) warn_at(due[w], place);
  }
}

void forget_warnings() { noted.clear(), noted_before = 0; }
void note_warnings(std::vector<Warning> warnings) {
  noted.insert(noted.end(), std::make_move_iterator(warnings.begin()), std::make_move_iterator(warnings.end()));
}
std::vector<Warning> take_noted_warnings() { return std::exchange(noted, {}); }
size_t new_warnings() { return std::exchange(noted_before, noted.size()) != noted.size() ? noted.size() : 0; }

}  // namespace alternator::graph
