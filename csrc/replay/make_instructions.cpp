// Making and filling new objects.
#include "cpython/frame_objects.h"
#include "cpython/objects.h"
#include "cpython/pickling.h"
#include "cpython/set_tables.h"
#include "interpreter/suspended.h"

#include "py/import.h"
#include "replay/known_hashes.h"
#include "replay/residual_run.h"
#include "replay/set_order.h"
#include "replay/tensors.h"

#include <frameobject.h>
#include <structmember.h>
#include <algorithm>

namespace alternator::replay {

static void replace(PyObject** slot, Borrowed value) {
  Ref old = Ref::steal(*slot);
  *slot = Ref::share(value).release();
}

// The defining class, for METH_METHOD methods; else null.
static PyTypeObject* defining_class(PyMethodDef* method, PyTypeObject* type) {
  if ((method->ml_flags & METH_METHOD) == 0) return nullptr;
  Ref name = checked(PyUnicode_InternFromString(method->ml_name));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* found = PyDict_GetItemWithError(cpython::own_dict(base), name.get());
    if (found != nullptr && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
        reinterpret_cast<PyMethodDescrObject*>(found)->d_method == method)
      return base;
  }
  return nullptr;
}

static Ref make_dead_weakref(PyTypeObject* type) {
  Ref gone = checked(PySet_New(nullptr));
  Ref arguments = checked(PyTuple_Pack(1, gone.get()));
  return checked(_PyWeakref_RefType.tp_new(type, arguments.get(), nullptr));
}

Ref Machine::make(const Instruction& instruction, const Operands& operands) {
  switch (instruction.op) {
    case Op::kTuple:
      return operands.tuple(0);
    case Op::kList:
      return operands.list(0);
    case Op::kDict: {
      Ref dict = checked(PyDict_New());
      for (size_t i = 0; i + 1 < operands.size(); i += 2) {
        check_status(PyDict_SetItem(dict.get(), operands[i], operands[i + 1]));
      }
      return dict;
    }
    case Op::kSet:
      return make_set(operands, instruction.number, false);
    case Op::kFrozenset:
      return make_set(operands, instruction.number, true);
    case Op::kSlice:
      return checked(PySlice_New(operands[0], operands[1], operands[2]));
    case Op::kNew:
      return checked(operands.type(0)->tp_new(operands.type(1), operands.tuple(2).get(), nullptr));
    case Op::kTupleLike: {
      Ref items = checked(PyTuple_Pack(1, operands.tuple(1).get()));
      return checked(PyTuple_Type.tp_new(operands.type(0), items.get(), nullptr));
    }
    case Op::kStructSequence:
      return checked(PyObject_CallOneArg(operands[0], operands.tuple(1).get()));
    case Op::kGenerator:
      return make_generator(operands[0], operands[1], operands[2]);
    case Op::kCell:
      return checked(PyCell_New(nullptr));
    case Op::kFunction:
      return make_function(operands);
    case Op::kMethod:
      return checked(PyMethod_New(operands[0], operands[1]));
    case Op::kBuiltin: {
      PyMethodDef* method = program_.natives[static_cast<size_t>(instruction.number)];
      return checked(PyCMethod_New(method, operands[0], operands[1], defining_class(method, Py_TYPE(operands[0]))));
    }
    case Op::kMethodWrapper:
      return checked(PyWrapper_New(operands[0], operands[1]));
    case Op::kSuper:
      return checked(PyObject_Call(reinterpret_cast<PyObject*>(&PySuper_Type), operands.tuple(0).get(), nullptr));
    case Op::kMappingProxy:
      return checked(PyDictProxy_New(operands[0]));
    case Op::kWeakref: {
      Ref reference = checked(_PyWeakref_RefType.tp_new(operands.type(0), operands.tuple(1).get(), nullptr));
      if (instruction.number != 0) reference.as<PyWeakReference>()->hash = instruction.number;
      return reference;
    }
    case Op::kDeadWeakref:
      return make_dead_weakref(operands.type(0));
    case Op::kStaticMethod:
      return checked(PyStaticMethod_New(operands[0]));
    case Op::kClassMethod:
      return checked(PyClassMethod_New(operands[0]));
    case Op::kClass:
      return make_class(operands);
    case Op::kFrame:
      return make_frame(operands, instruction.number);
    case Op::kTraceback:
      return make_traceback(operands, instruction.number);
    case Op::kDictView:
      return checked(_PyDictView_New(operands[1], operands.type(0)));
    case Op::kDictIterator:
      return checked(PyObject_GetIter(operands[0]));
    case Op::kCall:
      return checked(PyObject_Call(operands[0], operands.tuple(1).get(), nullptr));
    case Op::kInstanceDict:
      return checked(PyObject_GenericGetDict(operands[0], nullptr));
    case Op::kTensor:
      return adopt_output(operands[0], operands[1], instruction.number != 0);
    default:
      break;
  }
  ALT_CHECK(false, "not a making instruction");
  return {};
}

Ref Machine::make_set(const Operands& operands, int64_t table, bool frozen) {
  const std::vector<PyObject*> elements = operands.array(0);
  Ref set = checked(frozen ? PyFrozenSet_New(nullptr) : PySet_New(nullptr));
  fill_set(set, elements.data(), elements.size(), static_cast<size_t>(table));
  return set;
}

Ref Machine::make_function(const Operands& operands) {
  Ref function = checked(PyFunction_NewWithQualName(operands[0], operands[1], operands[2]));
  if (operands.size() > 3) function.as<PyFunctionObject>()->func_closure = operands.tuple(3).release();
  return function;
}

// The names are inserted first, for their order; their values come later.
Ref Machine::make_class(const Operands& operands) {
  Ref space = checked(PyDict_New());
  Borrowed names = operands[4];
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); i++) {
    check_status(PyDict_SetItem(space.get(), PyTuple_GET_ITEM(names.get(), i), Py_None));
  }
  if (operands[5] != nullptr) check_status(PyDict_SetItemString(space.get(), "__slots__", operands[5]));
  check_status(PyDict_SetItemString(space.get(), "__qualname__", operands[3]));
  Ref arguments = checked(PyTuple_Pack(3, operands[1], operands[2], space.get()));
  return checked(PyType_Type.tp_new(operands.type(0), arguments.get(), nullptr));
}

Ref Machine::make_frame(const Operands& operands, int64_t line) {
  Ref frame = checked(reinterpret_cast<PyObject*>(
      PyFrame_New(PyThreadState_Get(), reinterpret_cast<PyCodeObject*>(operands[0]), operands[1], nullptr)));
  cpython::set_reached(frame.as<PyFrameObject>(), static_cast<int>(line));
  return frame;
}

Ref Machine::make_traceback(const Operands& operands, int64_t line) {
  PyObject* next = operands[0] != nullptr ? operands[0] : Py_None;
  return checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyTraceBack_Type), "OOOL", next, operands[1],
                                       operands[2], static_cast<long long>(line)));
}

void Machine::fill_frame(const Operands& operands, bool called_from_here) {
  auto* frame = reinterpret_cast<PyFrameObject*>(operands[0]);
  Ref back = called_from_here ? Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())))
                              : Ref::share(operands[1]);
  if (back) cpython::set_back(frame, back.as<PyFrameObject>());
  for (size_t i = 2; i < operands.size(); i++) {
    if (operands[i] != nullptr) cpython::set_local(frame, i - 2, operands[i]);
  }
}

// A name in a class body that `type` itself has as an attribute (`__name__`, a property for the instances) is an entry
// of the class's dict; setting the attribute would rename the class.
static void fill_class(Borrowed cls, Borrowed name, Borrowed value) {
  static constexpr const char* kOfTheType[] = {"__name__", "__qualname__", "__bases__",
                                               "__mro__",  "__base__",     "__dict__"};
  const bool of_the_type = std::any_of(std::begin(kOfTheType), std::end(kOfTheType), [&](const char* known) {
    return PyUnicode_CompareWithASCIIString(name.get(), known) == 0;
  });
  if (!of_the_type) return check_status(PyType_Type.tp_setattro(cls.get(), name.get(), value.get()));
  check_status(PyDict_SetItem(cpython::own_dict(cls.as<PyTypeObject>()), name.get(), value.get()));
  PyType_Modified(cls.as<PyTypeObject>());
}

void Machine::fill(const Instruction& instruction, const Operands& operands) {
  PyObject* object = operands[0];
  switch (instruction.op) {
    case Op::kExtend: {
      const Py_ssize_t end = PyList_GET_SIZE(object);
      return check_status(PyList_SetSlice(object, end, end, operands.list(1).get()));
    }
    case Op::kUpdate:
    case Op::kUpdateOrdered:
      for (size_t i = 1; i + 1 < operands.size(); i += 2) {
        check_status(instruction.op == Op::kUpdate ? PyDict_SetItem(object, operands[i], operands[i + 1])
                                                   : PyODict_SetItem(object, operands[i], operands[i + 1]));
      }
      return;
    case Op::kAdd: {
      const std::vector<PyObject*> elements = operands.array(1);
      const auto table = static_cast<size_t>(instruction.number);
      if (PySet_Check(object)) return fill_set(object, elements.data(), elements.size(), table);
      // Its empty state is not visible yet.
      Ref filled = checked(PySet_New(nullptr));
      fill_set(filled, elements.data(), elements.size(), table);
      if (!cpython::copy_set_table(filled.get(), object)) PyErr_NoMemory(), throw PyError();
      return;
    }
    case Op::kUpdateHashed:
      return add_under_hashes(object, operands[1], operands.array(2));
    case Op::kAddHashed:
      return add_elements_under_hashes(object, operands[1], operands.array(2), static_cast<size_t>(instruction.number));
    case Op::kExtendDeque:
      return extend_deque(object, operands.list(1));
    case Op::kInit:
      return check_status(operands.type(1)->tp_init(object, operands.tuple(2).get(), nullptr));
    case Op::kFillCell:
      return check_status(PyCell_Set(object, operands[1]));
    case Op::kFillAttribute:
      return store_attribute(object, operands[1], operands[2]);
    case Op::kFillDict:
      return check_status(PyObject_GenericSetDict(object, operands[1], nullptr));
    case Op::kFillField: {
      PyMemberDef* member = &operands.type(1)->tp_members[instruction.number];
      return check_status(PyMember_SetOne(reinterpret_cast<char*>(object), member, operands[3]));
    }
    case Op::kFillFunction:
      return fill_function(operands, static_cast<FunctionField>(instruction.number));
    case Op::kFillClass:
      return fill_class(object, operands[1], operands[2]);
    case Op::kFillAbc: {
      Ref abc = import_module("_abc");
      checked(PyObject_CallMethod(abc.get(), "_abc_init", "O", object)).reset();
      return;
    }
    case Op::kFillException:
      return fill_exception(operands, instruction.number != 0);
    case Op::kSetState: {
      Ref state = instruction.number != 0 ? operands.tuple(2) : Ref::share(operands[2]);
      PyObject* arguments[] = {object, state.get()};
      checked(cpython::call_quietly(operands[1], arguments, 2)).reset();
      return;
    }
    case Op::kFillGenerator: {
      const std::vector<PyObject*> values = operands.array(2);
      fill_generator(object, operands[1], static_cast<int>(instruction.number >> 8),
                     static_cast<int8_t>(instruction.number & 0xff), values.data(), values.size());
      return;
    }
    case Op::kFillFrame:
      return fill_frame(operands, instruction.number != 0);
    case Op::kAdvance:
      for (int64_t i = 0; i < instruction.number; i++) {
        Ref passed = Ref::steal(PyIter_Next(object));
        if (PyErr_Occurred()) throw PyError();
      }
      return;
    default:
      break;
  }
  ALT_CHECK(false, "not a filling instruction");
}

// Some of these fields have setters that warn or refuse what the compiler itself may store there.
void Machine::fill_function(const Operands& operands, FunctionField field) {
  auto* f = reinterpret_cast<PyFunctionObject*>(operands[0]);
  PyObject** slot = nullptr;
  switch (field) {
    case FunctionField::kName:
      slot = &f->func_name;
      break;
    case FunctionField::kDefaults:
      slot = &f->func_defaults;
      break;
    case FunctionField::kKeywordDefaults:
      slot = &f->func_kwdefaults;
      break;
    case FunctionField::kAnnotations:
      slot = &f->func_annotations;
      break;
    case FunctionField::kDoc:
      slot = &f->func_doc;
      break;
    case FunctionField::kModule:
      slot = &f->func_module;
      break;
  }
  replace(slot, operands[2]);
}

void Machine::fill_exception(const Operands& operands, bool suppress_context) {
  auto* e = reinterpret_cast<PyBaseExceptionObject*>(operands[0]);
  replace(&e->args, operands[1]);
  replace(&e->cause, operands[2]);
  replace(&e->context, operands[3]);
  replace(&e->traceback, operands[4]);
  e->suppress_context = suppress_context ? 1 : 0;
}

}  // namespace alternator::replay
