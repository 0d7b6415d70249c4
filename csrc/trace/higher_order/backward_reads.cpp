#include "trace/higher_order/backward_reads.h"
#include "trace/opcodes/items.h"

#include "cpython/instructions.h"
#include "cpython/objects.h"
#include "graph/record/torch_types.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "trace/calls/natives.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace alternator::trace {

namespace {

// Methods and functions that change a container in place.
bool changes_container(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {"append",
                                                             "extend",
                                                             "insert",
                                                             "pop",
                                                             "remove",
                                                             "clear",
                                                             "update",
                                                             "setdefault",
                                                             "popitem",
                                                             "add",
                                                             "sort",
                                                             "reverse",
                                                             "discard",
                                                             "appendleft",
                                                             "popleft",
                                                             "setitem",
                                                             "delitem",
                                                             "__setitem__",
                                                             "iadd",
                                                             "__delitem__",
                                                             "iconcat",
                                                             "intersection_update",
                                                             "difference_update",
                                                             "symmetric_difference_update"};
  return names.count(name) != 0;
}

bool is_code(Borrowed value) {
  return value && (PyFunction_Check(value.get()) || PyType_Check(value.get()) || PyModule_Check(value.get()) ||
                   PyCFunction_Check(value.get()));
}

bool is_autograd_function(Borrowed value) {
  return PyType_Check(value.get()) &&
         PyType_IsSubtype(value.as<PyTypeObject>(), reinterpret_cast<PyTypeObject*>(Natives::table().function_base));
}

bool is_of_library(Borrowed function) {
  Borrowed name = PyDict_GetItemString(PyFunction_GET_GLOBALS(function.get()), "__name__");
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (text == nullptr) PyErr_Clear();
  return text != nullptr && graph::is_of_torch(text);
}

// Collects what the code reads by name, from one function to the next.
class Reads {
 public:
  explicit Reads(Tracer& tracer) : tracer_(tracer) {}

  bool changes_containers() const { return changes_containers_; }

  void use_class(Borrowed cls) {
    for (const char* name : {"backward", "vjp"}) use_method(cls, name);
  }

 private:
  void use_method(Borrowed cls, const char* name) {
    Ref key = checked(PyUnicode_InternFromString(name));
    Ref found = Ref::share(tracer_.lifter.classes->attribute(cls.as<PyTypeObject>(), key));
    if (found && (Py_IS_TYPE(found.get(), &PyStaticMethod_Type) || Py_IS_TYPE(found.get(), &PyClassMethod_Type)))
      found = checked(PyObject_GetAttrString(found.get(), "__func__"));
    if (found) use(found);
  }

  void use(Borrowed value) {
    if (PyFunction_Check(value.get())) {
      use_function(value);
    } else if (is_autograd_function(value)) {
      if (!seen_.insert(value.get()).second) return;
      use_method(value, "forward");
      use_class(value);
    }
  }

  void use_function(Borrowed function) {
    if (!seen_.insert(function.get()).second || tracer_.lifter.made_here(function)) return;
    lift::Lifter& lifter = tracer_.lifter;
    if (lifter.known(function) == nullptr) (void)lifter.lift(function, lifter.constant(function));
    guard_defaults(function);
    auto* of = function.as<PyFunctionObject>();
    lifter.cells->use_closure(function);
    for (Py_ssize_t i = 0; of->func_closure != nullptr && i < PyTuple_GET_SIZE(of->func_closure); i++) {
      Borrowed cell = PyTuple_GET_ITEM(of->func_closure, i);
      if (!is_code(PyCell_GET(cell.get())) || !lifter.cells->is_preexisting(cell)) continue;
      if (Ref value = lifter.cells->load(cell)) use(value);
    }
    if (!is_of_library(function)) use_code(of->func_code, function);
  }

  void guard_defaults(Borrowed function) {
    lift::Source* source = tracer_.tree->child(tracer_.lifter.known(function)->source, lift::Access::kDefaults);
    if (PyObject* defaults = function.as<PyFunctionObject>()->func_defaults) {
      tracer_.tree->guard(source, {lift::GuardKind::kIs, Ref::share(defaults)});
    } else {
      tracer_.tree->guard(source, {lift::GuardKind::kAbsent});
    }
  }

  void use_code(Borrowed code, Borrowed function) {
    auto* of = code.as<PyCodeObject>();
    const int count = static_cast<int>(Py_SIZE(of));
    for (int at = 0; at < count;) {
      const cpython::Instruction now = cpython::decode(of, at);
      at = now.next;
      if (Borrowed name = cpython::loaded_name(of, now)) {
        const char* text = PyUnicode_AsUTF8(name.get());
        if (text == nullptr) throw PyError();
        if (changes_container(text)) changes_containers_ = true;
        if (cpython::loads_variable(now.opcode)) use_variable(function, name);
      } else if (now.opcode == STORE_SUBSCR || now.opcode == DELETE_SUBSCR ||
                 (now.opcode == BINARY_OP && now.argument >= NB_INPLACE_ADD)) {
        changes_containers_ = true;
      }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(of->co_consts); i++) {
      Borrowed constant = PyTuple_GET_ITEM(of->co_consts, i);
      if (PyCode_Check(constant.get())) use_code(constant, function);
    }
  }

  // alternator/backward_purity.py looks for values other than code: then AOTAutograd is not used.
  void use_variable(Borrowed function, Borrowed name) {
    auto* of = function.as<PyFunctionObject>();
    Borrowed value = PyDict_GetItemWithError(of->func_globals, name.get());
    if (!value && PyErr_Occurred()) throw PyError();
    if (!value && PyDict_Check(of->func_builtins)) value = PyDict_GetItemWithError(of->func_builtins, name.get());
    if (!value && PyErr_Occurred()) throw PyError();
    if (!is_code(value)) return;
    use(load_global(tracer_, of->func_globals, of->func_builtins, name));
  }

  Tracer& tracer_;
  std::unordered_set<PyObject*> seen_;
  bool changes_containers_ = false;
};

// What forward() has stored on ctx, besides the saved tensors.
class Kept {
 public:
  Kept(const Tracer& tracer, Borrowed context, std::span<PyObject* const> arguments)
      : tracer_(tracer), arguments_(arguments) {
    PyObject** dict = context ? _PyObject_GetDictPtr(context.get()) : nullptr;
    if (dict != nullptr && *dict != nullptr) add_items(*dict, 0);
  }

  bool containers = false;  // created in this call
  bool others = false;      // objects that other code may mutate, or that have user-defined methods

 private:
  void add_items(PyObject* dict, int depth) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value) != 0;) {
      add(key, depth);
      add(value, depth);
    }
  }

  void add(Borrowed value, int depth) {
    constexpr int kDeepest = 8;
    PyObject* object = value.get();
    if (lift::is_plain(object)) return;
    const bool is_preexisting = tracer_.lifter.known(value) != nullptr;
    const bool is_given = std::ranges::find(arguments_, object) != arguments_.end();
    if (graph::is_tensor(value) && (is_given || !is_preexisting)) return;
    if (depth == kDeepest) {
      others = true;
    } else if (PyTuple_Check(object) && _PyObject_GetDictPtr(object) == nullptr) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) add(PyTuple_GET_ITEM(object, i), depth + 1);
    } else if (is_preexisting) {
      others = true;
    } else if (PyList_CheckExact(object)) {
      containers = true;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); i++) add(PyList_GET_ITEM(object, i), depth + 1);
    } else if (PyDict_CheckExact(object)) {
      containers = true;
      add_items(object, depth + 1);
    } else {
      others = true;
    }
  }

  const Tracer& tracer_;
  std::span<PyObject* const> arguments_;
};

}  // namespace

bool guard_backward(Tracer& tracer, Borrowed cls, Borrowed context, std::span<PyObject* const> arguments) {
  Reads reads(tracer);
  try {
    reads.use_class(cls);
  } catch (const lift::CannotLift&) {
    return false;
  }
  const Kept kept(tracer, context, arguments);
  return !kept.others && !(kept.containers && reads.changes_containers());
}

}  // namespace alternator::trace
