// The tables behind Natives: what the rows of natives.def name, resolved to identities.
#pragma once

#include "trace/calls/natives.h"

#include "lift/sources/pointer_tables.h"

#include <unordered_map>

namespace alternator::trace {

struct Natives::Tables {
  // By definition. It has all functions of the table, and all methods and slots of its types and of their bases.
  lift::PointerMap<const void, uint64_t> callables;
  lift::PointerMap<PyTypeObject, uint64_t> types;
  // ALT_ANY_TYPE. Asked only for methods of types that are not in the table: the others are resolved.
  std::unordered_map<std::string_view, uint64_t> by_name;

  lift::PointerSet<PyObject> torch, recorded, unseen, computed, communicating;
  PyTypeObject *op_overload = nullptr, *op_packet = nullptr, *variable_functions = nullptr;
  const PyMethodDef* constructor = nullptr;  // the definition that the __new__ of all types have in common

  const void* key_of(PyObject* callable) const;
  uint64_t flags_by_name(std::string_view name) const;
};

}  // namespace alternator::trace
