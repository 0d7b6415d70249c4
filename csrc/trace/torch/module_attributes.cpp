// torch.nn.Module functions that every read of a parameter and every call of a submodule runs.
#include "trace/core/tracer.h"

#include "py/names.h"
#include "trace/calls/natives.h"

namespace alternator::trace {

// Module.__getattr__ without inlining its frame: the same dicts are read in the same order, and each read is guarded.
// Null: the function itself has to run, because it raises or because one of the dicts is not the plain one that Module
// makes.
Ref Tracer::module_attribute(Borrowed module, Borrowed name) {
  lift::Known* known = lifter.known(module);
  if (known == nullptr || !known->instance || !PyUnicode_CheckExact(name.get())) return {};
  PyTypeObject* type = module.type();
  const Borrowed getattribute = lifter.type_attribute(type, names::__getattribute__);
  if (getattribute != Borrowed(Natives::table().object_getattribute)) return {};
  const Borrowed dict = lifter.type_attribute(type, names::__dict__);
  if (!dict || !Py_IS_TYPE(dict.get(), &PyGetSetDescr_Type)) return {};
  lift::Shadow* attributes = lifter.attributes(module);
  if (attributes == nullptr) return {};
  for (PyObject* part : {names::_parameters, names::_buffers, names::_modules}) {
    Ref table = lifter.dict_item(*attributes, part);
    if (!table) continue;
    lift::Known* of_table = lifter.known(table);
    if (of_table == nullptr || of_table->shadow == nullptr || !PyDict_CheckExact(table.get())) return {};
    if (Ref value = lifter.dict_item(*of_table->shadow, name)) return value;
  }
  return {};
}

}  // namespace alternator::trace
