#include "lift/sources/known_types.h"

#include "cpython/objects.h"
#include "lift/sources/numpy_types.h"
#include "py/error.h"
#include "py/import.h"
#include "py/lasting.h"

#include <cstring>
#include <string>

namespace alternator::lift {

const KnownTypes& known_types() {
  static constinit Lasting<const KnownTypes*> types;
  return *types.get([] {
    auto type = [](const char* module, const char* name) {
      Ref owner = import_module(module);
      Ref found = checked(PyObject_GetAttrString(owner.get(), name));
      ALT_CHECK(PyType_Check(found.get()), name);
      return reinterpret_cast<PyTypeObject*>(found.release());  // immortal
    };
    auto native_type = [&](const char* module, const char* name) {
      PyTypeObject* found = type(module, name);
      return cpython::is_native(found, (std::string(module) + "." + name).c_str()) ? found : nullptr;
    };
    check_status(cpython::check_ordered_dict());
    (void)numpy_kind_of(nullptr);
    auto type_of = [](Ref object) { return reinterpret_cast<PyTypeObject*>(Py_NewRef(object.type())); };
    auto* types = new KnownTypes{.deque = type("collections", "deque"),
                                 .default_dict = type("collections", "defaultdict"),
                                 .enum_class = type("enum", "Enum"),
                                 .enum_type = type("enum", "EnumMeta"),
                                 .abc_meta = type("abc", "ABCMeta"),
                                 .partial = type("functools", "partial"),
                                 .finalize = type("weakref", "finalize"),
                                 .simple_namespace = type("types", "SimpleNamespace"),
                                 .pattern = type("re", "Pattern"),
                                 .generic_alias = type("types", "GenericAlias"),
                                 .union_type = type("types", "UnionType"),
                                 .item_getter = type("operator", "itemgetter"),
                                 .attribute_getter = type("operator", "attrgetter"),
                                 .method_caller = type("operator", "methodcaller"),
                                 .type_variable = native_type("typing", "TypeVar"),
                                 .parameter_specification = native_type("typing", "ParamSpec"),
                                 .type_variable_tuple = native_type("typing", "TypeVarTuple")};
    types->module = type("torch.nn.modules.module", "Module");
    types->optimizer = type("torch.optim.optimizer", "Optimizer");
    Ref functools = import_module("functools");
    types->key_wrapper = type_of(checked(PyObject_CallMethod(functools.get(), "cmp_to_key", "O", Py_None)));
    Ref deque = checked(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(types->deque)));
    types->deque_iterator = type_of(checked(PyObject_GetIter(deque.get())));
    return types;
  });
}

bool is_made_by_pybind(PyTypeObject* type) { return std::strcmp(Py_TYPE(type)->tp_name, "pybind11_type") == 0; }

bool is_self_of_function(PyObject* self) {
  return self == nullptr || PyModule_Check(self) || PyCapsule_CheckExact(self) ||
         std::strstr(Py_TYPE(self)->tp_name, "function_record") != nullptr;
}

}  // namespace alternator::lift
