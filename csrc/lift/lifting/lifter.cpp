// The rows of the lifting table.
#include "lift/lifting/lifter.h"

#include "cpython/objects.h"
#include "cpython/thread_locals.h"
#include "lift/lifting/lift_mutants.h"
#include "lift/lifting/numpy_scalar_inputs.h"
#include "lift/lifting/unspecialized.h"
#include "lift/sources/decimal_values.h"
#include "lift/sources/numpy_types.h"
#include "lift/sources/optree_types.h"
#include "lift/sources/tensor_spec.h"
#include "py/names.h"

#include "fake/mirror.h"
#include "fake/numpy_scalar_input.h"
#include "fake/python_tensor.h"
#include "fake/unbacked_symbol.h"

#include <algorithm>
#include <utility>

namespace alternator::lift {

Lifter::Lifter(SourceTree& tree, fake::Session& session) : tree_(tree), session_(session) {}
Lifter::~Lifter() { forget_unfinished_classes(); }

PyObject* Lifter::keep(Ref object) {
  kept_.push_back(std::move(object));
  return kept_.back().get();
}

Known& Lifter::known_as(Borrowed lifted) {
  Known*& known = known_[lifted.get()];
  if (known == nullptr) known = &all_known_.emplace_back(KnownObject{lifted.get(), {}}).known;
  return *known;
}

Known& Lifter::know(Borrowed lifted, Borrowed original, Source* source) {
  Known& known = known_as(lifted);
  known.source = source;
  known.original = Ref::share(original);
  return known;
}

Ref Lifter::remember(Borrowed original, Ref lifted, Source* source) {
  know(lifted, original, source);
  lifted_[original.get()] = lifted.get();
  keep(Ref::share(original));
  keep(Ref(lifted));
  return lifted;
}

void Lifter::guard(Source* source, GuardKind kind, Borrowed object, Py_ssize_t number) {
  // The identity and type of a constant cannot change; its contents can.
  if (source->access == Access::kConstant && (kind == GuardKind::kIs || kind == GuardKind::kType)) return;
  Guard guard{kind, Ref::share(object), {}, number};
  tree_.guard(source, std::move(guard));
}

void Lifter::guard_same(Source* source, Source* other) {
  if (source == other) return;
  Guard guard{GuardKind::kSame};
  guard.other = other;
  tree_.guard(source, std::move(guard));
}

static bool is_singleton(Borrowed value) {
  PyObject* v = value.get();
  return v == Py_None || v == Py_True || v == Py_False || v == Py_Ellipsis || v == Py_NotImplemented;
}

// An object of a static builtin type without state, only identity, such as torch._C._VariableFunctions.
static bool is_stateless(PyTypeObject* type) {
  return type != &PyBaseObject_Type && (type->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_HAVE_GC)) == 0 &&
         type->tp_itemsize == 0 && type->tp_basicsize == static_cast<Py_ssize_t>(sizeof(PyObject)) &&
         type->tp_dictoffset == 0;
}

static bool is_type_expression(Borrowed value);

// list[int], int | None: built from classes without a Python __eq__.
static bool is_type_operator(Borrowed value) {
  if (!cpython::is_native(value.type(), "types.GenericAlias") && !cpython::is_native(value.type(), "types.UnionType"))
    return false;
  Ref arguments = checked(PyObject_GetAttrString(value.get(), "__args__"));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.get()); i++) {
    if (!is_type_expression(PyTuple_GET_ITEM(arguments.get(), i))) return false;
  }
  return true;
}
static bool is_type_expression(Borrowed value) {
  if (PyType_Check(value.get())) return value.type()->tp_hash == PyBaseObject_Type.tp_hash;
  return is_plain(value.get()) || is_type_operator(value);
}

// The __reduce__ of a methodcaller with keywords gives a partial that holds the name and the keywords.
Words words_of_getter(Borrowed getter) {
  Ref parts = checked(PyObject_CallMethod(getter.get(), "__reduce__", nullptr));
  Borrowed maker = PyTuple_GET_ITEM(parts.get(), 0), rest = PyTuple_GET_ITEM(parts.get(), 1);
  if (maker == Borrowed(reinterpret_cast<PyObject*>(getter.type()))) return {Ref::share(rest), {}};
  Ref first = checked(PyObject_GetAttrString(maker.get(), "args"));
  return {checked(PySequence_Concat(first.get(), rest.get())),
          checked(PyObject_GetAttrString(maker.get(), "keywords"))};
}

static bool is_getter(PyTypeObject* type) {
  return cpython::is_native(type, "operator.itemgetter") || cpython::is_native(type, "operator.attrgetter") ||
         cpython::is_native(type, "operator.methodcaller");
}

// Its arguments are plain values.
static bool holds_plain_arguments(Borrowed getter) {
  const Words words = words_of_getter(getter);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(words.positional.get()); i++) {
    if (!is_plain(PyTuple_GET_ITEM(words.positional.get(), i))) return false;
  }
  PyObject *name = nullptr, *word = nullptr;
  for (Py_ssize_t at = 0; words.named && PyDict_Next(words.named.get(), &at, &name, &word) != 0;) {
    if (!is_plain(word)) return false;
  }
  return true;
}

// Immutable native objects that hold plain values only: compiled patterns, dates, sys.float_info and its like.
static bool is_immutable_native(Borrowed value) {
  PyTypeObject* type = value.type();
  if (is_type_operator(value) || cpython::is_native(type, "re.Pattern") || is_native_value(value.get())) return true;
  return is_getter(type) && holds_plain_arguments(value);
}

// In C since 3.12. Its name, bound and constraints never change; its attributes may.
static bool is_type_parameter(PyTypeObject* type) {
  return cpython::is_native(type, "typing.TypeVar") || cpython::is_native(type, "typing.ParamSpec") ||
         cpython::is_native(type, "typing.TypeVarTuple");
}

// An instance of a subclass of int, float, complex, str or bytes: the underlying value never changes.
static bool is_value_subclass(PyTypeObject* type) {
  PyTypeObject* base = layout_base(type);
  return base != type && (base == &PyLong_Type || base == &PyFloat_Type || base == &PyComplex_Type ||
                          base == &PyUnicode_Type || base == &PyBytes_Type);
}

// Equal values of these are always one object.
static bool is_shared(Borrowed plain) {
  PyObject* p = plain.get();
  if (is_singleton(plain) || is_enum_member(p) || is_native_enum_member(p)) return true;
  if (PyLong_CheckExact(p)) {
    int overflow = 0;
    const long number = PyLong_AsLongAndOverflow(p, &overflow);
    return overflow == 0 && number >= -5 && number <= 256;
  }
  return (PyUnicode_CheckExact(p) || PyBytes_CheckExact(p)) && PyObject_Length(p) == 0;
}

void Lifter::note_origin(Borrowed plain, Source* source) {
  if (source->access == Access::kConstant || is_shared(plain)) return;
  std::vector<Source*>& sources = origins_[plain.get()];
  if (sources.empty()) keep(Ref::share(plain));
  for (const Source* known : sources) {
    if (known == source) return;
  }
  sources.push_back(source);
}

bool Lifter::guard_identity(Borrowed plain) {
  auto found = origins_.find(plain.get());
  if (found == origins_.end()) return is_code_constant(plain) || is_shared(plain);
  for (Source* source : found->second) guard(source, GuardKind::kIs, plain);
  return true;
}

static bool holds(Borrowed container, PyObject* wanted) {
  PyObject *key = nullptr, *value = nullptr;
  PyObject* c = container.get();
  if (PyDict_Check(c)) {
    for (Py_ssize_t position = 0; PyDict_Next(c, &position, &key, &value) != 0;) {
      if (key == wanted || value == wanted) return true;
    }
  } else if (PyAnySet_Check(c)) {
    Py_hash_t hash;
    for (Py_ssize_t position = 0; _PySet_NextEntry(c, &position, &key, &hash) != 0;) {
      if (key == wanted) return true;
    }
  } else if (PyList_Check(c) || PyTuple_Check(c)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(c); i++) {
      if (PySequence_Fast_GET_ITEM(c, i) == wanted) return true;
    }
  }
  return false;
}

bool Lifter::guard_text_identity(Borrowed plain) {
  if (guard_identity(plain)) return true;
  if (!PyUnicode_CheckExact(plain.get()) && !PyBytes_CheckExact(plain.get())) return false;
  for (const Ref& container : guarded_whole_) {
    if (holds(container, plain.get())) return false;
  }
  for (const Shadow& shadow : shadows_) {
    if (holds(shadow.original, plain.get())) return false;
  }
  return true;
}

bool Lifter::has_one_origin(Borrowed plain) {
  auto found = origins_.find(plain.get());
  return (found == origins_.end() || found->second.size() == 1) && !is_code_constant(plain);
}

Source* Lifter::origin_of(Borrowed plain) {
  auto found = origins_.find(plain.get());
  if (found == origins_.end()) return nullptr;
  Source* first = found->second.front();
  // It may be a constant of the code or come from another source: all of them must stay the same object.
  if (is_code_constant(plain)) {
    guard(first, GuardKind::kIs, plain);
    return nullptr;
  }
  for (Source* other : found->second) guard_same(other, first);
  return first;
}

bool Lifter::is_unspecialized(Borrowed value, const Source& source) const {
  if (unspecialized == nullptr || only_lasting) return false;
  if (!is_counting(value) && !PyUnicode_CheckExact(value.get()) && !is_filled(value)) return false;
  if (!source.is_variable()) return false;
  // Of containers, only elements of an unpacked tuple (see lift_tuple()) count as variables.
  auto is_tuple = [](const Guard& guard) {
    return guard.kind == GuardKind::kType && Borrowed(guard.object) == reinterpret_cast<PyObject*>(&PyTuple_Type);
  };
  if (source.access == Access::kIndex && std::ranges::none_of(source.parent->guards, is_tuple)) return false;
  return unspecialized->contains(source.text());
}

// One symbol per source, since the scalar is the same object whenever it is read. There is no symbolic string or
// container: instructions that read one run concretely.
Ref Lifter::lift_unspecialized(Borrowed number, Source* source) {
  if (!is_counting(number))
    throw CannotLift(std::string("a ") + number.type()->tp_name + " whose value differs from call to call");
  Ref& lifted = unspecialized_[source];
  if (lifted) return lifted;
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(number.type()));
  lifted = fake::make_symbol(number.type());
  know(lifted, number, source);
  if (on_unspecialized) on_unspecialized();
  return lifted;
}

static thread_local NumpyScalarInputs* numpy_scalar_inputs = nullptr;

NumpyScalarInputs::NumpyScalarInputs(bool wanted) : wanted_(wanted), outer_(std::exchange(numpy_scalar_inputs, this)) {}
NumpyScalarInputs::~NumpyScalarInputs() { numpy_scalar_inputs = outer_; }

Ref NumpyScalarInputs::find(Borrowed value, const Source* source, bool* is_new) {
  NumpyScalarInputs* scope = numpy_scalar_inputs;
  if (scope == nullptr || !scope->wanted_ || source->parent != nullptr || source->access != Access::kSlot) return {};
  const NumpyKind kind = numpy_kind(value.get());
  if (kind == NumpyKind::kNone || kind == NumpyKind::kBool) return {};
  Ref& number = scope->lifted_[source];
  *is_new = !number;
  if (!number) number = fake::make_numpy_scalar_input(value);
  return number;
}

// A default argument of a function that is guarded by identity.
static bool is_default(const Source& source) {
  return source.parent != nullptr && source.parent->access == Access::kDefaults;
}

// Arrays in a global, a closure or an attribute are constants of a program. Those in arguments and variables are its
// data, and differ from call to call.
static bool is_setting(const Source& source) {
  const Source* at = &source;
  for (; at->parent != nullptr; at = at->parent) {
    if (at->access == Access::kDict || at->access == Access::kField) return true;
  }
  return at->access != Access::kSlot;
}

// A proxy of a plain dict; not of a class's dict, which the program may mutate through the class.
static bool is_proxy_of_dict(Borrowed proxy) {
  PyObject* mapping = cpython::proxied(proxy.get());
  return (PyDict_CheckExact(mapping) || PyODict_CheckExact(mapping)) &&
         PyDict_GetItemString(mapping, "__module__") == nullptr;
}

Ref Lifter::lift(Borrowed value, Source* source) {
  if (is_switched_off(value)) return Ref::share(value);
  if (value.get() == withheld_.get() && source->access != Access::kMethodSelf)
    throw CannotLift("the list that warnings are recorded in");
  if (only_lasting && source->access != Access::kConstant && !(is_default(*source) && is_plain(value.get())))
    check_lasting(value);
  if (is_unspecialized(value, *source)) return lift_unspecialized(value, source);
  bool is_new = false;
  if (Ref number = only_lasting ? Ref() : NumpyScalarInputs::find(value, source, &is_new)) {
    if (is_new) {
      guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(value.type()));
      know(number, value, source);
    }
    return number;
  }
  const bool nan = is_nan(value.get());
  if (is_plain(value.get()) && !is_enum_member(value.get()) && !nan) {
    guard(source, is_singleton(value) ? GuardKind::kIs : GuardKind::kEquals, value);
    note_origin(value, source);
    return Ref::share(value);
  }
  if (is_about_decimals(value.get())) {
    if (on_decimal) on_decimal();
    if (is_decimal_context(value.get())) return lift_decimal_context(value, source, true);
  }
  if (auto seen = lifted_.find(value.get()); seen != lifted_.end()) {
    guard_same(source, known(seen->second)->source);
    return Ref::share(seen->second);
  }
  if (made_here(value) || known(value) != nullptr) return Ref::share(value);  // of this trace: it needs no source

  if (nan || is_decimal(value.get())) {
    // A NaN is not equal to itself, but containers find it by identity.
    guard(source, GuardKind::kEquals, value);
    source->bears_identity = true;
    return lift_itself(value, source, false);
  }
  PyTypeObject* type = value.type();
  if (fake::is_tensor_object(value.get())) return lift_tensor(value, source);
  if (PyType_Check(value.get())) {
    guard(source, GuardKind::kIs, value);
    // A metaclass that is not builtin may be replaced by another one.
    if ((type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0)
      tree_.guard(constant(value), {GuardKind::kType, Ref::share(reinterpret_cast<PyObject*>(type))});
    return lift_itself(value, constant(value), false);
  }
  if (PyFunction_Check(value.get())) return lift_function(value, source);
  if (type == &PyTuple_Type || (PyTuple_Check(value.get()) && has_plain_layout(type))) {
    return lift_tuple(value, source);
  }
  if (is_native_value(value.get()) && source->access != Access::kConstant) {
    guard(source, GuardKind::kEquals, value);
    source->bears_identity = true;
    return lift_itself(value, source, false);
  }
  if (is_immutable_native(value) || is_numpy_function(value)) {
    guard(source, GuardKind::kIs, value);
    return lift_itself(value, constant(value), false);
  }
  if (PyTuple_Check(value.get())) throw CannotLift(std::string("a tuple type defined in C: ") + type->tp_name);
  if (PyList_Check(value.get()) || PyDict_Check(value.get()) || PyAnySet_Check(value.get()) ||
      value.type() == known_types().deque) {
    return lift_container(value, source);
  }
  if (type == &PyMethod_Type) return lift_method(value, source);
  if (PyCFunction_Check(value.get())) return lift_builtin(value, source);
  if (value.type() == known_types().partial) return lift_partial(value, source);
  if (type == &PySuper_Type) return lift_super(value, source);
  if (PyWeakref_CheckRefExact(value.get())) return lift_weak_reference(value, source);
  if (is_tree_spec(value.get())) return lift_tree_spec(value, source);
  if (type == &PyDictProxy_Type && is_proxy_of_dict(value)) return lift_proxy(value, source);
  if (cpython::viewed(value.get()) != nullptr) return lift_view(value, source);
  if (PyModule_Check(value.get())) {
    guard(source, GuardKind::kIs, value);
    tree_.guard(constant(value), {GuardKind::kType, Ref::share(reinterpret_cast<PyObject*>(type))});  // assignable
    return lift_itself(value, constant(value), true);
  }
  if (PyCode_Check(value.get()) || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
      type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type || type == &PyClassMethodDescr_Type ||
      type == &PyProperty_Type || type == &PyStaticMethod_Type || type == &PyClassMethod_Type) {
    guard(source, GuardKind::kIs, value);
    return lift_itself(value, constant(value), false);
  }
  if (PyCell_Check(value.get())) {
    guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(type));
    cells_.try_emplace(value.get(), Cell{source});
    source->bears_identity = true;
    return lift_itself(value, source, false);
  }
  if (is_enum_member(value.get()) || is_type_parameter(type)) {
    guard(source, GuardKind::kIs, value);
    return lift_itself(value, constant(value), true);
  }
  if (is_stateless(type)) {
    guard(source, GuardKind::kIs, value);
    return lift_itself(value, constant(value), false);
  }
  if (is_value_subclass(type)) {
    guard(source, GuardKind::kIs, value);
    use_special_methods(type);
    return lift_itself(value, constant(value), true);
  }
  has_arrays_ = has_arrays_ || is_array(value.get());
  if (Ref copy = is_array(value.get()) && is_setting(*source) ? fixed_copy(value) : Ref()) {
    guard(source, GuardKind::kEquals, copy);
    source->bears_identity = true;
    return remember(value, std::move(copy), source);
  }
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(type));
  const bool is_namespace = layout_base(type) == known_types().simple_namespace;
  if (has_plain_layout(type) || is_namespace) {
    if (is_namespace) has_arrays_ = true;  // native code that compares it reads the real one
    source->bears_identity = true;
    use_special_methods(type);
    return lift_itself(value, source, true);
  }
  source->bears_identity = true;
  if (cpython::is_thread_local(type) && layout_base(type)->tp_base == &PyBaseObject_Type) {
    use_special_methods(type);
    const bool has_dict = cpython::thread_dict(value.get()) != nullptr;
    if (has_dict || !cpython::is_filled_by_init(type)) return lift_itself(value, source, true);
    // The first access would run the class's __init__: that is done concretely. From then on another entry applies.
    guard(tree_.child(source, Access::kDict), GuardKind::kAbsent);
  }
  has_arrays_ = true;
  return lift_itself(value, source, false, true);
}

Ref Lifter::lift_itself(Borrowed object, Source* source, bool instance, bool opaque) {
  Ref lifted = remember(object, Ref::share(object), source);
  Known& known = known_as(object);
  known.instance = instance;
  known.opaque = opaque;
  return lifted;
}

Ref Lifter::lift_tensor(Borrowed tensor, Source* source) {
  const at::Tensor& real = fake::unpack(tensor.get());
  Guard guard{GuardKind::kTensor};
  guard.tensor = std::make_shared<const TensorSpec>(describe_tensor(tensor));
  tree_.guard(source, std::move(guard));
  source->bears_identity = true;
  if (fake::is_fake(real)) throw CannotLift("a fake of another trace");
  if (const char* reason = fake::cannot_mirror(real)) throw CannotLift(reason);
  Ref lifted = session_.fake_of(tensor);
  tensors_.emplace_back(lifted, source);
  if (on_tensor) on_tensor(fake::unpack(lifted.get()), source);
  Ref result = remember(tensor, std::move(lifted), source);
  known_as(result).instance = true;
  return result;
}

Ref Lifter::lift_tuple(Borrowed tuple, Source* source) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple.get());
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(tuple.type()));
  guard(source, GuardKind::kLength, {}, count);
  if (tuple.type() != &PyTuple_Type) use_special_methods(tuple.type());
  Ref copy = checked(tuple.type()->tp_alloc(tuple.type(), count));
  bool same = true;
  // Native code may read the tuple: its scalars stay specialized.
  struct Restored {
    const std::unordered_set<std::string>*&target, *before;
    ~Restored() { target = before; }
  } const restored{unspecialized, std::exchange(unspecialized, nullptr)};
  for (Py_ssize_t i = 0; i < count; i++) {
    Borrowed element = PyTuple_GET_ITEM(tuple.get(), i);
    Ref lifted = lift(element, tree_.child(source, Access::kIndex, {}, i));
    escape(lifted);
    same = same && Borrowed(lifted) == element;
    PyTuple_SET_ITEM(copy.get(), i, lifted.release());
  }
  const bool has_attributes = tuple.type()->tp_dictoffset != 0;
  source->bears_identity = count > 0 || has_attributes;
  Ref lifted = remember(tuple, same ? Ref::share(tuple) : std::move(copy), source);
  known_as(lifted).instance = has_attributes;
  return lifted;
}

Ref Lifter::lift_function(Borrowed function, Source* source) {
  auto* f = function.as<PyFunctionObject>();
  // A function found under a fixed name is the same object in every call; one that is passed in may be reconstructed.
  const bool named = source->access == Access::kTypeAttribute ||
                     (source->access == Access::kItem && source->parent->access == Access::kConstant);
  if (named) guard(source, GuardKind::kIs, function);
  Source* origin = named ? constant(function) : source;
  Guard code{GuardKind::kCode, Ref::share(f->func_code), Ref::share(f->func_globals)};
  tree_.guard(origin, std::move(code));
  if (!named) source->bears_identity = true;
  return lift_itself(function, origin, true);
}

Ref Lifter::lift_method(Borrowed method, Source* source) {
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(method.type()));
  Ref self = lift(PyMethod_GET_SELF(method.get()), tree_.child(source, Access::kMethodSelf));
  Ref function = lift(PyMethod_GET_FUNCTION(method.get()), tree_.child(source, Access::kMethodFunction));
  return remember(method, checked(PyMethod_New(function.get(), self.get())), source);
}

Ref Lifter::lift_proxy(Borrowed proxy, Source* source) {
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(proxy.type()));
  Ref mapping = lift(cpython::proxied(proxy.get()), tree_.child(source, Access::kProxied));
  escape(mapping);
  source->bears_identity = true;
  return remember(proxy, checked(PyDictProxy_New(mapping.get())), source);
}

// A view of the private copy. Its contents are those of the view's base type, whatever a subclass overrides.
Ref Lifter::lift_view(Borrowed view, Source* source) {
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(view.type()));
  Ref dict = lift(cpython::viewed(view.get()), tree_.child(source, Access::kProxied));
  escape(dict);
  source->bears_identity = true;
  return remember(view, checked(_PyDictView_New(dict.get(), view.type())), source);
}

// An equal one, made of lifted parts: native code hands them to the program.
Ref Lifter::lift_tree_spec(Borrowed spec, Source* source) {
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(spec.type()));
  Ref parts = checked(PyObject_CallMethod(spec.get(), "__getstate__", nullptr));
  Ref state = lift(parts, tree_.child(source, Access::kReduced));
  Ref copy = checked(spec.type()->tp_new(spec.type(), checked(PyTuple_New(0)).get(), nullptr));
  checked(PyObject_CallMethod(copy.get(), "__setstate__", "(O)", state.get())).reset();
  source->bears_identity = true;
  return remember(spec, std::move(copy), source);
}

// pybind11 and C modules keep a record or the module as the "self" of a builtin: no user object.
static bool is_unbound_builtin(PyObject* self) {
  return self == nullptr || PyModule_Check(self) || PyType_Check(self) || PyCapsule_CheckExact(self) ||
         strstr(Py_TYPE(self)->tp_name, "function_record") != nullptr;
}

Ref Lifter::lift_builtin(Borrowed builtin, Source* source) {
  auto* function = builtin.as<PyCFunctionObject>();
  PyObject* self = PyCFunction_GET_SELF(builtin.get());
  if (is_unbound_builtin(self)) {
    guard(source, GuardKind::kIs, builtin);
    return lift_itself(builtin, constant(builtin), false);
  }
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(builtin.type()));
  Ref name = checked(PyUnicode_InternFromString(function->m_ml->ml_name));
  guard(tree_.child(source, Access::kField, names::__name__), GuardKind::kEquals, name);
  Ref bound_to = lift(self, tree_.child(source, Access::kMethodSelf));
  // list.append reads no element, so the list is not lifted whole; the call is handled like that of a method bound in
  // the trace.
  if (!PyList_CheckExact(self) || strcmp(function->m_ml->ml_name, "append") != 0) escape(bound_to);
  PyTypeObject* defining = PyCFunction_GET_CLASS(builtin.get());  // for METH_METHOD: re.match
  return remember(builtin, checked(PyCMethod_New(function->m_ml, bound_to.get(), function->m_module, defining)),
                  source);
}

// A weak reference to the lifted referent. A callback belongs to the pre-existing reference; the lifted one then has a
// callback that does nothing, so that it differs from what `weakref.ref(x)` returns.
Ref Lifter::lift_weak_reference(Borrowed reference, Source* source) {
  Ref referent = Ref::share(PyWeakref_GetObject(reference.get()));
  if (referent.get() == Py_None) {
    // It returns None forever. Its hash, if cached, is its own: another dead reference is not interchangeable.
    guard(source, GuardKind::kIs, reference);
    return lift_itself(reference, constant(reference), false);
  }
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(reference.type()));
  source->bears_identity = true;
  Ref lifted = lift(referent, tree_.child(source, Access::kReferent));
  Borrowed callback = reinterpret_cast<PyWeakReference*>(reference.get())->wr_callback;
  static PyMethodDef method = {"callback", [](PyObject*, PyObject*) { return Py_NewRef(Py_None); }, METH_O, nullptr};
  Ref nothing = callback ? checked(PyCFunction_New(&method, nullptr)) : Ref();
  guard(tree_.child(source, Access::kField, checked(PyUnicode_InternFromString("__callback__"))), GuardKind::kType,
        reinterpret_cast<PyObject*>(callback ? callback.type() : Py_TYPE(Py_None)));
  return remember(reference, checked(PyWeakref_NewRef(lifted.get(), nothing.get())), source);
}

Ref Lifter::lift_super(Borrowed super, Source* source) {
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(super.type()));
  auto field = [&](const char* text) {
    Ref name = checked(PyUnicode_InternFromString(text));
    // The members of PySuper_Type itself: super objects forward lookups to another class.
    Borrowed member = _PyType_Lookup(&PySuper_Type, name.get());
    Ref value = checked(member.type()->tp_descr_get(member.get(), super.get(), nullptr));
    return lift(value, tree_.child(source, Access::kField, name));
  };
  Ref cls = field("__thisclass__"), self = field("__self__");
  if (self.get() == Py_None) throw CannotLift("a super object without an instance");
  return remember(
      super,
      checked(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type), cls.get(), self.get(), nullptr)),
      source);
}

Ref Lifter::lift_partial(Borrowed partial, Source* source) {
  guard(source, GuardKind::kType, reinterpret_cast<PyObject*>(partial.type()));
  auto field = [&](const char* text) {
    Ref name = checked(PyUnicode_InternFromString(text));
    Ref value = checked(PyObject_GetAttr(partial.get(), name.get()));
    Ref lifted = lift(value, tree_.child(source, Access::kField, name));
    escape(lifted);
    return lifted;
  };
  Ref function = field("func"), arguments = field("args"), keywords = field("keywords");
  // partial() does not flatten a partial that has a __dict__, even an empty one.
  PyObject* own = *_PyObject_GetDictPtr(partial.get());
  if (own != nullptr && !PyDict_CheckExact(own)) throw CannotLift("a partial whose __dict__ is not a plain dict");
  Source* dict_source = tree_.child(source, Access::kDict, {}, 1);
  if (own != nullptr) {
    guard(dict_source, GuardKind::kType, reinterpret_cast<PyObject*>(&PyDict_Type));
  } else {
    guard(dict_source, GuardKind::kAbsent);
  }
  // Sets the parts directly: the constructor would flatten an inner partial.
  Ref copy = checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(partial.type()),
                                         reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  Ref attributes = own != nullptr ? checked(PyDict_New()) : Ref::share(Py_None);
  Ref state = checked(PyTuple_Pack(4, function.get(), arguments.get(), keywords.get(), attributes.get()));
  checked(PyObject_CallMethod(copy.get(), "__setstate__", "(O)", state.get())).reset();
  return remember(partial, std::move(copy), source);
}

}  // namespace alternator::lift
