// The lifting table: the row of an object is found by its exact type, or else by the first test that it passes.
#include "lift/lifting/lift_rows.h"

#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "fake/mirror.h"
#include "fake/python_tensor.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/immutable_values.h"
#include "lift/lifting/layouts.h"
#include "lift/lifting/lifter.h"
#include "lift/lifting/symbolic_inputs.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/numpy_types.h"
#include "lift/sources/optree_types.h"
#include "lift/sources/tensor_spec.h"
#include "py/lasting.h"

namespace alternator::lift {
namespace {

using Row = Ref (*)(Lifter& lifter, Borrowed value, Source* source);

// --- objects that are the same in every call --------------------------------------------------------------

// No attributes that a program could write.
Ref lift_constant(Lifter& lifter, Borrowed value, Source* source) {
  lifter.guard(source, GuardKind::kIs, value);
  return lifter.lift_itself(value, lifter.constant(value), false);
}

Ref lift_constant_instance(Lifter& lifter, Borrowed value, Source* source) {
  lifter.guard(source, GuardKind::kIs, value);
  return lifter.lift_itself(value, lifter.constant(value), true);
}

// The type of a constant that can be assigned: lifter.guard() would take it as fixed.
void guard_assignable_type(Lifter& lifter, Borrowed value) {
  lifter.tree().guard(lifter.constant(value),
                      {GuardKind::kType, Ref::share(reinterpret_cast<PyObject*>(value.type()))});
}

Ref lift_class(Lifter& lifter, Borrowed cls, Source* source) {
  lifter.guard(source, GuardKind::kIs, cls);
  // A metaclass that is not builtin may be replaced by another one.
  if ((cls.type()->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0) guard_assignable_type(lifter, cls);
  return lifter.lift_itself(cls, lifter.constant(cls), false);
}

Ref lift_module(Lifter& lifter, Borrowed module, Source* source) {
  lifter.guard(source, GuardKind::kIs, module);
  guard_assignable_type(lifter, module);
  return lifter.lift_itself(module, lifter.constant(module), true);
}

Ref lift_value_subclass(Lifter& lifter, Borrowed value, Source* source) {
  lifter.guard(source, GuardKind::kIs, value);
  lifter.classes->use_special_methods(value.type());
  return lifter.lift_itself(value, lifter.constant(value), true);
}

Ref lift_function(Lifter& lifter, Borrowed function, Source* source) {
  auto* f = function.as<PyFunctionObject>();
  // A function found under a fixed name is the same object in every call; one that is passed in may be reconstructed.
  const bool named = source->access == Access::kTypeAttribute ||
                     (source->access == Access::kItem && source->parent->access == Access::kConstant);
  if (named) lifter.guard(source, GuardKind::kIs, function);
  Source* origin = named ? lifter.constant(function) : source;
  Guard code{GuardKind::kCode, Ref::share(f->func_code), Ref::share(f->func_globals)};
  lifter.tree().guard(origin, std::move(code));
  if (!named) source->bears_identity = true;
  return lifter.lift_itself(function, origin, true);
}

// --- immutable objects that are compared by value ---------------------------------------------------------

// A NaN is not equal to itself, but containers find it by identity.
Ref lift_equal(Lifter& lifter, Borrowed value, Source* source) {
  lifter.guard(source, GuardKind::kEquals, value);
  source->bears_identity = true;
  return lifter.lift_itself(value, source, false);
}

Ref lift_native_value(Lifter& lifter, Borrowed value, Source* source) {
  return (source->access != Access::kConstant ? lift_equal : lift_constant)(lifter, value, source);
}

// --- objects with state -----------------------------------------------------------------------------------

Ref lift_container(Lifter& lifter, Borrowed container, Source* source) {
  return lifter.containers->lift(container, source);
}

Ref lift_cell(Lifter& lifter, Borrowed cell, Source* source) { return lifter.cells->lift(cell, source); }

Ref lift_tensor(Lifter& lifter, Borrowed tensor, Source* source) {
  const at::Tensor& real = fake::unpack(tensor.get());
  Guard guard{GuardKind::kTensor};
  auto spec = std::make_shared<TensorSpec>(describe_tensor(tensor));
  fake::SymbolicGeometry geometry;
  if (lifter.symbolic->dynamism != nullptr) geometry = lifter.symbolic->geometry_of(tensor, source, spec.get());
  guard.tensor = spec;
  lifter.tree().guard(source, std::move(guard));
  source->bears_identity = true;
  if (fake::is_fake(real)) throw CannotLift("a fake of another trace");
  if (const char* reason = fake::cannot_mirror(real)) throw CannotLift(reason);
  Ref lifted = lifter.session().fake_of(tensor);
  lifter.symbolic->apply_hints(fake::unpack(lifted.get()), geometry);
  lifter.note_tensor(lifted, source);
  if (lifter.on_tensor) lifter.on_tensor(fake::unpack(lifted.get()), source, std::move(geometry));
  Ref result = lifter.remember(tensor, std::move(lifted), source);
  lifter.known_as(result).instance = true;
  return result;
}

Ref refuse_native_tuple(Lifter&, Borrowed tuple, Source*) {
  throw CannotLift(std::string("a tuple type defined in C: ") + tuple.type()->tp_name);
}

// An instance of a Python class; or an opaque object.
Ref lift_object(Lifter& lifter, Borrowed value, Source* source) {
  PyTypeObject* type = value.type();
  lifter.guard_type(source, value);
  source->bears_identity = true;
  const bool is_namespace = layout_base(type) == known_types().simple_namespace;
  if (has_plain_layout(type) || is_namespace) {
    if (is_namespace) lifter.note_hidden_from_natives();  // native code that compares it reads the real one
    lifter.classes->use_special_methods(type);
    return lifter.lift_itself(value, source, true);
  }
  if (cpython::is_thread_local(type) && layout_base(type)->tp_base == &PyBaseObject_Type) {
    lifter.classes->use_special_methods(type);
    const bool has_dict = cpython::thread_dict(value.get()) != nullptr;
    if (has_dict || !cpython::is_filled_by_init(type)) return lifter.lift_itself(value, source, true);
    // The first access would run the class's __init__: that is done concretely. From then on another entry applies.
    lifter.guard(lifter.tree().child(source, Access::kDict), GuardKind::kAbsent);
  }
  lifter.note_hidden_from_natives();
  return lifter.lift_itself(value, source, false, true);
}

// Arrays in a global, a closure or an attribute are constants of a program. Those in arguments and variables are its
// data, and differ from call to call.
bool is_setting(const Source& source) {
  const Source* at = &source;
  for (; at->parent != nullptr; at = at->parent) {
    if (at->access == Access::kDict || at->access == Access::kField) return true;
  }
  return at->access != Access::kSlot;
}

Ref lift_array(Lifter& lifter, Borrowed array, Source* source) {
  lifter.note_hidden_from_natives();
  Ref copy = is_setting(*source) ? fixed_copy(array) : Ref();
  if (!copy) return lift_object(lifter, array, source);
  lifter.guard(source, GuardKind::kEquals, copy);
  source->bears_identity = true;
  return lifter.remember(array, std::move(copy), source);
}

// --- the table --------------------------------------------------------------------------------------------

// A proxy of a plain dict; not of a class's dict, which the program may mutate through the class.
bool is_proxy_of_dict(Borrowed proxy) {
  if (proxy.type() != &PyDictProxy_Type) return false;
  PyObject* mapping = cpython::proxied(proxy.get());
  return (PyDict_CheckExact(mapping) || PyODict_CheckExact(mapping)) &&
         PyDict_GetItemString(mapping, "__module__") == nullptr;
}

// Exact types; none of their objects would pass an earlier test of kTests.
const PointerMap<PyTypeObject, Row>& rows_by_type() {
  static constinit Lasting<const PointerMap<PyTypeObject, Row>*> rows;
  return *rows.get([] {
    return new PointerMap<PyTypeObject, Row>{{&PyFunction_Type, lift_function},
                                             {&PyTuple_Type, lift_tuple},
                                             {&PyList_Type, lift_container},
                                             {&PyDict_Type, lift_container},
                                             {&PyODict_Type, lift_container},
                                             {&PySet_Type, lift_container},
                                             {&PyFrozenSet_Type, lift_container},
                                             {known_types().default_dict, lift_container},
                                             {known_types().deque, lift_container},
                                             {&PyMethod_Type, lift_method},
                                             {known_types().partial, lift_partial},
                                             {&PySuper_Type, lift_super},
                                             {&_PyWeakref_RefType, lift_weak_reference},
                                             {&PyCode_Type, lift_constant},
                                             {&PyMethodDescr_Type, lift_constant},
                                             {&PyWrapperDescr_Type, lift_constant},
                                             {&PyGetSetDescr_Type, lift_constant},
                                             {&PyMemberDescr_Type, lift_constant},
                                             {&PyClassMethodDescr_Type, lift_constant},
                                             {&PyProperty_Type, lift_constant},
                                             {&PyStaticMethod_Type, lift_constant},
                                             {&PyClassMethod_Type, lift_constant},
                                             {&PyCell_Type, lift_cell}};
  });
}

struct Test {
  bool (*passes)(Borrowed value);
  Row row;
};

// The first that an object passes counts: a tensor may be an instance of a Python class, a struct sequence is a tuple,
// a member of an IntEnum is an instance of a subclass of int.
constexpr Test kTests[] = {
    {[](Borrowed v) { return is_nan(v.get()) || is_decimal(v.get()); }, lift_equal},
    {[](Borrowed v) { return fake::is_tensor_object(v.get()); }, lift_tensor},
    {[](Borrowed v) { return PyType_Check(v.get()) != 0; }, lift_class},
    {[](Borrowed v) { return PyTuple_Check(v.get()) && has_plain_layout(v.type()); }, lift_tuple},
    {[](Borrowed v) { return is_native_value(v.get()); }, lift_native_value},
    {[](Borrowed v) { return is_immutable_native(v) || is_numpy_function(v); }, lift_constant},
    {[](Borrowed v) { return PyTuple_Check(v.get()) != 0; }, refuse_native_tuple},
    {[](Borrowed v) { return PyList_Check(v.get()) || PyDict_Check(v.get()) || PyAnySet_Check(v.get()); },
     lift_container},
    {[](Borrowed v) { return PyCFunction_Check(v.get()) != 0; }, lift_builtin},
    {[](Borrowed v) { return is_tree_spec(v.get()); }, lift_tree_spec},
    {is_proxy_of_dict, lift_proxy},
    {[](Borrowed v) { return cpython::viewed(v.get()) != nullptr; }, lift_view},
    {[](Borrowed v) { return PyModule_Check(v.get()) != 0; }, lift_module},
    {[](Borrowed v) { return is_enum_member(v.get()) || is_type_parameter(v.type()); }, lift_constant_instance},
    {[](Borrowed v) { return is_stateless(v.type()); }, lift_constant},
    {[](Borrowed v) { return is_value_subclass(v.type()); }, lift_value_subclass},
    {[](Borrowed v) { return is_array(v.get()); }, lift_array},
};

}  // namespace

Ref lift_by_kind(Lifter& lifter, Borrowed value, Source* source) {
  const auto& rows = rows_by_type();
  if (auto found = rows.find(value.type()); found != rows.end()) return found->second(lifter, value, source);
  for (const Test& test : kTests) {
    if (test.passes(value)) return test.row(lifter, value, source);
  }
  return lift_object(lifter, value, source);
}

}  // namespace alternator::lift
