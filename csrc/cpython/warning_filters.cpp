#include "cpython/version.h"

#include "cpython/warning_filters.h"

#include "py/error.h"

namespace alternator::cpython {

namespace {

// Null: the module is not there, or has no such list.
Borrowed filters_now() {
  const SavedError saved;
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = modules != nullptr ? PyDict_GetItemString(modules, "warnings") : nullptr;
  if (module == nullptr || !PyModule_Check(module)) return {};
  PyObject* filters = PyDict_GetItemString(PyModule_GetDict(module), "filters");
  return filters != nullptr && PyList_CheckExact(filters) ? Borrowed(filters) : Borrowed();
}

}  // namespace

KeepsShownWarnings::KeepsShownWarnings()
    : version_(PyInterpreterState_Get()->warnings.filters_version), filters_(Ref::share(filters_now())) {
  if (!filters_) return;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters_.get()); i++)
    items_.push_back(Ref::share(PyList_GET_ITEM(filters_.get(), i)));
}

KeepsShownWarnings::~KeepsShownWarnings() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (!filters_ || interpreter->warnings.filters_version == version_) return;
  if (filters_now() != Borrowed(filters_)) return;
  size_t kept = 0;  // filters may have been added in between
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters_.get()) && kept < items_.size(); i++) {
    if (PyList_GET_ITEM(filters_.get(), i) == items_[kept].get()) kept++;
  }
  if (kept == items_.size()) interpreter->warnings.filters_version = version_;
}

}  // namespace alternator::cpython
