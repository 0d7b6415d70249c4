#include "trace/calls/natives.h"

#include "trace/torch/scoped_modes.h"

#include "fake/python_tensor.h"
#include "lift/lifting/pointer_tables.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/optree_types.h"
#include "py/import.h"
#include "py/lasting.h"

#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>

namespace alternator::trace {

struct Natives::Sets {
  lift::PointerSet<PyObject> functions, torch, recorded, unseen, computed, communicating;
  lift::PointerSet<PyTypeObject> types;
  std::unordered_set<std::string> denied;  // "date.today"
  PyTypeObject* op_overload = nullptr;
  PyTypeObject* op_packet = nullptr;
};

const Natives& Natives::table() {
  static constinit Lasting<const Natives*> table;
  return *table.get([] { return new Natives; });
}

template <class Visit>
static void each_name(const char* module_name, const char* list, Visit&& visit) {
  Ref module = import_module(module_name);
  std::istringstream words(list);
  for (std::string word; words >> word;) {
    Ref object = Ref::steal(PyObject_GetAttrString(module.get(), word.c_str()));
    if (object) {
      visit(object.release());  // lives as long as the process
    } else {
      PyErr_Clear();  // a name that only other versions have
    }
  }
}

static PyObject* builtin(const char* name) {
  PyObject* found = PyDict_GetItemString(PyEval_GetBuiltins(), name);
  if (found == nullptr) throw InternalError(std::string("no builtin named ") + name);
  return Py_NewRef(found);
}

// What torch.Tensor inherits from `object`, such as object.__new__.
static bool is_of_object(Borrowed callable) {
  if (PyCFunction_Check(callable.get()))
    return PyCFunction_GET_SELF(callable.get()) == reinterpret_cast<PyObject*>(&PyBaseObject_Type);
  if (callable.type() == &PyMethodDescr_Type || callable.type() == &PyWrapperDescr_Type)
    return reinterpret_cast<PyDescrObject*>(callable.get())->d_type == &PyBaseObject_Type;
  return false;
}

// torch.distributed.all_reduce() and the like: no operator schema states what they mutate, and other processes wait for
// them.
static bool communicates_with_others(Borrowed callable) {
  if (!PyFunction_Check(callable.get())) return false;
  PyObject* module = callable.as<PyFunctionObject>()->func_module;
  const char* name = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  return name != nullptr && std::string_view(name).starts_with("torch.distributed");
}

// torch functions that set, or read, process state that no node saves and no guard covers; and those that do not
// compute.
static bool uses_process_state(Borrowed callable) {
  if (!PyCFunction_Check(callable.get())) return false;
  static constexpr std::string_view kNames[] = {"set_anomaly_enabled",
                                                "set_flush_denormal",
                                                "set_num_threads",
                                                "set_num_interop_threads",
                                                "init_num_threads",
                                                "get_num_interop_threads",
                                                "get_num_threads",
                                                "import_ir_module",
                                                "from_file",
                                                "import_ir_module_from_buffer",
                                                "fork",
                                                "wait"};
  return std::find(std::begin(kNames), std::end(kNames), callable.as<PyCFunctionObject>()->m_ml->ml_name) !=
         std::end(kNames);
}

Natives::Natives() : sets_(new Sets) {
#define ALT_FUNCTIONS(module, names) \
  each_name(module, names, [&](PyObject* object) { sets_->functions.insert(object); });
#define ALT_TYPES(module, names)                                                            \
  each_name(module, names, [&](PyObject* object) {                                          \
    if (PyType_Check(object)) sets_->types.insert(reinterpret_cast<PyTypeObject*>(object)); \
  });
#define ALT_DENIED(module, names)                                      \
  {                                                                    \
    std::istringstream words(names);                                   \
    for (std::string word; words >> word;) sets_->denied.insert(word); \
  }
#define ALT_RECORDED_OPENLY(module, names)         \
  each_name(module, names, [&](PyObject* object) { \
    sets_->torch.insert(object);                   \
    sets_->recorded.insert(object);                \
  });
#define ALT_RECORDED(module, names)  \
  ALT_RECORDED_OPENLY(module, names) \
  each_name(module, names, [&](PyObject* object) { sets_->unseen.insert(object); });
#define ALT_COMPUTED(module, names) each_name(module, names, [&](PyObject* object) { sets_->computed.insert(object); });
#define ALT_TREES(module, names)
#define ALT_TREE_METHODS(module, type, names)
#include "trace/calls/natives.def"
#undef ALT_TREE_METHODS
#undef ALT_TREES
#undef ALT_COMPUTED
#undef ALT_RECORDED
#undef ALT_RECORDED_OPENLY
#undef ALT_DENIED
#undef ALT_FUNCTIONS
#undef ALT_TYPES
  // Iterators of builtin containers.
  for (PyTypeObject* type :
       {&PyListIter_Type, &PyListRevIter_Type, &PyTupleIter_Type, &PyDictIterKey_Type, &PyDictIterValue_Type,
        &PyDictIterItem_Type, &PyDictRevIterKey_Type, &PyDictKeys_Type, &PyDictValues_Type, &PyDictItems_Type,
        &PySetIter_Type, &PyRangeIter_Type, &PyLongRangeIter_Type, &PyUnicodeIter_Type, &PyBytesIter_Type,
        &PySeqIter_Type, &PyCallIter_Type}) {
    sets_->types.insert(type);
  }
  for (const char* text : {"type(iter(collections.deque()))",
                           "type(reversed(collections.deque()))",
                           "type(iter(collections.OrderedDict()))",
                           "type(collections.OrderedDict().keys())",
                           "type(collections.OrderedDict().values())",
                           "type(collections.OrderedDict().items())",
                           "type(reversed({}))",
                           "type(reversed({}.values()))",
                           "type(reversed({}.items()))",
                           "type(iter(bytearray()))",
                           "type(iter(''))",
                           "type(iter('\\u1234'))",
                           "type(iter(memoryview(b'')))",
                           "type(re.compile('').scanner(''))",
                           "type(itertools.tee(())[0])",
                           "type(functools.cmp_to_key(id)(0))",
                           "type(re.finditer('', ''))",
                           "type(struct.iter_unpack('b', b''))",
                           "type(_decimal.localcontext())",
                           "type(_decimal.Context().flags).__mro__[1]",
                           "type(_string.formatter_parser(''))",
                           "type(_string.formatter_field_name_split('a')[1])"}) {
    Ref names = checked(PyDict_New());
    for (const char* module_name : {"collections", "re", "itertools", "functools", "struct", "_string", "_decimal"})
      check_status(PyDict_SetItemString(names.get(), module_name, import_module(module_name).get()));
    check_status(PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins()));
    Ref type = checked(PyRun_String(text, Py_eval_input, names.get(), names.get()));
    sets_->types.insert(reinterpret_cast<PyTypeObject*>(type.release()));
  }
  if (lift::decimal_types() == nullptr) {
    lift::PointerSet<PyTypeObject> others;
    for (PyTypeObject* type : sets_->types) {
      if (strncmp(type->tp_name, "decimal.", 8) != 0) others.insert(type);
    }
    sets_->types = std::move(others);
  }
  Ref overrides = import_module("torch.overrides");
  Ref table = checked(PyObject_CallMethod(overrides.get(), "get_testing_overrides", nullptr));
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(table.get(), &position, &key, &value);) {
    if (is_of_object(key)) continue;
    (communicates_with_others(key) ? sets_->communicating : sets_->torch).insert(Py_NewRef(key));
  }
  Ref ignored = checked(PyObject_CallMethod(overrides.get(), "get_ignored_functions", nullptr));
  Ref iterator = checked(PyObject_GetIter(ignored.get()));
  while (Ref item = Ref::steal(PyIter_Next(iterator.get()))) {
    // Factories and queries that torch implements natively; Python ones are traced like any other.
    if (!is_of_object(item) && !uses_process_state(item) &&
        (PyCFunction_Check(item.get()) || Py_IS_TYPE(item.get(), &PyMethodDescr_Type)))
      sets_->torch.insert(item.release());
  }
  if (PyErr_Occurred()) throw PyError();
  // The functions behind torch.*, torch._VF.* and torch.nn.functional.*, public or not.
  Ref core = import_module("torch._C");
  for (const char* name : {"_VariableFunctions", "_nn", "_linalg", "_fft", "_special", "_nested", "_sparse"}) {
    Ref part = Ref::steal(PyObject_GetAttrString(core.get(), name));
    Ref words = part ? Ref::steal(PyObject_Dir(part.get())) : Ref();
    for (Py_ssize_t i = 0; words && i < PyList_GET_SIZE(words.get()); i++) {
      Ref function = Ref::steal(PyObject_GetAttr(part.get(), PyList_GET_ITEM(words.get(), i)));
      if (!function || !PyCFunction_Check(function.get())) continue;
      // What the namespace object inherits from its type, such as __dir__, is a method of it.
      const std::string_view word = function.as<PyCFunctionObject>()->m_ml->ml_name;
      if (PyCFunction_GET_SELF(function.get()) != part.get() || !word.starts_with("__"))
        sets_->torch.insert(function.release());
    }
    PyErr_Clear();  // a namespace that only other versions of torch have
  }
  Ref ops = import_module("torch._ops");
  sets_->op_overload =
      reinterpret_cast<PyTypeObject*>(checked(PyObject_GetAttrString(ops.get(), "OpOverload")).release());
  sets_->op_packet =
      reinterpret_cast<PyTypeObject*>(checked(PyObject_GetAttrString(ops.get(), "OpOverloadPacket")).release());

  getattr = builtin("getattr");
  setattr = builtin("setattr");
  hasattr = builtin("hasattr");
  delattr = builtin("delattr");
  vars = builtin("vars");
  id = builtin("id");
  hash = builtin("hash");
  next = builtin("next");
  cond = checked(PyObject_GetAttrString(import_module("torch").get(), "cond")).release();
  dir = builtin("dir");
  len = builtin("len");
  isinstance = builtin("isinstance");
  super_type = builtin("super");
  build_class = builtin("__build_class__");
  type_type = builtin("type");
  print = builtin("print");
  auto of_type = [](PyTypeObject* type, const char* name) {
    return checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name)).release();
  };
  auto of_module = [](const char* module_name, const char* name) {
    return checked(PyObject_GetAttrString(import_module(module_name).get(), name)).release();
  };
  tensor_hash = checked(PyObject_GetAttrString(THPVariableClass, "__hash__")).release();
  function_base = of_module("torch._C", "_FunctionBase");
  Ref checkpoints = import_module("torch.utils.checkpoint");
  Ref shielded_checkpoint = checked(PyObject_GetAttrString(checkpoints.get(), "checkpoint"));
  checkpoint = checked(PyObject_GetAttrString(shielded_checkpoint.get(), "__wrapped__")).release();
  no_context = checked(PyObject_GetAttrString(checkpoints.get(), "noop_context_fn")).release();
  sets_->types.insert(&inference_scope_type);
  sets_->types.insert(&subclass_scope_type);
  setup_context =
      checked(PyObject_GetAttrString(
                  checked(PyObject_GetAttrString(import_module("torch.autograd.function").get(), "Function")).get(),
                  "setup_context"))
          .release();
  Ref function_class = Ref::steal(of_module("torch.autograd.function", "Function"));
  Ref apply = checked(PyObject_GetAttrString(function_class.get(), "apply"));
  function_apply = checked(PyObject_GetAttrString(apply.get(), "__func__")).release();
  backward_hook = of_module("torch.nn.modules._functions", "BackwardHookFunction");
  transformed_apply = of_module("torch._functorch.autograd_function", "custom_function_call");
  // Every function that the decorator makes runs this code.
  Ref decorator = Ref::steal(of_module("torch._compile", "_disable_dynamo"));
  Ref shielded = checked(PyObject_CallOneArg(decorator.get(), decorator.get()));
  shield_code = Py_NewRef(PyFunction_GET_CODE(shielded.get()));
  Ref module_class = Ref::steal(of_module("torch.nn.modules.module", "Module"));
  Ref module_call = checked(PyObject_GetAttrString(module_class.get(), "_call_impl"));
  module_call_code = PyFunction_Check(module_call.get()) ? Py_NewRef(PyFunction_GET_CODE(module_call.get())) : nullptr;
  Ref module_getattr = checked(PyObject_GetAttrString(module_class.get(), "__getattr__"));
  module_getattr_code =
      PyFunction_Check(module_getattr.get()) ? Py_NewRef(PyFunction_GET_CODE(module_getattr.get())) : nullptr;
  Ref module_entry = checked(PyObject_GetAttrString(module_class.get(), "_wrapped_call_impl"));
  module_entry_code =
      PyFunction_Check(module_entry.get()) ? Py_NewRef(PyFunction_GET_CODE(module_entry.get())) : nullptr;
  optimizer_code = nullptr;  // what every step() of an optimizer is wrapped in
  Ref wraps_steps = Ref::steal(of_module("torch.optim.optimizer", "_use_grad_for_differentiable"));
  if (PyFunction_Check(wraps_steps.get())) {
    PyObject* constants = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(wraps_steps.get()))->co_consts;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
      if (PyObject* inner = PyTuple_GET_ITEM(constants, i); PyCode_Check(inner)) optimizer_code = Py_NewRef(inner);
    }
  }
  object_class = Py_NewRef(_PyType_Lookup(&PyBaseObject_Type, checked(PyUnicode_InternFromString("__class__")).get()));
  get_ident = of_module("_thread", "get_ident");
  abc_token = of_module("_abc", "get_cache_token");
  queries.push_back(abc_token);
  exc_info = of_module("sys", "exc_info");
  for (const char* name :
       {"getrecursionlimit", "get_int_max_str_digits", "gettrace", "getprofile", "getdefaultencoding",
        "getfilesystemencoding", "getfilesystemencodeerrors", "getswitchinterval", "is_finalizing"}) {
    queries.push_back(of_module("sys", name));
  }
  Ref torch_core = import_module("torch._C");
  for (const char* name :
       {"_accelerator_getAccelerator", "_cuda_getDeviceCount", "get_num_threads", "get_num_interop_threads"}) {
    if (PyObject* found = PyObject_GetAttrString(torch_core.get(), name)) queries.push_back(found);
    PyErr_Clear();  // only in other builds
  }
  globals = builtin("globals");
  locals = builtin("locals");
  eval = builtin("eval");
  exec = builtin("exec");
  compile = builtin("compile");
  get_frame = of_module("sys", "_getframe");
  get_module_name = Py_XNewRef(PySys_GetObject("_getframemodulename"));  // from 3.12 on
  generic = of_module("typing", "Generic");
  subclasses = of_type(&PyType_Type, "__subclasses__");
  abc_init = of_module("_abc", "_abc_init");
  object_getattribute = of_type(&PyBaseObject_Type, "__getattribute__");
  object_setattr = of_type(&PyBaseObject_Type, "__setattr__");
  object_delattr = of_type(&PyBaseObject_Type, "__delattr__");
  type_setattr = of_type(&PyType_Type, "__setattr__");
  type_delattr = of_type(&PyType_Type, "__delattr__");
  dict_get = of_type(&PyDict_Type, "get");
  list_append = of_type(&PyList_Type, "append");
}

bool Natives::type(PyTypeObject* type) const {
  if (sets_->types.count(type) != 0) return true;
  const lift::TreeTypes* trees = lift::tree_types();
  return trees != nullptr && (type == trees->spec || type == trees->iterator);
}

bool Natives::recorded(Borrowed callable) const { return sets_->recorded.count(callable.get()) != 0; }
void Natives::each_recorded(const std::function<void(Borrowed)>& visit) const {
  for (PyObject* function : sets_->recorded) visit(function);
}
bool Natives::computed(Borrowed callable) const { return sets_->computed.count(callable.get()) != 0; }
bool Natives::communicates(Borrowed callable) const { return sets_->communicating.count(callable.get()) != 0; }
bool Natives::unseen(Borrowed callable) const { return sets_->unseen.count(callable.get()) != 0; }

bool Natives::torch(Borrowed callable) const {
  if (sets_->torch.count(callable.get()) != 0) return true;
  PyTypeObject* type = callable.type();
  if (type == sets_->op_overload || type == sets_->op_packet) return true;
  if (PyCFunction_Check(callable.get())) {
    PyObject* self = PyCFunction_GET_SELF(callable.get());
    if (self != nullptr && fake::is_tensor_object(self)) return true;
    // torch.relu and the like are methods of a class object; bound again on each look-up.
    return self != nullptr && PyType_Check(self) &&
           strncmp(reinterpret_cast<PyTypeObject*>(self)->tp_name, "torch._C._VariableFunctions", 27) == 0;
  }
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type) {
    PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(callable.get())->d_type;
    return PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(THPVariableClass), owner) && owner != &PyBaseObject_Type;
  }
  if (type == &_PyMethodWrapper_Type) {
    Ref self = Ref::steal(PyObject_GetAttrString(callable.get(), "__self__"));
    PyErr_Clear();
    return self && fake::is_tensor_object(self.get());
  }
  return false;
}

static PyTypeObject* static_base(PyTypeObject* type) {
  while (type != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) type = type->tp_base;
  return type;
}

// A class method is bound to the class that it was looked up on, so that the denied name is searched along the bases.
bool Natives::is_denied(Borrowed callable) const {
  PyTypeObject* owner = nullptr;
  const char* name = nullptr;
  if (PyCFunction_Check(callable.get())) {
    PyObject* self = PyCFunction_GET_SELF(callable.get());
    if (self == nullptr || PyModule_Check(self)) return false;
    owner = PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
    name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
  } else if (callable.type() == &PyMethodDescr_Type || callable.type() == &PyClassMethodDescr_Type) {
    owner = reinterpret_cast<PyDescrObject*>(callable.get())->d_type;
    name = reinterpret_cast<PyMethodDescrObject*>(callable.get())->d_method->ml_name;
  }
  for (PyTypeObject* type = owner; type != nullptr && name != nullptr; type = type->tp_base) {
    const char* dot = strrchr(type->tp_name, '.');
    if (sets_->denied.count(std::string(dot != nullptr ? dot + 1 : type->tp_name) + "." + name) != 0) return true;
  }
  return false;
}

bool Natives::function(Borrowed callable) const {
  if (is_denied(callable)) return false;
  if (sets_->functions.count(callable.get()) != 0) return true;
  if (PyCFunction_Check(callable.get())) {
    const auto* function = callable.as<PyCFunctionObject>();
    // A static method, such as str.maketrans, is not passed its type, but has it in m_self.
    PyObject* self = function->m_self;
    if (self == nullptr || PyModule_Check(self)) return false;
    if ((function->m_ml->ml_flags & METH_STATIC) != 0 && !PyType_Check(self)) return false;
    PyTypeObject* owner = PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
    // A pybind11 function keeps a record in m_self, and is no method of that.
    if (strstr(owner->tp_name, "pybind11_detail_function_record") != nullptr) return false;
    // A method of a lifted or private object of a known type; what a class inherits from `object` is harmless.
    PyTypeObject* base = type(owner) ? owner : static_base(owner);
    return base != nullptr && type(base);
  }
  PyTypeObject* kind = callable.type();
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type) {
    return type(reinterpret_cast<PyDescrObject*>(callable.get())->d_type);
  }
  if (kind == &_PyMethodWrapper_Type) return true;  // bound: its self is lifted, its type is checked at look-up
  return type(kind);                                // itemgetter, partial, ...
}

static std::string text_or_empty(PyObject* text) {
  const char* utf8 = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (utf8 == nullptr) PyErr_Clear();
  return utf8 != nullptr ? utf8 : "";
}

static std::string joined(std::string owner, const std::string& name) {
  if (owner.empty() || name.empty()) return owner + name;
  owner += '.';
  return owner += name;
}

// type.__qualname__
static std::string qualified_name(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0)
    return text_or_empty(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
  const char* dot = strrchr(type->tp_name, '.');
  return dot != nullptr ? dot + 1 : type->tp_name;
}

// `__module__` and `__qualname__` of objects that store them in fields; empty: they must be read as attributes.
static std::string plain_name(Borrowed callable) {
  if (callable.type() == &PyMethodDescr_Type) {
    return joined(qualified_name(reinterpret_cast<PyDescrObject*>(callable.get())->d_type),
                  callable.as<PyMethodDescrObject>()->d_method->ml_name);
  }
  if (PyFunction_Check(callable.get())) {
    auto* function = callable.as<PyFunctionObject>();
    return joined(text_or_empty(function->func_module), text_or_empty(function->func_qualname));
  }
  if (!PyCFunction_CheckExact(callable.get())) return {};
  auto* function = callable.as<PyCFunctionObject>();
  PyObject* self = PyCFunction_GET_SELF(callable.get());
  std::string owner = text_or_empty(function->m_module);
  if (self != nullptr && !PyModule_Check(self))
    owner = joined(owner, qualified_name(PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self)));
  return joined(std::move(owner), function->m_ml->ml_name);
}

std::string native_name(Borrowed callable) {
  std::string result = plain_name(callable);
  if (!result.empty()) return result;
  for (const char* attribute : {"__module__", "__qualname__"}) {
    Ref text = Ref::steal(PyObject_GetAttrString(callable.get(), attribute));
    result = joined(std::move(result), text_or_empty(text.get()));
    PyErr_Clear();
  }
  return result.empty() ? callable.type()->tp_name : result;
}

}  // namespace alternator::trace
