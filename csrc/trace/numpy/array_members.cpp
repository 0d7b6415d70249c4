#include "trace/numpy/array_members.h"

#include "lift/sources/numpy_types.h"
#include "py/error.h"
#include "py/import.h"
#include "py/lasting.h"

#include <sstream>
#include <string>

namespace alternator::trace {

namespace {

constexpr size_t kAny = 64;  // all arguments

// Methods that do not expose where the memory lies. Not `resize`: it checks the reference count.
constexpr const char* kMethods =
    "all any argmax argmin argpartition argsort astype clip compress conj copy cumprod cumsum diagonal dot fill "
    "flatten item max mean min nonzero partition prod put ravel repeat reshape round searchsorted sort squeeze std sum "
    "swapaxes take tobytes tolist trace transpose var view __copy__";
// They warn only once, for warnings from numpy's modules.
constexpr const char* kWarning = "mean std var median average percentile quantile";

constexpr ArrayCall kUnknown;

void each_word(const char* list, const auto& visit) {
  std::istringstream words(list);
  for (std::string word; words >> word;) visit(word.c_str());
}

// Null: this version of numpy has no such member.
PyObject* member_of_array(const char* name) {
  PyTypeObject* array = lift::array_type();
  return array != nullptr ? _PyType_Lookup(array, checked(PyUnicode_InternFromString(name)).get()) : nullptr;
}

// Of numpy itself; attributes that it creates lazily, some with a warning, are left out.
PyObject* member_of_numpy(const char* name) {
  return Py_XNewRef(PyDict_GetItemString(PyModule_GetDict(import_module("numpy").get()), name));
}

}  // namespace

const ArrayMembers& ArrayMembers::table() {
  static constinit Lasting<const ArrayMembers*> table;
  return *table.get([] { return new ArrayMembers; });
}

ArrayMembers::ArrayMembers() {
  if (lift::numpy_functions().empty()) return;  // there is no numpy
  ufunc = reinterpret_cast<PyTypeObject*>(member_of_numpy("ufunc"));
  where = member_of_numpy("where");
  nan_to_num = member_of_numpy("nan_to_num");
  asarray = member_of_numpy("asarray");
  add_functions();
  add_methods();
  add_attributes("T mT real", ArrayAttribute::kView);
  add_attributes("imag", ArrayAttribute::kImaginary);
  add_attributes("base", ArrayAttribute::kBase);
  add_attributes("dtype itemsize nbytes ndim shape size strides __class__ __doc__", ArrayAttribute::kLayout);
}

ArrayCall* ArrayMembers::named_function(const char* name) {
  PyObject* found = member_of_numpy(name);
  return found != nullptr ? &functions_[found] : nullptr;
}

ArrayCall* ArrayMembers::named_method(const char* name) {
  PyObject* found = member_of_array(name);
  if (found == nullptr || !Py_IS_TYPE(found, &PyMethodDescr_Type)) return nullptr;
  ArrayCall& method = methods_[reinterpret_cast<PyMethodDescrObject*>(found)->d_method];
  method.descriptor = found;
  return &method;
}

void ArrayMembers::add_functions() {
  for (PyObject* function : lift::numpy_functions()) {
    if (is_ufunc(function)) functions_[function].symbolic = kAny;
  }
  const auto add = [&](const char* name, size_t symbolic) {
    if (ArrayCall* function = named_function(name); function != nullptr) function->symbolic = symbolic;
  };
#define ALT_ARRAY_FUNCTION(NAME, SYMBOLIC) add(#NAME, SYMBOLIC);
#define ALT_ARRAY_METHOD(NAME, SYMBOLIC, WRITES)
#include "trace/numpy/array_calls.def"
#undef ALT_ARRAY_FUNCTION
#undef ALT_ARRAY_METHOD
  each_word(kWarning, [&](const char* name) {
    if (ArrayCall* function = named_function(name)) function->warns = true;
  });
  each_word("shape ndim size", [&](const char* name) {
    if (ArrayCall* function = named_function(name)) function->reads_layout = true;
  });
}

void ArrayMembers::add_methods() {
  each_word(kMethods, [&](const char* name) {
    if (ArrayCall* method = named_method(name)) method->computes = true;
  });
  each_word(kWarning, [&](const char* name) {
    if (ArrayCall* method = named_method(name)) method->warns = true;
  });
  const auto add = [&](const char* name, size_t symbolic, bool writes) {
    if (ArrayCall* method = named_method(name); method != nullptr) {
      method->symbolic = symbolic;
      method->writes = writes;
    }
  };
#define ALT_ARRAY_FUNCTION(NAME, SYMBOLIC)
#define ALT_ARRAY_METHOD(NAME, SYMBOLIC, WRITES) add(#NAME, SYMBOLIC, WRITES);
#include "trace/numpy/array_calls.def"
#undef ALT_ARRAY_FUNCTION
#undef ALT_ARRAY_METHOD
}

void ArrayMembers::add_attributes(const char* names, ArrayAttribute attribute) {
  each_word(names, [&](const char* name) {
    if (PyObject* found = member_of_array(name)) attributes_[Py_NewRef(found)] = attribute;
  });
}

const ArrayCall& ArrayMembers::function(Borrowed callable) const {
  const auto found = functions_.find(callable.get());
  return found != functions_.end() ? found->second : kUnknown;
}

const ArrayCall& ArrayMembers::method(Borrowed callable) const {
  PyObject* c = callable.get();
  PyMethodDef* definition = PyCFunction_Check(c)                 ? callable.as<PyCFunctionObject>()->m_ml
                            : Py_IS_TYPE(c, &PyMethodDescr_Type) ? callable.as<PyMethodDescrObject>()->d_method
                                                                 : nullptr;
  const auto found = methods_.find(definition);
  return found != methods_.end() ? found->second : kUnknown;
}

ArrayAttribute ArrayMembers::attribute(Borrowed descriptor) const {
  const auto found = attributes_.find(descriptor.get());
  return found != attributes_.end() ? found->second : ArrayAttribute::kRefused;
}

}  // namespace alternator::trace
