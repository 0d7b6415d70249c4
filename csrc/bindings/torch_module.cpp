// The extension module alternator._C.
#include "py/error.h"
#include "py/names.h"

#include <torch/version.h>

namespace alternator {
namespace {

// The core uses C++ headers of torch that change between releases: alternator/__init__.py compares this with the
// torch that is imported, before anything is called.
void add_build_versions(Borrowed module) {
  check_status(PyModule_AddStringConstant(module.get(), "built_for_torch", TORCH_VERSION));
  check_status(PyModule_AddStringConstant(module.get(), "built_for_python", PY_VERSION));
}

PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "alternator._C", "The core of alternator.", -1, nullptr};

}  // namespace
}  // namespace alternator

PyMODINIT_FUNC PyInit__C() {
  using namespace alternator;
  return guarded([]() -> Ref {
    check_status(init_names());
    Ref module = checked(PyModule_Create(&module_definition));
    add_build_versions(module);
    return module;
  });
}
