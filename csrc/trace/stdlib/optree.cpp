// optree, the native twin of torch.utils._pytree. Its functions themselves traverse containers and call what is
// registered for a class: they run eagerly, on trees that are fully lifted. Registrations are read from optree's Python
// table, which mirrors its native one.
#include "trace/stdlib/optree.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/native_callbacks.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/items.h"
#include "trace/soundness/value_text.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/torch/flag_calls.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_modes.h"

#include "lift/lifting/classes.h"
#include "lift/sources/optree_types.h"
#include "py/import.h"
#include "trace/calls/handlers.h"

#include <sstream>
#include <string_view>
#include <unordered_map>

namespace alternator::trace {

namespace {

constexpr int kDeepest = 200;
// Functions that take a namespace: only torch's is allowed.
constexpr std::string_view kNamespace = "torch";

struct Library {
  std::unordered_map<PyObject*, std::string> functions;  // -> name
  PyObject* registry;                                    // the module
  PyObject* is_ordered;                                  // whether dicts keep insertion order; null: another version
};

void each_word(const char* list, const auto& visit) {
  std::istringstream words(list);
  for (std::string word; words >> word;) visit(word);
}

void add_functions(Library* library, const char* module_name, const char* names) {
  Ref module = import_module(module_name);
  each_word(names, [&](const std::string& name) {
    Ref found = Ref::steal(PyObject_GetAttrString(module.get(), name.c_str()));
    PyErr_Clear();  // of another version
    if (found) library->functions.emplace(found.release(), name);
  });
}

void add_methods(Library* library, const char* module_name, const char* type_name, const char* names) {
  Ref type = checked(PyObject_GetAttrString(import_module(module_name).get(), type_name));
  each_word(names, [&](const std::string& name) {
    PyObject* found = PyDict_GetItemString(type.as<PyTypeObject>()->tp_dict, name.c_str());
    if (found != nullptr && PyInstanceMethod_Check(found)) {
      found = PyInstanceMethod_GET_FUNCTION(found);
    } else if (found != nullptr && Py_IS_TYPE(found, &PyProperty_Type)) {
      found = checked(PyObject_GetAttrString(found, "fget")).release();
    }
    if (found != nullptr) library->functions.emplace(Py_NewRef(found), std::string(type_name) + "." + name);
  });
}

// Null: optree is not loaded.
const Library* library() {
  static Library* found = nullptr;
  if (found != nullptr || lift::tree_types() == nullptr) return found;
  auto made = std::make_unique<Library>();
#define ALT_TREES(module, names) add_functions(made.get(), module, names);
#define ALT_TREE_METHODS(module, type, names) add_methods(made.get(), module, type, names);
#include "trace/calls/natives.def"
  made->functions.emplace(reinterpret_cast<PyObject*>(lift::tree_types()->iterator), "PyTreeIter");
  made->registry = import_module("optree.registry").release();
  made->is_ordered = PyObject_GetAttrString(import_module("optree._C").get(), "is_dict_insertion_ordered");
  PyErr_Clear();
  if (found == nullptr) found = made.release();
  return found;
}

bool is_registered_for_a_class(Borrowed key) { return PyTuple_Check(key.get()); }

// A node of a native class of optree, with whose functions native code would read pre-existing objects.
bool has_foreign_node(Borrowed spec) {
  Ref state = checked(PyObject_CallMethod(spec.get(), "__getstate__", nullptr));
  Borrowed nodes = PyTuple_GET_ITEM(state.get(), 0);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes.get()); i++) {
    void* cls = PyTuple_GET_ITEM(PyTuple_GET_ITEM(nodes.get(), i), 4);
    if (cls == lift::tree_types()->spec || cls == lift::tree_types()->iterator) return true;
  }
  return false;
}

}  // namespace

// Which classes are nodes, and their flatten and unflatten functions: read once, from then on guarded.
void Optree::use_registry() {
  if (std::exchange(registry_used_, true)) return;
  Ref module = t.lifter.lift(library()->registry, t.lifter.constant(library()->registry));
  Ref registry = get_attribute(t, module, checked(PyUnicode_InternFromString("_NODETYPE_REGISTRY")));
  if (!PyDict_CheckExact(registry.get())) stop(report::Reason::native_call, "optree of another version");
  t.lifter.escape(registry);
  Ref items = checked(PyDict_Items(registry.get()));
  Ref names[] = {checked(PyUnicode_InternFromString("flatten_func")),
                 checked(PyUnicode_InternFromString("unflatten_func"))};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); i++) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    if (!is_registered_for_a_class(PyTuple_GET_ITEM(item, 0))) continue;  // those are handled by optree's native code
    for (const Ref& name : names) check_callback(t, get_attribute(t, PyTuple_GET_ITEM(item, 1), name), nullptr, 0);
  }
  // Whether dicts are traversed in insertion order or in key order, in torch's namespace and without a namespace.
  if (library()->is_ordered == nullptr) return;
  Ref named = checked(PyUnicode_InternFromString(kNamespace.data()));
  for (PyObject* name_space : {named.get(), checked(PyUnicode_InternFromString("")).get()})
    (void)t.flags->ask(library()->is_ordered, &name_space, 1);
}

// Objects that are nodes by their class alone; keys that user code hashes or compares must not reach native code.
void Optree::check(Borrowed tree, int depth) {
  PyObject* node = tree.get();
  if (depth > kDeepest) stop(report::Reason::native_call, "a tree that is too deep");
  t.lifter.escape(tree);
  if (PyDict_Check(node)) {
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(node, &position, &key, &value);) {
      if (!lift::is_plain(key)) stop(report::Reason::native_call, "a tree with keys of other types");
      check(value, depth + 1);
    }
  } else if (PyTuple_Check(node)) {
    for (const char* name : {"_fields", "_make", "_asdict"}) {
      if (!PyTuple_CheckExact(node))
        t.lifter.classes->attribute(tree.type(), checked(PyUnicode_InternFromString(name)));
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node); i++) check(PyTuple_GET_ITEM(node, i), depth + 1);
  } else if (PyList_Check(node)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(node); i++) check(PyList_GET_ITEM(node, i), depth + 1);
  } else if (tree.type() == lift::known_types().deque) {
    Ref elements = checked(PySequence_Tuple(node));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(elements.get()); i++)
      check(PyTuple_GET_ITEM(elements.get(), i), depth + 1);
  }
}

void Optree::check_argument(const Call& call, size_t i, const std::string& name) {
  Borrowed argument = call.arguments[i];
  if (i > 0) t.backed->make_plain(argument);
  if (fake::is_symbol(argument)) {
    if (i > 0) stop(report::Reason::unbacked_value, name);
  } else if (PyUnicode_Check(argument.get()) && i > 0) {
    if (PyUnicode_CompareWithASCIIString(argument.get(), kNamespace.data()) != 0)
      stop(report::Reason::native_call, name + " in a namespace that is not torch's");
  } else if (i > 0 && PyCallable_Check(argument.get())) {
    check_callback(t, argument, call.arguments, 0);
  } else {
    // Of a leaf only the class is read, which is guarded; what is iterated over is used.
    if (const lift::Known* known = t.lifter.known(argument); i > 0 && known != nullptr && known->opaque)
      check_use(t, argument, name.c_str());
    check_order(t, argument, "a native call");
    check(argument);
  }
}

Ref Optree::call(const Call& call, const std::string& name) {
  use_registry();
  escape_all(t, call);
  for (size_t i = 0; i < call.count(); i++) check_argument(call, i, name);
  t.session.clear_failure();
  Ref result = Ref::steal(PyObject_Vectorcall(
      call.callable.get(), call.arguments, call.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, call.keyword_names.get()));
  if (!result) {
    if (t.function_modes->is_unwinding()) throw PyError();
    if (t.session.failure() != nullptr) stop_for_torch(t, name);
    // Its message may show addresses of objects; an exception from a callback is the program's.
    Ref error = cpython::take_raised();
    Ref traceback = checked(PyObject_GetAttrString(error.get(), "__traceback__"));
    if (traceback.get() == Py_None) stop(report::Reason::native_call, name + ", which fails");
    cpython::set_raised(std::move(error));
    throw PyError();
  }
  Borrowed spec = PyTuple_Check(result.get()) && PyTuple_GET_SIZE(result.get()) > 0
                      ? PyTuple_GET_ITEM(result.get(), PyTuple_GET_SIZE(result.get()) - 1)
                      : result.get();
  if (lift::is_tree_spec(spec.get()) && has_foreign_node(spec))
    stop(report::Reason::native_call, "a node of an optree class");
  return result;
}

bool register_optree(Handlers& handlers) {
  if (library() == nullptr) return false;
  for (const auto& [function, name] : library()->functions) {
    handlers.add(function, [](Tracer& t, const Call& call) {
      const auto found = library()->functions.find(call.callable.get());
      return found != library()->functions.end() ? t.optree->call(call, found->second) : Ref();
    });
  }
  return true;
}

}  // namespace alternator::trace
