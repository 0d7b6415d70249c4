#include "trace/calls/class_calls.h"
#include "trace/calls/call_dispatch.h"
#include "trace/calls/native_callbacks.h"
#include "trace/calls/weak_references.h"
#include "trace/core/tracer.h"
#include "trace/numpy/native_array_use.h"
#include "trace/opcodes/class_creation.h"
#include "trace/opcodes/items.h"
#include "trace/stdlib/decimals.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/tensor_hooks.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_methods.h"

#include "fake/numpy_scalar_input.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/classes.h"
#include "lift/lifting/layouts.h"
#include "lift/sources/decimal_values.h"
#include "trace/calls/native_reads.h"
#include "trace/calls/natives.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/soundness/value_text.h"
#include "trace/stdlib/python_rng_seeds.h"

#include <optional>

namespace alternator::trace {

PyTypeObject* check_class_call(Tracer& t, PyTypeObject* type) {
  PyTypeObject* base = lift::layout_base(type);
  if (base == nullptr || !(Natives::table().type(base) || PyType_IsSubtype(base, &PyType_Type))) {
    stop(report::Reason::native_call, native_name(reinterpret_cast<PyObject*>(type)));
  }
  if (type->tp_finalize != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && base != type) {
    stop(report::Reason::finalizer, type->tp_name);
  }
  if (!t.lifter.classes->use_special_methods(type))
    stop(report::Reason::native_call, std::string("a special method of ") + type->tp_name + " is no function");
  if ((Py_TYPE(type)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) t.lifter.classes->use_special_methods(Py_TYPE(type));
  return base;
}

namespace {

// super() without arguments: native code reads the current frame's first argument, and the __class__ cell.
Ref call_super(Tracer& t, const Call& call) {
  PyObject*& first = t.current_frame->localsplus[0];
  if (first != nullptr && Py_IS_TYPE(first, &lazy_type)) {
    auto* lazy = reinterpret_cast<LazyObject*>(first);
    Ref lifted = t.lifter.lift(lazy->value, lazy->source);
    Py_DECREF(std::exchange(first, lifted.release()));
  }
  PyCodeObject* const code = cpython::code_of(t.current_frame);
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    PyObject* cell = t.current_frame->localsplus[i];
    if (cell == nullptr || !PyCell_Check(cell) || !t.lifter.cells->is_preexisting(cell)) continue;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    if (i != 0 && PyUnicode_CompareWithASCIIString(name, "__class__") != 0) continue;
    if (t.lifter.cells->load(cell).get() != PyCell_GET(cell)) stop(report::Reason::native_call, "super()");
  }
  return checked(PyObject_CallNoArgs(call.callable.get()));
}

// type(x), where x may be an object of the tracer that stands for one of another class.
Ref class_of(Borrowed object) {
  if (fake::is_numpy_scalar_input(object.get())) return Ref::share(fake::example_of(object.get()).type());
  if (is_deferred_random(object)) return Ref::share(&PyFloat_Type);
  if (is_deferred_string(object)) return Ref::share(&PyUnicode_Type);
  if (is_hook_handle(object)) stop(report::Reason::hook, "its handle is used");
  if (fake::is_symbol(object)) return Ref::share(fake::class_of_symbol(object));
  return Ref::share(is_identity(object) ? &PyLong_Type : object.type());
}

// A call that makes an instance, or a class.
class Construction {
 public:
  Construction(Tracer& tracer, const Call& call)
      : t(tracer),
        call_(call),
        type_(call.callable.as<PyTypeObject>()),
        arguments_(call.arguments),
        count_(call.count()) {}

  Ref run() {
    if (t.hooks->registered && t.hooks->is_hook_handle_class(type_))
      stop(report::Reason::hook, "next to a hook of a module");
    const bool makes_class = begin_class();
    if (fake::is_symbol(only_positional()) && (type_ == &PyLong_Type || type_ == &PyFloat_Type))
      return convert_number(t, type_, arguments_[0]);
    base_ = check_class_call(t, type_);
    check_state();
    check_symbols(t, type_, base_, arguments_, count_);
    std::optional<lift::WarningsRaise> warnings;
    if (check_array_arguments(type_, base_, arguments_, count_)) warnings.emplace();
    check_arguments();
    if (count_ == 1 && graph::is_tensor(arguments_[0]) && base_ == type_ && !makes_class) return of_tensor();
    const Reading reading(reads_digits(base_));
    Ref made = call_.run();
    if (!made && warnings) t.arrays->check_numpy_error(type_->tp_name);
    if (!made) throw PyError();
    if (makes_class) t.classes->finish(made);
    return made;
  }

 private:
  // Py_None: there are others, or none.
  Borrowed only_positional() const { return count_ == 1 && call_.positional == 1 ? arguments_[0] : Py_None; }

  // type(name, bases, dict), and metaclasses.
  bool begin_class() {
    if (!PyType_IsSubtype(type_, &PyType_Type)) return false;
    if (count_ < 2 || !PyTuple_Check(arguments_[1])) stop(report::Reason::native_call, type_->tp_name);
    t.classes->begin(arguments_[1]);
    return true;
  }

  // Constructors that read process state.
  void check_state() {
    if (const lift::DecimalTypes* decimals = lift::decimal_types(); decimals != nullptr && base_ == decimals->context)
      t.decimals->check_template();
    if (base_ == native_random() && !is_seed(arguments_, call_.positional, 0))
      stop(report::Reason::native_call, std::string(type_->tp_name) + " without a seed");
  }

  // These store what they are given, and compute nothing with it.
  bool only_moves() const {
    return base_ == &PyBaseObject_Type || base_ == &PyList_Type || base_ == &PyTuple_Type || base_ == &PyDict_Type ||
           base_ == &PyEnum_Type || base_ == &PyZip_Type || base_ == lift::known_types().deque;
  }

  void check_arguments() {
    for (size_t i = 0; i < count_ && !only_moves(); i++) check_arrays_within(t, arguments_[i]);
    check_type_use(t, type_, base_, arguments_, count_);
    if (type_ == &PyUnicode_Type || type_ == &PyBytes_Type) {
      if (type_ == &PyUnicode_Type && count_ == 1) check_own_text(t, arguments_[0]);
      for (size_t i = 0; i < count_ && (count_ > 1 || type_ == &PyBytes_Type); i++) check_text(t, arguments_[i]);
      return;
    }
    for (size_t i = 0; i < count_; i++)
      if (!fake::is_symbol(arguments_[i])) check_use(t, arguments_[i], type_->tp_name);
  }

  // int(tensor), float(tensor), list(tensor): torch's conversions.
  Ref of_tensor() {
    if (Ref number = t.torch_functions->is_overridden(arguments_[0]) ? Ref() : convert_tensor(t, type_, arguments_[0]))
      return number;
    t.session.clear_failure();
    if (Ref result = call_.run()) return result;
    stop_for_torch(t, std::string(type_->tp_name) + " of a tensor");
  }

  Tracer& t;
  const Call& call_;
  PyTypeObject* const type_;
  PyTypeObject* base_ = nullptr;  // the native one
  PyObject* const* const arguments_;
  const size_t count_;
};

}  // namespace

Ref call_class(Tracer& t, const Call& call) {
  if (!PyType_Check(call.callable.get())) return {};
  escape_all(t, call);
  const auto* type = call.callable.as<PyTypeObject>();
  if (type == &PySuper_Type && call.count() == 0) return call_super(t, call);
  if (type == &PyType_Type && call.count() == 1 && call.positional == 1) return class_of(call.arguments[0]);
  Ref made = Construction(t, call).run();
  check_finalization_is_reported(t, made);
  return made;
}

}  // namespace alternator::trace
