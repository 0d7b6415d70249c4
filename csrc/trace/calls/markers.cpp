#include "trace/calls/markers.h"

#include "graph/record/torch_types.h"
#include "lift/sources/pointer_tables.h"
#include "py/lasting.h"
#include "trace/calls/code_table.h"
#include "trace/calls/natives.h"

#include <string>
#include <utility>

namespace alternator::trace {

namespace {

PyObject* attribute(Borrowed function, const char* name) {
  PyObject* dict = function.as<PyFunctionObject>()->func_dict;
  PyObject* found = dict != nullptr && PyDict_GET_SIZE(dict) > 0 ? PyDict_GetItemString(dict, name) : nullptr;
  PyErr_Clear();
  return found;
}

bool is_set(Borrowed function, const char* name) { return attribute(function, name) == Py_True; }

// functools.wraps copies attributes: a mark with an owner applies to that very function only.
bool owns_marks(Borrowed function) {
  PyObject* owner = attribute(function, "_torchdynamo_wrapper_id");
  if (owner == nullptr || !PyLong_Check(owner)) return true;
  void* address = PyLong_AsVoidPtr(owner);
  PyErr_Clear();
  return address == function.get();
}

}  // namespace

// --- functions that are known by their code -------------------------------------------------------------------------

namespace {

constexpr CodeTable<Mark>::Row kMarkedFunctions[] = {
    {"torch.compiler", "is_compiling", Mark::kCompilingQuery},
    {"torch.compiler", "is_dynamo_compiling", Mark::kCompilingQuery},
    {"torch._utils", "is_compiling", Mark::kCompilingQuery},
    {"torch._dynamo.external_utils", "is_compiling", Mark::kCompilingQuery},
    {"torch.optim.optimizer", "_get_value", Mark::kNumber},
    {"torch._dynamo.decorators", "skip_frame", Mark::kSkipFrame},
    {"torch._dynamo.decorators", "graph_break", Mark::kGraphBreak},
    {"torch._dynamo.decorators", "step_unsupported", Mark::kGraphBreak},
    {"torch._dynamo.decorators", "mark_static", Mark::kNotes},  // sizes are static anyway
    // From its first use in a process on, nn.Module.__init__ calls it.
    {"torch._dynamo.mutation_guard", "GenerationTracker.tag", Mark::kNotes},
    {"torch.fx.experimental.symbolic_shapes", "expect_true", Mark::kExpectation},
    {"torch", "_check_tensor_all_with", Mark::kDataCheck},
    {"torch.nn.modules.lazy", "LazyModuleMixin._infer_parameters", Mark::kMaterializes},
    {"torch._dynamo.eval_frame", "_TorchDynamoContext.__call__.<locals>.compile_wrapper", Mark::kCompiled},
};

CodeTable<Mark>& marked_codes() {
  static auto* codes = new CodeTable<Mark>(kMarkedFunctions);
  return *codes;
}

}  // namespace

void mark_function(Borrowed function, Mark mark) { marked_codes().add(PyFunction_GET_CODE(function.get()), mark); }

void find_marked_functions() {
  marked_codes().update();
  // Every function that torch's decorator makes runs this code.
  marked_codes().add(Natives::table().shield_code, Mark::kShield);
}

Mark mark_of(Borrowed function) {
  const Mark* found = marked_codes().find(PyFunction_GET_CODE(function.get()));
  if (found != nullptr && (*found != Mark::kCompiled || attribute(function, "_torchdynamo_inline") != nullptr))
    return *found;
  if (function.as<PyFunctionObject>()->func_dict == nullptr) return Mark::kNone;
  if (is_set(function, "_torchdynamo_disable") && owns_marks(function)) return Mark::kDisabled;
  if (is_set(function, "_dynamo_marked_constant")) return Mark::kConstant;
  return Mark::kNone;
}

std::string disabled_text(Borrowed function) {
  std::string result;
  auto add = [&](PyObject* text, const char* before) {
    const char* utf8 = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
    if (utf8 != nullptr) result += before + std::string(utf8);
    PyErr_Clear();
  };
  add(function.as<PyFunctionObject>()->func_qualname, "");
  add(attribute(function, "_torchdynamo_disable_msg"), ": ");
  return result;
}

// A table of torch._dynamo.trace_rules: a set of addresses; null: it is empty.
static Ref rule_ids(const char* name) {
  PyObject* rules = loaded_module("torch._dynamo.trace_rules");
  if (rules == nullptr) return {};
  const SavedError outer;
  Ref table = Ref::steal(PyObject_GetAttrString(rules, name));
  Ref ids = table ? Ref::steal(PyObject_GetAttrString(table.get(), "function_ids")) : Ref();
  return ids && PyAnySet_Check(ids.get()) && PySet_GET_SIZE(ids.get()) > 0 ? std::move(ids) : Ref();
}

Ref allowed_in_graph() { return rule_ids("_allowed_callable_ids"); }
Ref disallowed_in_graph() { return rule_ids("_disallowed_callable_ids"); }

static Ref& own_switch() {
  static auto* name_space = new Ref;
  return *name_space;
}

void set_break_switch(Borrowed name_space) { own_switch() = Ref::share(name_space); }

std::vector<BreakSwitch> break_switches() {
  std::vector<BreakSwitch> switches;
  const auto add = [&](PyObject* name_space) {
    switches.push_back({name_space, checked(PyUnicode_InternFromString("_error_on_graph_break"))});
  };
  if (own_switch()) add(own_switch().get());
  PyObject* module = loaded_module("torch._dynamo.utils");
  if (module != nullptr && PyModule_Check(module)) add(PyModule_GetDict(module));
  return switches;
}

Ref substitute_of(Borrowed callable) {
  PyObject* functions = loaded_module("torch._dynamo.variables.functions");
  if (functions == nullptr) return {};
  const SavedError outer;
  Ref kind = Ref::steal(PyObject_GetAttrString(functions, "PolyfilledFunctionVariable"));
  Ref handlers = kind ? Ref::steal(PyObject_CallMethod(kind.get(), "_get_polyfill_handlers", nullptr)) : Ref();
  if (!handlers || !PyDict_Check(handlers.get())) return {};
  PyObject* handler = PyDict_GetItem(handlers.get(), callable.get());
  Ref found = handler != nullptr ? Ref::steal(PyObject_GetAttrString(handler, "__torch_dynamo_polyfill__")) : Ref();
  return found && PyFunction_Check(found.get()) ? std::move(found) : Ref();
}

Ref scripted_function(Borrowed callable) {
  static constinit Lasting<PyObject*> type;
  Borrowed scripted = type.get([] { return graph::torch_name("torch.jit", "ScriptFunction").release(); });
  if (Borrowed(callable.type()) != scripted) return {};
  const SavedError outer;
  Ref name = Ref::steal(PyObject_GetAttrString(callable.get(), "__name__"));
  Ref function = Ref::steal(PyObject_GetAttrString(callable.get(), "_torchdynamo_inline"));
  PyErr_Clear();
  const bool is_scripted =
      name && PyUnicode_Check(name.get()) && PyUnicode_CompareWithASCIIString(name.get(), "ScriptFunction") == 0;
  return is_scripted && function && PyFunction_Check(function.get()) ? std::move(function) : Ref();
}

static PyTypeObject* compiled_type = nullptr;
void set_compiled_type(PyTypeObject* type) { compiled_type = type; }
bool is_compiled(Borrowed callable) { return callable.type() == compiled_type; }

static bool lists(const Ref& table, Borrowed callable) {
  return table && contains(table, checked(PyLong_FromVoidPtr(callable.get()))).value();
}

bool GraphMarks::is_disallowed(Borrowed callable) {
  if (!disallowed_) disallowed_ = disallowed_in_graph();
  return lists(*disallowed_, callable);
}

bool GraphMarks::is_allowed_in_graph(Borrowed callable) {
  if (!allowed_) allowed_ = allowed_in_graph();
  return lists(*allowed_, callable);
}

}  // namespace alternator::trace
