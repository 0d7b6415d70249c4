#include "trace/torch/tensor_members.h"

#include "lift/sources/pointer_tables.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"

#include "graph/record/torch_types.h"

#include <unordered_map>

namespace alternator::trace {

namespace {

const std::vector<std::pair<const char*, MemberFlags>>& rows() {
  struct Rows : TensorMember {
    std::vector<std::pair<const char*, MemberFlags>> all = {
#define ALT_MEMBER(name, flags) {name, flags},
#include "trace/torch/tensor_members.def"
#undef ALT_MEMBER
    };
  };
  static const auto* const table = new Rows;
  return table->all;
}

struct Methods {
  lift::PointerMap<const void, MemberFlags> flags;

  Methods() {
    for (const auto& [name, of_row] : rows()) {
      Ref method = Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(graph::torch_types().tensor), name));
      if (!method) PyErr_Clear();  // only in other versions of torch
      if (!method || (!PyFunction_Check(method.get()) && !Py_IS_TYPE(method.get(), &PyMethodDescr_Type))) continue;
      flags[Handlers::key_of(method.release())] = of_row;  // lives as long as the process
    }
  }
};

}  // namespace

MemberFlags member_flags(std::string_view attribute) {
  static const auto* const by_name = [] {
    auto* found = new std::unordered_map<std::string_view, MemberFlags>;
    for (const auto& [name, flags] : rows()) (*found)[name] = flags;
    return found;
  }();
  const auto found = by_name->find(attribute);
  return found != by_name->end() ? found->second : MemberFlags();
}

MemberFlags method_flags(Borrowed callable) {
  static constinit Lasting<Methods> lasting;
  const Methods& methods = lasting.get();
  PyObject* function = PyMethod_Check(callable.get()) ? PyMethod_GET_FUNCTION(callable.get()) : callable.get();
  const auto found = methods.flags.find(Handlers::key_of(function));
  return found != methods.flags.end() ? found->second : MemberFlags();
}

}  // namespace alternator::trace
