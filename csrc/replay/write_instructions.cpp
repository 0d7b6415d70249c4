// Writing back to pre-existing objects.
#include "replay/residual_run.h"

#include "cpython/frame_objects.h"
#include "cpython/iterator_copies.h"
#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "py/import.h"
#include "py/lasting.h"
#include "replay/known_hashes.h"
#include "replay/set_order.h"

namespace alternator::replay {

// The class attribute of this name decides whether a descriptor handles the access.
static bool has_setter(Borrowed owner, Borrowed name) {
  PyObject* found = _PyType_Lookup(owner.type(), name.get());
  return found != nullptr && Py_TYPE(found)->tp_descr_set != nullptr;
}

void store_attribute(Borrowed owner, Borrowed name, Borrowed value) {
  if (PyUnicode_Check(name.get()) && !has_setter(owner, name)) {
    // The generic setter: it also handles attributes that are in no dict.
    return check_status(PyObject_GenericSetAttr(owner.get(), name.get(), value.get()));
  }
  Ref dict = checked(PyObject_GenericGetDict(owner.get(), nullptr));
  check_status(value ? PyDict_SetItem(dict.get(), name.get(), value.get()) : PyDict_DelItem(dict.get(), name.get()));
}

void Machine::set_item(Borrowed dict, Borrowed key, Borrowed value, bool ordered) {
  const Py_hash_t hash = PyObject_Hash(key.get());
  if (hash == -1) throw PyError();
  drop_later(Ref::share(_PyDict_GetItem_KnownHash(dict.get(), key.get(), hash)));
  if (PyErr_Occurred()) throw PyError();
  check_status(ordered ? PyODict_SetItem(dict.get(), key.get(), value.get())
                       : _PyDict_SetItem_KnownHash(dict.get(), key.get(), value.get(), hash));
}

void Machine::delete_item(Borrowed dict, Borrowed key, bool ordered) {
  const Py_hash_t hash = PyObject_Hash(key.get());
  if (hash == -1) throw PyError();
  drop_later(Ref::share(_PyDict_GetItem_KnownHash(dict.get(), key.get(), hash)));
  if (PyErr_Occurred()) throw PyError();
  check_status(ordered ? PyODict_DelItem(dict.get(), key.get())
                       : _PyDict_DelItem_KnownHash(dict.get(), key.get(), hash));
}

void Machine::set_attribute(Borrowed owner, Borrowed name, Borrowed value) {
  if (cpython::is_thread_local(owner.type())) {
    Ref dict = checked(cpython::make_thread_dict(owner.get()));
    return value ? set_item(dict, name, value, false) : delete_item(dict, name, false);
  }
  // Only a plain read: a name that the class has too might run its descriptor.
  if (PyUnicode_Check(name.get()) && _PyType_Lookup(owner.type(), name.get()) == nullptr) {
    Ref old = Ref::steal(_PyObject_GenericGetAttrWithDict(owner.get(), name.get(), nullptr, 1));
    if (PyErr_Occurred()) throw PyError();
    drop_later(std::move(old));
  }
  store_attribute(owner, name, value);
}

void Machine::set_field(Borrowed owner, Borrowed name, Borrowed value) {
  Borrowed field = PyUnicode_Check(name.get()) ? Borrowed(_PyType_Lookup(owner.type(), name.get())) : name;
  ALT_CHECK(field && (field.type() == &PyMemberDescr_Type || field.type() == &PyGetSetDescr_Type),
            "a field that is none any more");
  Ref held = Ref::share(field);
  if (field.type() == &PyMemberDescr_Type) {
    Ref old = Ref::steal(field.type()->tp_descr_get(field.get(), owner.get(), Borrowed(owner.type()).get()));
    if (!old) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PyError();
      PyErr_Clear();
    }
    drop_later(std::move(old));
  }
  check_status(field.type()->tp_descr_set(field.get(), owner.get(), value.get()));
}

void Machine::splice(Borrowed list, Py_ssize_t from, Py_ssize_t to, Borrowed items) {
  if (from < to) drop_later(checked(PyList_GetSlice(list.get(), from, to)));
  check_status(PyList_SetSlice(list.get(), from, to, items.get()));
}

// A method of deque itself, whatever a subclass overrides.
static Ref call_deque(Borrowed deque, const char* name, Borrowed argument) {
  static constinit Lasting<PyTypeObject*> lasting;
  PyTypeObject* type = lasting.get([] {
    return reinterpret_cast<PyTypeObject*>(
        checked(PyObject_GetAttrString(import_module("collections").get(), "deque")).release());
  });
  ALT_CHECK(type != nullptr, "collections.deque is gone");
  PyObject* method = PyDict_GetItemString(cpython::own_dict(type), name);
  ALT_CHECK(method != nullptr, name);
  return checked(PyObject_CallFunctionObjArgs(method, deque.get(), argument.get(), nullptr));
}

void extend_deque(Borrowed deque, Borrowed items) { call_deque(deque, "extend", items).reset(); }

// Calls next() so many times. Returns what was taken, and what the iterator consists of: one that ends drops that.
static std::vector<Ref> advance(PyObject* iterator, int64_t count) {
  std::vector<Ref> dropped;
  cpython::each_part_of_iterator(iterator, [&](PyObject* part) { dropped.push_back(Ref::share(part)); });
  for (int64_t i = 0; i < count; i++) dropped.push_back(Ref::steal(PyIter_Next(iterator)));
  if (PyErr_Occurred()) throw PyError();
  return dropped;
}

void Machine::write(const Instruction& instruction, const Operands& operands) {
  PyObject* object = operands[0];
  switch (instruction.op) {
    case Op::kEffect:
      checked(PyObject_Call(object, operands[1], operands[2])).reset();
      return;
    case Op::kListExtend: {
      const Py_ssize_t end = PyList_GET_SIZE(object);
      return splice(object, end, end, operands.list(1));
    }
    case Op::kListSplice:
      return splice(object, PyLong_AsSsize_t(operands[1]), PyLong_AsSsize_t(operands[2]), operands.list(3));
    case Op::kDictSet:
    case Op::kGlobalSet:
      return set_item(object, operands[1], operands[2], false);
    case Op::kDictDelete:
    case Op::kGlobalDelete:
      return delete_item(object, operands[1], false);
    case Op::kOrderedSet:
      return set_item(object, operands[1], operands[2], true);
    case Op::kOrderedDelete:
      return delete_item(object, operands[1], true);
    case Op::kDictAppend: {
      Ref dict = instruction.number == 0 ? Ref::share(object) : checked(PyObject_GenericGetDict(object, nullptr));
      return add_under_hashes(dict, operands[1], operands.array(2));
    }
    case Op::kSetDiscard:
      check_status(PySet_Discard(object, operands[1]));
      return;
    case Op::kSetAdd:
      return check_status(PySet_Add(object, operands[1]));
    case Op::kSetAppend:
      return add_elements_under_hashes(object, operands[1], operands.array(2), 0);
    case Op::kSetPop:
      return drop_later(checked(PySet_Pop(object)));
    case Op::kSetClear:
      for (Ref& element : set_elements(object)) drop_later(std::move(element));
      return check_status(PySet_Clear(object));
    case Op::kDequeExtend:
      return extend_deque(object, operands.list(1));
    case Op::kDequeDropLeft:
      for (int64_t i = 0; i < instruction.number; i++) drop_later(call_deque(object, "popleft", {}));
      return;
    case Op::kAttributeSet:
      return set_attribute(object, operands[1], operands[2]);
    case Op::kAttributeDelete:
      return set_attribute(object, operands[1], {});
    case Op::kCellSet:
      drop_later(Ref::steal(PyCell_Get(object)));
      return check_status(PyCell_Set(object, operands[1]));
    case Op::kCellDelete:
      drop_later(Ref::steal(PyCell_Get(object)));
      return check_status(PyCell_Set(object, nullptr));
    case Op::kFieldSet:
      return set_field(object, operands[1], operands[2]);
    case Op::kFieldDelete:
      // Set and deleted by the call: it may never have existed.
      try {
        set_field(object, operands[1], {});
      } catch (const PyError&) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw;
        PyErr_Clear();
      }
      return;
    case Op::kIteratorNext:
      for (Ref& dropped : advance(object, instruction.number)) drop_later(std::move(dropped));
      return;
    case Op::kEndFrame:
      return end_frame(operands, instruction.number);
    case Op::kTypeAttributeSet:
      return set_type_attribute(object, operands[1], operands[2]);
    case Op::kTypeAttributeDelete:
      return set_type_attribute(object, operands[1], {});
    default:
      break;
  }
  ALT_CHECK(false, "not a writing instruction");
}

// A frame that was part of the chain has no locals left.
void Machine::end_frame(const Operands& operands, int64_t line) {
  auto* frame = reinterpret_cast<PyFrameObject*>(operands[0]);
  if (!cpython::is_over(frame)) return;
  cpython::set_reached(frame, static_cast<int>(line));
  for (size_t i = 1; i < operands.size(); i++) {
    if (operands[i] != nullptr) cpython::set_local(frame, i - 1, operands[i]);
  }
}

void Machine::set_type_attribute(Borrowed type, Borrowed name, Borrowed value) {
  PyObject* old = PyDict_GetItemWithError(cpython::own_dict(type.as<PyTypeObject>()), name.get());
  if (old == nullptr && PyErr_Occurred()) throw PyError();
  drop_later(Ref::share(old));
  check_status(PyType_Type.tp_setattro(type.get(), name.get(), value.get()));
}

}  // namespace alternator::replay
