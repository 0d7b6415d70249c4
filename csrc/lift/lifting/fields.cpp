// Fields of pre-existing objects outside of their instance dicts.
#include "lift/lifting/fields.h"

#include "lift/lifting/lifter.h"

namespace alternator::lift {

Ref Fields::load(Borrowed instance, Borrowed name, Borrowed descriptor) {
  lifter_.note_read(instance);
  Ref key = lifter_.intern_key(name);
  auto found = fields_.find({instance.get(), key.get()});
  if (found != fields_.end()) return found->second.value;
  Known* k = lifter_.known(instance);
  Source* source = lifter_.tree().child(k->source, Access::kField, key);
  Ref value = Ref::steal(descriptor.type()->tp_descr_get(descriptor.get(), k->original.get(),
                                                         reinterpret_cast<PyObject*>(instance.type())));
  Ref lifted;
  if (value) {
    lifted = lifter_.lift(value, source);
  } else {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PyError();
    PyErr_Clear();
    lifter_.guard(source, GuardKind::kAbsent);
  }
  fields_[{instance.get(), key.get()}].value = lifted;
  lifter_.keep(std::move(key));
  return lifted;
}

void Fields::store(Borrowed instance, Borrowed name, Ref value) {
  lifter_.note_read(name);
  Ref key = lifter_.intern_key(name);
  Variable& field = fields_[{instance.get(), key.get()}];
  if (!field.written) written_.push_back({instance.get(), key.get()});
  field.written = true;
  field.value = std::move(value);
  lifter_.keep(std::move(key));
}

std::optional<Ref> Fields::written(Borrowed instance, Borrowed name) {
  Ref key = lifter_.intern_key(name);
  auto found = fields_.find({instance.get(), key.get()});
  if (found == fields_.end() || !found->second.written) return std::nullopt;
  return found->second.value;
}

void Fields::add_writes(std::vector<VariableWrite>& writes) const {
  for (const VariableKey& key : written_) {
    const Known* owner = lifter_.known(key.owner);
    writes.push_back({VariableKind::kField, owner->source, Ref::share(key.name), fields_.at(key).value});
  }
}

}  // namespace alternator::lift
