#include "graph/record/holds_tensor.h"

#include "graph/record/torch_symbol.h"
#include "graph/record/torch_types.h"

#include <unordered_set>
#include <vector>

namespace alternator::graph {
namespace {

constexpr size_t kMostObjects = 4096;

struct Search {
  std::vector<PyObject*> pending;
  std::unordered_set<PyObject*> seen;
  bool found = false;
};

int visit(PyObject* object, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (is_tensor(object) || is_symbol(object)) {
    search.found = true;
    return 1;
  }
  if (!PyObject_IS_GC(object) || PyType_Check(object) || PyModule_Check(object) || PyCode_Check(object)) return 0;
  if (search.seen.size() > kMostObjects) {
    search.found = true;
    return 1;
  }
  if (search.seen.insert(object).second) search.pending.push_back(object);
  return 0;
}

// What a function itself may hold: its closure, defaults and attributes; not its globals.
void visit_function(PyObject* function, Search& search) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  for (PyObject* part : {f->func_closure, f->func_defaults, f->func_kwdefaults, f->func_dict})
    if (part != nullptr && !search.found) visit(part, &search);
}

}  // namespace

bool holds_tensor(Borrowed object) {
  Search search;
  visit(object.get(), &search);
  while (!search.found && !search.pending.empty()) {
    PyObject* next = search.pending.back();
    search.pending.pop_back();
    if (PyFunction_Check(next)) {
      visit_function(next, search);
    } else if (traverseproc traverse = Py_TYPE(next)->tp_traverse) {
      traverse(next, visit, &search);
    }
  }
  return search.found;
}

}  // namespace alternator::graph
