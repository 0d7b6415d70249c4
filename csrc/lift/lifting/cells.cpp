// Pre-existing cells: free variables of the functions that the program calls.
#include "lift/lifting/cells.h"

#include "lift/lifting/lifter.h"

namespace alternator::lift {

void Cells::use_closure(Borrowed function) {
  PyObject* closure = function.as<PyFunctionObject>()->func_closure;
  if (closure == nullptr || lifter_.made_here(function)) return;
  Known* k = lifter_.known(function);
  Source* source = k != nullptr ? k->source : lifter_.constant(function);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); i++) {
    PyObject* cell = PyTuple_GET_ITEM(closure, i);
    (void)use(cell, lifter_.tree().child(source, Access::kCell, {}, i));
  }
}

Ref Cells::use(Borrowed cell, Source* source) {
  auto [entry, added] = cells_.try_emplace(cell.get(), Cell{source});
  if (!added) {
    lifter_.guard_same(source, entry->second.source);
    return Ref::share(cell);
  }
  source->bears_identity = true;
  return lifter_.remember(cell, Ref::share(cell), source);
}

Ref Cells::lift(Borrowed cell, Source* source) {
  lifter_.guard_type(source, cell);
  cells_.try_emplace(cell.get(), Cell{source});
  source->bears_identity = true;
  return lifter_.lift_itself(cell, source, false);
}

Ref Cells::load(Borrowed cell) {
  Cell& entry = cells_.at(cell.get());
  if (!entry.read && !entry.variable.written) {
    Source* source = lifter_.tree().child(entry.source, Access::kContents);
    Borrowed contents = PyCell_GET(cell.get());
    Ref lifted;
    if (contents) {
      lifted = lifter_.lift(contents, source);
    } else {
      lifter_.guard(source, GuardKind::kAbsent);
    }
    Cell& again = cells_.at(cell.get());
    again.read = true;
    again.variable.value = std::move(lifted);
    lifter_.note_read(again.variable.value);
    return again.variable.value;
  }
  lifter_.note_read(entry.variable.value);
  return entry.variable.value;
}

void Cells::store(Borrowed cell, Ref value) {
  lifter_.note_read(cell);
  Cell& entry = cells_.at(cell.get());
  if (!entry.variable.written) written_.push_back(cell.get());
  entry.variable.written = true;
  entry.variable.value = std::move(value);
}

void Cells::add_writes(std::vector<VariableWrite>& writes) const {
  for (PyObject* cell : written_) {
    const Cell& entry = cells_.at(cell);
    writes.push_back({VariableKind::kCell, entry.source, {}, entry.variable.value});
  }
}

}  // namespace alternator::lift
