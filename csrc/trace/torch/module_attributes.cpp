// torch.nn.Module functions that every read of a parameter and every call of a submodule runs.
#include "trace/torch/module_attributes.h"
#include "trace/core/tracer.h"

#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/namespaces.h"
#include "py/names.h"
#include "trace/calls/natives.h"

namespace alternator::trace {

// Module.__getattr__ without inlining its frame: the same dicts are read in the same order, and each read is guarded.
// Null: the function itself has to run, because it raises or because one of the dicts is not the plain one that Module
// makes.
Ref module_attribute(Tracer& t, Borrowed module, Borrowed name) {
  lift::Known* known = t.lifter.known(module);
  if (known == nullptr || !known->instance || !PyUnicode_CheckExact(name.get())) return {};
  PyTypeObject* type = module.type();
  const Borrowed getattribute = t.lifter.classes->attribute(type, names::__getattribute__);
  if (getattribute != Borrowed(Natives::table().object_getattribute)) return {};
  const Borrowed dict = t.lifter.classes->attribute(type, names::__dict__);
  if (!dict || !Py_IS_TYPE(dict.get(), &PyGetSetDescr_Type)) return {};
  lift::Shadow* attributes = t.lifter.namespaces->attributes(module);
  if (attributes == nullptr) return {};
  for (PyObject* part : {names::_parameters, names::_buffers, names::_modules}) {
    Ref table = t.lifter.containers->dict_item(*attributes, part);
    if (!table) continue;
    lift::Known* of_table = t.lifter.known(table);
    if (of_table == nullptr || of_table->shadow == nullptr || !PyDict_CheckExact(table.get())) return {};
    if (Ref value = t.lifter.containers->dict_item(*of_table->shadow, name)) return value;
  }
  return {};
}

}  // namespace alternator::trace
