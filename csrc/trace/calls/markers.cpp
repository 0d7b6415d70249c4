#include "trace/calls/markers.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

#include <cstring>

namespace alternator::trace {

namespace {

bool equals(PyObject* text, const char* ascii) {
  return text != nullptr && PyUnicode_Check(text) && PyUnicode_CompareWithASCIIString(text, ascii) == 0;
}

// The name of the module whose globals a function has.
PyObject* module_name(Borrowed function) {
  return PyDict_GetItemString(PyFunction_GET_GLOBALS(function.get()), "__name__");
}

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

// A module that is already imported; never imports one.
PyObject* loaded(const char* name) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), name);
  PyErr_Clear();
  return module;
}

bool is_compiling_query(PyObject* qualified, PyObject* module) {
  if (equals(qualified, "is_dynamo_compiling")) return equals(module, "torch.compiler");
  return equals(module, "torch.compiler") || equals(module, "torch._utils") ||
         equals(module, "torch._dynamo.external_utils") || equals(module, "alternator.compiler");
}

}  // namespace

Mark mark_of(Borrowed function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  PyObject* qualified = code->co_qualname;
  switch (PyUnicode_GET_LENGTH(qualified)) {
    case 10:
      if (equals(qualified, "_get_value") && equals(module_name(function), "torch.optim.optimizer"))
        return Mark::kNumber;
      if (equals(qualified, "skip_frame") && equals(module_name(function), "torch._dynamo.decorators"))
        return Mark::kSkipFrame;
      break;
    case 16:
      if (equals(qualified, "step_unsupported") && equals(module_name(function), "torch._dynamo.decorators"))
        return Mark::kGraphBreak;
      break;
    case 11:  // sizes are static anyway
      if (equals(qualified, "mark_static") && equals(module_name(function), "torch._dynamo.decorators"))
        return Mark::kNotes;
      if (equals(qualified, "graph_break") && (equals(module_name(function), "torch._dynamo.decorators") ||
                                               equals(module_name(function), "alternator.breaks")))
        return Mark::kGraphBreak;
      if (equals(qualified, "expect_true") && equals(module_name(function), "torch.fx.experimental.symbolic_shapes"))
        return Mark::kExpectation;
      break;
    case 12:
    case 19:
      if ((equals(qualified, "is_compiling") || equals(qualified, "is_dynamo_compiling")) &&
          is_compiling_query(qualified, module_name(function)))
        return Mark::kCompilingQuery;
      break;
    case 21:  // from its first use in a process on, nn.Module.__init__ calls it
      if (equals(qualified, "GenerationTracker.tag") && equals(module_name(function), "torch._dynamo.mutation_guard"))
        return Mark::kNotes;
      break;
    case 22:
      if (equals(qualified, "_check_tensor_all_with") && equals(module_name(function), "torch"))
        return Mark::kDataCheck;
      break;
    case 30:  // every function that torch's decorator makes runs this code
      if (code == reinterpret_cast<PyCodeObject*>(Natives::table().shield_code)) return Mark::kShield;
      break;
    case 33:
      if (equals(qualified, "LazyModuleMixin._infer_parameters") &&
          equals(module_name(function), "torch.nn.modules.lazy"))
        return Mark::kMaterialises;
      break;
    case 53:  // it has the name and the attributes of the wrapped function
      if (equals(qualified, "_TorchDynamoContext.__call__.<locals>.compile_wrapper") &&
          equals(module_name(function), "torch._dynamo.eval_frame") && attribute(function, "_torchdynamo_inline"))
        return Mark::kCompiled;
      break;
    default:
      break;
  }
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
  PyObject* rules = loaded("torch._dynamo.trace_rules");
  if (rules == nullptr) return {};
  const SavedError outer;
  Ref table = Ref::steal(PyObject_GetAttrString(rules, name));
  Ref ids = table ? Ref::steal(PyObject_GetAttrString(table.get(), "function_ids")) : Ref();
  return ids && PyAnySet_Check(ids.get()) && PySet_GET_SIZE(ids.get()) > 0 ? std::move(ids) : Ref();
}

Ref allowed_in_graph() { return rule_ids("_allowed_callable_ids"); }
Ref disallowed_in_graph() { return rule_ids("_disallowed_callable_ids"); }

std::vector<BreakSwitch> break_switches() {
  std::vector<BreakSwitch> switches;
  for (const char* name : {"alternator.breaks", "torch._dynamo.utils"}) {
    PyObject* module = loaded(name);
    if (module == nullptr || !PyModule_Check(module)) continue;
    switches.push_back({PyModule_GetDict(module), checked(PyUnicode_InternFromString("_error_on_graph_break"))});
  }
  return switches;
}

Ref substitute_of(Borrowed callable) {
  PyObject* functions = loaded("torch._dynamo.variables.functions");
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

bool is_compiled(Borrowed callable) { return strcmp(callable.type()->tp_name, "alternator._C.Compiled") == 0; }

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
