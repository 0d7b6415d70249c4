// Resolves the rows of natives.def. A name that this version of CPython or torch lacks is left out.
#include "trace/calls/native_tables.h"

#include "trace/torch/scoped_modes.h"

#include "cpython/objects.h"
#include "lift/sources/decimal_values.h"
#include "py/import.h"

#include <sstream>
#include <string>

namespace alternator::trace {

using namespace native;

namespace {

template <class Visit>
void each_word(const char* list, Visit&& visit) {
  std::istringstream words(list);
  for (std::string word; words >> word;) visit(word);
}

// Passes objects that live as long as the process.
template <class Visit>
void each_attribute(Borrowed owner, const char* names, Visit&& visit) {
  each_word(names, [&](const std::string& name) {
    if (PyObject* found = PyObject_GetAttrString(owner.get(), name.c_str()))
      visit(found);
    else
      PyErr_Clear();
  });
}

template <class Visit>
void each_of_module(const char* module, const char* names, Visit&& visit) {
  each_attribute(import_module(module), names, visit);
}

// "collections.OrderedDict"
Ref type_at(const std::string& path) {
  const size_t dot = path.rfind('.');
  return checked(
      PyObject_GetAttrString(import_module(path.substr(0, dot).c_str()).get(), path.substr(dot + 1).c_str()));
}

// What torch.Tensor inherits from `object`, such as object.__new__.
bool is_of_object(Borrowed callable) {
  if (PyCFunction_Check(callable.get()))
    return PyCFunction_GET_SELF(callable.get()) == reinterpret_cast<PyObject*>(&PyBaseObject_Type);
  if (callable.type() == &PyMethodDescr_Type || callable.type() == &PyWrapperDescr_Type)
    return reinterpret_cast<PyDescrObject*>(callable.get())->d_type == &PyBaseObject_Type;
  return false;
}

// torch.distributed.all_reduce() and the like: no operator schema states what they mutate, and other processes wait for
// them.
bool communicates_with_others(Borrowed callable) {
  if (!PyFunction_Check(callable.get())) return false;
  PyObject* module = callable.as<PyFunctionObject>()->func_module;
  const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  return name != nullptr && std::string_view(name).starts_with("torch.distributed");
}

// The modules that the expressions of ALT_TYPE_OF name.
Ref names_of_expressions() {
  Ref names = checked(PyDict_New());
  for (const char* module : {"collections", "re", "itertools", "functools", "struct", "_string", "_decimal"})
    check_status(PyDict_SetItemString(names.get(), module, import_module(module).get()));
  check_status(PyDict_SetItemString(names.get(), "__builtins__", import_module("builtins").get()));
  return names;
}

}  // namespace

Natives::Natives() : tables_(new Tables) {
  resolve_identities();
  tables_->constructor = reinterpret_cast<PyCFunctionObject*>(object_new)->m_ml;
  add_types();
  add_functions();
  add_methods();
  add_torch_functions();
}

void Natives::add_types() {
  const auto add = [&](PyObject* object, uint64_t flags) {
    const bool is_unknown = (flags & kDecimal) != 0 && lift::decimal_types() == nullptr;
    if (PyType_Check(object) && !is_unknown) tables_->types[reinterpret_cast<PyTypeObject*>(object)] |= flags;
  };
  const Ref names = names_of_expressions();
#define ALT_TYPES(module, flags, names) each_of_module(module, names, [&](PyObject* object) { add(object, flags); });
#define ALT_TYPE_OF(flags, expression) \
  add(checked(PyRun_String(expression, Py_eval_input, names.get(), names.get())).release(), flags);
#include "trace/calls/natives.def"
  // Iterators and views of builtin containers; what the tracer itself makes.
  for (PyTypeObject* type :
       {&PyListIter_Type, &PyListRevIter_Type, &PyTupleIter_Type, &PyDictIterKey_Type, &PyDictIterValue_Type,
        &PyDictIterItem_Type, &PyDictRevIterKey_Type, &PyDictKeys_Type, &PyDictValues_Type, &PyDictItems_Type,
        &PySetIter_Type, &PyRangeIter_Type, &PyLongRangeIter_Type, &PyUnicodeIter_Type, &PyBytesIter_Type,
        &PySeqIter_Type, &PyCallIter_Type, &inference_scope_type, &subclass_scope_type}) {
    tables_->types.emplace(type, kPlain);
  }
}

void Natives::add_functions() {
#define ALT_FUNCTIONS(module, flags, names) \
  each_of_module(module, names,             \
                 [&](PyObject* object) { tables_->callables[tables_->key_of(object)] |= kListed | (flags); });
#define ALT_QUERIES(module, names) each_of_module(module, names, [&](PyObject* object) { queries.push_back(object); });
#define ALT_COMPUTED(module, names) \
  each_of_module(module, names, [&](PyObject* object) { tables_->computed.insert(object); });
#include "trace/calls/natives.def"
}

// Every method of the types is entered, with no flags too: a look-up that finds nothing is about another type.
void Natives::add_methods() {
#define ALT_ANY_TYPE(flags, names)                       \
  each_word(names, [&](const std::string& name) {        \
    /* lives as long as the process */                   \
    tables_->by_name[*new std::string(name)] |= (flags); \
  });
#include "trace/calls/natives.def"
  for (const auto& [listed, constructor_flags] : tables_->types) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(listed->tp_mro); i++) {
      auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(listed->tp_mro, i));
      PyObject *name, *attribute;
      for (Py_ssize_t position = 0; PyDict_Next(cpython::own_dict(type), &position, &name, &attribute) != 0;) {
        const std::string_view defined = defined_name(attribute);
        if (defined.empty()) continue;
        const auto entered = tables_->callables.emplace(tables_->key_of(attribute), tables_->flags_by_name(defined));
        if (entered.second) Py_INCREF(attribute);  // a program may delete it from its type
      }
    }
  }
#define ALT_METHODS(type, flags, names) \
  each_attribute(type_at(type), names,  \
                 [&](PyObject* method) { tables_->callables[tables_->key_of(method)] |= (flags); });
#include "trace/calls/natives.def"
}

void Natives::add_torch_functions() {
  Tables& tables = *tables_;
#define ALT_RECORDED_OPENLY(module, names)              \
  each_of_module(module, names, [&](PyObject* object) { \
    tables.torch.insert(object);                        \
    tables.recorded.insert(object);                     \
  });
#define ALT_RECORDED(module, names)                     \
  each_of_module(module, names, [&](PyObject* object) { \
    tables.torch.insert(object);                        \
    tables.recorded.insert(object);                     \
    tables.unseen.insert(object);                       \
  });
#include "trace/calls/natives.def"

  Ref overrides = import_module("torch.overrides");
  Ref overridable = checked(PyObject_CallMethod(overrides.get(), "get_testing_overrides", nullptr));
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(overridable.get(), &position, &key, &value) != 0;) {
    if (is_of_object(key)) continue;
    (communicates_with_others(key) ? tables.communicating : tables.torch).insert(Py_NewRef(key));
  }
  lift::PointerSet<PyObject> unrecorded;
#define ALT_UNRECORDED(module, names) \
  each_of_module(module, names, [&](PyObject* object) { unrecorded.insert(object); });
#include "trace/calls/natives.def"
  Ref ignored = checked(PyObject_CallMethod(overrides.get(), "get_ignored_functions", nullptr));
  Ref iterator = checked(PyObject_GetIter(ignored.get()));
  while (Ref item = Ref::steal(PyIter_Next(iterator.get()))) {
    // Factories and queries that torch implements natively; Python ones are traced like any other.
    if (!is_of_object(item) && unrecorded.count(item.get()) == 0 &&
        (PyCFunction_Check(item.get()) || Py_IS_TYPE(item.get(), &PyMethodDescr_Type)))
      tables.torch.insert(item.release());
  }
  if (PyErr_Occurred()) throw PyError();

  const auto add_namespace = [&](PyObject* space) {
    Ref words = checked(PyObject_Dir(space));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(words.get()); i++) {
      Ref function = Ref::steal(PyObject_GetAttr(space, PyList_GET_ITEM(words.get(), i)));
      if (!function) PyErr_Clear();
      if (!function || !PyCFunction_Check(function.get())) continue;
      // What the namespace object inherits from its type, such as __dir__, is a method of it.
      if (PyCFunction_GET_SELF(function.get()) != space || !defined_name(function).starts_with("__"))
        tables.torch.insert(function.release());
    }
  };
#define ALT_NAMESPACES(module, names) each_of_module(module, names, add_namespace);
#include "trace/calls/natives.def"
  tables.op_overload = reinterpret_cast<PyTypeObject*>(type_at("torch._ops.OpOverload").release());
  tables.op_packet = reinterpret_cast<PyTypeObject*>(type_at("torch._ops.OpOverloadPacket").release());
  tables.variable_functions = reinterpret_cast<PyTypeObject*>(type_at("torch._C._VariableFunctionsClass").release());
}

}  // namespace alternator::trace
