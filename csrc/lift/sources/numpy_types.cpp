#include "lift/sources/numpy_types.h"

#include "lift/sources/pointer_tables.h"
#include "py/lasting.h"

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace alternator::lift {

namespace {

struct Row {
  PyTypeObject* type;
  size_t size;
  NumpyKind kind;
};

struct Table {
  std::vector<Row> rows;
  PointerSet<PyObject> functions;
  std::vector<std::pair<PyObject*, size_t>> dtypes;  // with the size of an element
  PyTypeObject* array = nullptr;
  PyObject* dtype_class = nullptr;
  PyObject* errors = nullptr;   // the context variable of numpy's floating-point error handling (numpy.errstate)
  PyObject* raising = nullptr;  // its value if errors are raised
  PyObject* ignoring = nullptr;
  PyObject *make_errors = nullptr, *report_errors = nullptr;  // numpy's functions for such values
};

// Array flags, as numpy numbers them (NPY_ARRAY_...).
constexpr int kCContiguous = 1, kFContiguous = 2, kOwnsData = 4, kAligned = 0x100, kWriteable = 0x400;

// The address of the scalar's value in the object.
const char* bytes_of(PyObject* number) { return reinterpret_cast<const char*>(number) + sizeof(PyObject); }

// Functions on arrays and scalars without side effects, callbacks or state. Excluded are those that return
// uninitialized memory (empty), take user code (vectorize) or are deprecated and only warn.
constexpr const char* kFunctions =
    "array asarray asanyarray ascontiguousarray asfortranarray arange linspace logspace geomspace zeros ones full eye "
    "identity zeros_like ones_like full_like tri tril triu diag diagflat diagonal meshgrid indices copy reshape ravel "
    "transpose permute_dims swapaxes moveaxis rollaxis squeeze expand_dims broadcast_to atleast_1d atleast_2d "
    "atleast_3d concatenate concat stack vstack hstack dstack column_stack split array_split hsplit vsplit dsplit tile "
    "repeat flip fliplr flipud roll rot90 append insert delete unique pad prod sum mean std var max min amax amin "
    "round "
    "around median average ptp cumsum cumprod diff argmax argmin argsort sort searchsorted nonzero flatnonzero "
    "argwhere "
    "count_nonzero where clip all any allclose isclose array_equal array_equiv isin dot inner outer tensordot einsum "
    "trace kron vdot interp histogram bincount digitize take take_along_axis choose compress select percentile "
    "quantile "
    "nan_to_num real imag nansum nanprod nanmean nanmax nanmin unravel_index ravel_multi_index shape ndim size sinc "
    "hanning hamming blackman bartlett fix polyval triu_indices tril_indices diag_indices ix_";

bool lies_as_expected(PyTypeObject* type, size_t size) {
  Ref one = checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(type), "i", 1));
  Ref bytes = checked(PyObject_CallMethod(one.get(), "tobytes", nullptr));
  return Py_IS_TYPE(one.get(), type) && type->tp_basicsize == static_cast<Py_ssize_t>(sizeof(PyFloatObject)) &&
         PyBytes_Check(bytes.get()) && PyBytes_GET_SIZE(bytes.get()) == static_cast<Py_ssize_t>(size) &&
         std::memcmp(PyBytes_AS_STRING(bytes.get()), bytes_of(one.get()), size) == 0;
}

void add_numbers(Table& table, Borrowed numpy) {
  const std::pair<const char*, NumpyKind> kinds[] = {
      {"bool_", NumpyKind::kBool},
      {"byte ubyte short ushort intc uintc long ulong int_ uint longlong ulonglong", NumpyKind::kInteger},
      {"half single", NumpyKind::kFloat},
      {"double", NumpyKind::kDouble}};
  for (const auto& [names, kind] : kinds) {
    std::istringstream words(names);
    for (std::string word; words >> word;) {
      Ref type = Ref::steal(PyObject_GetAttrString(numpy.get(), word.c_str()));
      if (!type || !PyType_Check(type.get())) {
        PyErr_Clear();  // a name of another version
        continue;
      }
      Ref of_type = checked(PyObject_CallMethod(numpy.get(), "dtype", "O", type.get()));
      Ref size = checked(PyObject_GetAttrString(of_type.get(), "itemsize"));
      const size_t bytes = PyLong_AsSize_t(size.get());
      if (!lies_as_expected(type.as<PyTypeObject>(), bytes)) continue;
      table.rows.push_back({reinterpret_cast<PyTypeObject*>(type.release()), bytes, kind});
      table.dtypes.emplace_back(of_type.release(), bytes);
    }
  }
}

void add_functions(Table& table, Borrowed numpy) {
  Ref ufunc = checked(PyObject_GetAttrString(numpy.get(), "ufunc"));
  Ref names = checked(PyObject_Dir(numpy.get()));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); i++) {
    // Attributes that numpy creates lazily, some with a warning, are skipped.
    PyObject* found = PyDict_GetItemWithError(PyModule_GetDict(numpy.get()), PyList_GET_ITEM(names.get(), i));
    if (found != nullptr && Py_IS_TYPE(found, ufunc.as<PyTypeObject>())) table.functions.insert(Py_NewRef(found));
  }
  std::istringstream words(kFunctions);
  for (std::string word; words >> word;) {
    PyObject* found = PyDict_GetItemString(PyModule_GetDict(numpy.get()), word.c_str());
    if (found != nullptr) table.functions.insert(Py_NewRef(found));
  }
}

// Checks that the fields of an array have the expected layout.
bool array_lies_as_expected(Borrowed numpy, const Table& table) {
  Ref whole = checked(PyObject_CallMethod(numpy.get(), "arange", "i", 6));
  Ref array = checked(PyObject_CallMethod(whole.get(), "reshape", "ii", 2, 3));
  Ref dtype = checked(PyObject_GetAttrString(array.get(), "dtype"));
  Ref place = checked(PyObject_GetAttrString(array.get(), "__array_interface__"));
  Ref at = Ref::share(PyDict_GetItemString(place.get(), "data"));
  const ArrayFields& fields = fields_of(array);
  bool known = false;
  for (const auto& [known_dtype, size] : table.dtypes) known = known || known_dtype == dtype.get();
  return known && at && PyTuple_Check(at.get()) && table.array->tp_basicsize >= Py_ssize_t(sizeof(ArrayFields)) &&
         PyLong_AsVoidPtr(PyTuple_GET_ITEM(at.get(), 0)) == fields.data && fields.dimensions == 2 &&
         fields.shape[0] == 2 && fields.shape[1] == 3 && fields.strides[0] == 24 && fields.strides[1] == 8 &&
         fields.base == whole.get() && fields.dtype == dtype.get() &&
         fields.flags == (kCContiguous | kAligned | kWriteable) &&
         fields_of(whole).flags == (kCContiguous | kFContiguous | kOwnsData | kAligned | kWriteable);
}

void add_arrays(Table& table, Borrowed numpy) {
  Ref array = checked(PyObject_GetAttrString(numpy.get(), "ndarray"));
  if (!PyType_Check(array.get())) return;
  table.array = array.as<PyTypeObject>();
  if (!array_lies_as_expected(numpy, table)) {
    table.array = nullptr;
    return;
  }
  array.release();
  table.dtype_class = checked(PyObject_GetAttrString(numpy.get(), "dtype")).release();
}

// numpy's error state is private; without it, no numpy function is evaluated in a trace.
bool add_errors(Table& table) {
  Ref path = checked(PyUnicode_FromString("numpy._core.umath"));
  Ref umath = Ref::steal(PyImport_GetModule(path.get()));  // numpy has imported it
  Ref variable = umath ? Ref::steal(PyObject_GetAttrString(umath.get(), "_extobj_contextvar")) : Ref();
  Ref make = umath ? Ref::steal(PyObject_GetAttrString(umath.get(), "_make_extobj")) : Ref();
  Ref describe = umath ? Ref::steal(PyObject_GetAttrString(umath.get(), "_get_extobj_dict")) : Ref();
  auto all = [&](const char* what) {
    Ref none = checked(PyTuple_New(0)), options = checked(Py_BuildValue("{ss}", "all", what));
    return make ? Ref::steal(PyObject_Call(make.get(), none.get(), options.get())) : Ref();
  };
  Ref value = all("raise"), ignoring = value ? all("ignore") : Ref();
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)) throw PyError();
  if (!variable || !describe || !ignoring || !PyContextVar_CheckExact(variable.get())) {
    PyErr_Clear();
    return false;
  }
  table.errors = variable.release();
  table.raising = value.release();
  table.ignoring = ignoring.release();
  table.make_errors = make.release();
  table.report_errors = describe.release();
  return true;
}

// Empty if numpy is not available. Torch imports it if it can.
const Table& table() {
  static constinit Lasting<const Table*> lasting;
  return *lasting.get([] {
    auto made = std::make_unique<Table>();
    Ref name = checked(PyUnicode_FromString("numpy"));
    Ref numpy = Ref::steal(PyImport_GetModule(name.get()));
    if (!numpy) {
      if (PyErr_Occurred()) throw PyError();
    } else if (PyModule_Check(numpy.get()) && add_errors(*made)) {
      add_numbers(*made, numpy);
      add_functions(*made, numpy);
      add_arrays(*made, numpy);
    }
    return made.release();
  });
}

const Row* row_of(PyTypeObject* type) {
  for (const Row& row : table().rows) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace

NumpyKind numpy_kind_of(PyTypeObject* type) {
  const Row* row = row_of(type);
  return row != nullptr ? row->kind : NumpyKind::kNone;
}

bool numpy_equal(PyObject* a, PyObject* b) {
  const Row* row = row_of(Py_TYPE(a));
  return row != nullptr && Py_IS_TYPE(b, row->type) && std::memcmp(bytes_of(a), bytes_of(b), row->size) == 0;
}

bool numpy_is_nan(PyObject* number) {
  const NumpyKind kind = numpy_kind(number);
  if (kind != NumpyKind::kFloat && kind != NumpyKind::kDouble) return false;
  Ref value = Ref::steal(Py_TYPE(number)->tp_as_number->nb_float(number));
  if (!value) PyErr_Clear();
  return value && std::isnan(PyFloat_AS_DOUBLE(value.get()));
}

Ref python_number(Borrowed numpy_number) { return checked(PyObject_CallMethod(numpy_number.get(), "item", nullptr)); }

bool is_numpy_function(Borrowed object) { return table().functions.count(object.get()) != 0; }

std::vector<PyObject*> numpy_functions() { return {table().functions.begin(), table().functions.end()}; }
std::vector<PyTypeObject*> numpy_number_types() {
  std::vector<PyTypeObject*> types;
  for (const Row& row : table().rows) types.push_back(row.type);
  return types;
}

PyTypeObject* array_type() { return table().array; }
PyObject* dtype_class() { return table().dtype_class; }
bool is_array(PyObject* object) {
  // Cheap tests first: no other type of that size has no GC, no items and a buffer.
  PyTypeObject* type = Py_TYPE(object);
  return type->tp_as_buffer != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 && type == array_type();
}
bool is_dtype_class(Borrowed object) {
  return PyType_Check(object.get()) && table().dtype_class != nullptr && object.get() == table().dtype_class;
}

static size_t size_of_dtype(PyObject* dtype) {
  for (const auto& [known, size] : table().dtypes) {
    if (known == dtype) return size;
  }
  return 0;
}
bool is_numpy_dtype(PyObject* object) {
  // Their classes have a numpy metaclass; enum members have a metaclass too, and little else has.
  return Py_TYPE(Py_TYPE(object)) != &PyType_Type && size_of_dtype(object) != 0;
}

bool is_writeable(Borrowed array) { return (fields_of(array).flags & kWriteable) != 0; }
bool is_aligned(Borrowed array) { return (fields_of(array).flags & kAligned) != 0; }
bool is_c_contiguous(Borrowed array) { return (fields_of(array).flags & kCContiguous) != 0; }
Py_ssize_t element_size(Borrowed array) { return static_cast<Py_ssize_t>(size_of_dtype(fields_of(array).dtype)); }
Py_ssize_t element_count(Borrowed array) {
  Py_ssize_t count = 1;
  for (int i = 0; i < fields_of(array).dimensions; i++) count *= fields_of(array).shape[i];
  return count;
}

Borrowed array_root(Borrowed array) {
  while (fields_of(array).base != nullptr && is_array(fields_of(array).base)) array = fields_of(array).base;
  return array;
}

Borrowed array_owner(Borrowed array) {
  while (fields_of(array).base != nullptr) {
    if (!is_array(fields_of(array).base)) return {};
    array = fields_of(array).base;
  }
  return (fields_of(array).flags & kOwnsData) != 0 ? array : Borrowed();
}

static size_t byte_count(Borrowed array) { return static_cast<size_t>(element_count(array) * element_size(array)); }

// The geometry of two arrays; callers compare flags.
static bool same_shape(const ArrayFields& a, const ArrayFields& b) {
  if (a.dtype != b.dtype || a.dimensions != b.dimensions) return false;
  for (int i = 0; i < a.dimensions; i++) {
    if (a.shape[i] != b.shape[i] || a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

static bool is_liftable(Borrowed array) {
  constexpr int kWanted = kAligned | kWriteable;
  return is_number_array(array.get()) && (fields_of(array).flags & kWanted) == kWanted && array_owner(array);
}

// An array with new contents at each trace is no constant, and not worth another entry each time.
static bool changes_often(Borrowed array, Borrowed copy) {
  constexpr size_t kMostVersions = 4, kMany = 10'000;
  struct Seen {
    Ref weak;  // to the array: another one may get its address later
    std::unordered_set<size_t> versions;
  };
  static auto* const all = new std::unordered_map<PyObject*, Seen>;
  if (all->size() > kMany) all->clear();
  Seen& seen = (*all)[array.get()];
  if (!seen.weak || PyWeakref_GetObject(seen.weak.get()) != array.get())
    seen = {checked(PyWeakref_NewRef(array.get(), nullptr)), {}};
  if (seen.versions.size() <= kMostVersions)
    seen.versions.insert(std::hash<std::string_view>()({fields_of(copy).data, byte_count(copy)}));
  return seen.versions.size() > kMostVersions;
}

Ref fixed_copy(Borrowed array) {
  constexpr Py_ssize_t kMostElements = 1024;
  if (!is_liftable(array) || element_count(array) > kMostElements) return {};
  Ref copy = checked(PyObject_CallMethod(array.get(), "copy", "s", "K"));
  // A view of a larger array has gaps that its copy has not.
  if (!is_array(copy.get()) || !same_shape(fields_of(array), fields_of(copy)) || changes_often(array, copy)) return {};
  fields_of(copy).flags &= ~kWriteable;
  return copy;
}

Ref contents_of_array(Borrowed array) {
  const ArrayFields& fields = fields_of(array);
  auto numbers = [&](const Py_ssize_t* from) {
    Ref tuple = checked(PyTuple_New(fields.dimensions));
    for (int i = 0; i < fields.dimensions; i++)
      PyTuple_SET_ITEM(tuple.get(), i, checked(PyLong_FromSsize_t(from[i])).release());
    return tuple;
  };
  Ref shape = numbers(fields.shape), strides = numbers(fields.strides);
  if (!array_owner(array)) return checked(PyTuple_Pack(3, fields.dtype, shape.get(), strides.get()));
  Ref bytes = checked(PyBytes_FromStringAndSize(fields.data, static_cast<Py_ssize_t>(byte_count(array))));
  return checked(PyTuple_Pack(4, fields.dtype, shape.get(), strides.get(), bytes.get()));
}

bool array_has(PyObject* array, PyObject* contents) {
  const ArrayFields& fields = fields_of(array);
  auto are = [&](const Py_ssize_t* found, PyObject* wanted) {
    if (PyTuple_GET_SIZE(wanted) != fields.dimensions) return false;
    for (int i = 0; i < fields.dimensions; i++) {
      if (PyLong_AsSsize_t(PyTuple_GET_ITEM(wanted, i)) != found[i]) return false;
    }
    return true;
  };
  const bool any_numbers = PyTuple_GET_SIZE(contents) == 3;
  if (fields.dtype != PyTuple_GET_ITEM(contents, 0) ||
      !(any_numbers ? is_aligned(array) && is_writeable(array) : is_liftable(array)) ||
      !are(fields.shape, PyTuple_GET_ITEM(contents, 1)) || !are(fields.strides, PyTuple_GET_ITEM(contents, 2))) {
    return false;
  }
  if (any_numbers) return true;
  PyObject* bytes = PyTuple_GET_ITEM(contents, 3);
  return std::memcmp(fields.data, PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))) == 0;
}

static thread_local NumpyErrors* current_errors = nullptr;

NumpyErrors::NumpyErrors() : outer_(current_errors) {
  if (table().errors != nullptr) enter();
  current_errors = this;
}

NumpyErrors::~NumpyErrors() {
  leave();
  current_errors = outer_;
}

void NumpyErrors::enter() {
  const SavedError on_its_way;
  token_ = Ref::steal(PyContextVar_Set(table().errors, table().raising));
  if (!token_) PyErr_Clear();  // out of memory: error handling stays as it was
}

void NumpyErrors::leave() {
  if (!token_) return;
  const SavedError on_its_way;
  if (PyContextVar_Reset(table().errors, std::exchange(token_, Ref()).get()) < 0) PyErr_Clear();
}

NumpyErrorsAsBefore::NumpyErrorsAsBefore() : scope_(current_errors) {
  if (scope_ != nullptr) scope_->leave();
}

NumpyErrorsAsBefore::~NumpyErrorsAsBefore() {
  if (scope_ != nullptr && table().errors != nullptr) scope_->enter();
}

// The error state in which every kind that this thread does not ignore raises.
static Ref errors_raised() {
  struct Seen {
    Ref before, raised;
  };
  static auto* const seen = new Seen;  // nearly always the same as last time
  PyObject* value = nullptr;
  if (PyContextVar_Get(table().errors, nullptr, &value) < 0) throw PyError();
  Ref now = Ref::steal(value);
  if (now && now.get() == seen->before.get()) return seen->raised;
  Ref options = checked(PyObject_CallNoArgs(table().report_errors));
  for (const char* name : {"divide", "over", "under", "invalid"}) {
    PyObject* found = PyDict_GetItemString(options.get(), name);
    if (found == nullptr || !PyUnicode_Check(found) || PyUnicode_CompareWithASCIIString(found, "ignore") == 0) continue;
    check_status(PyDict_SetItemString(options.get(), name, checked(PyUnicode_FromString("raise")).get()));
  }
  Ref none = checked(PyTuple_New(0));
  Ref raised = checked(PyObject_Call(table().make_errors, none.get(), options.get()));
  *seen = {std::move(now), Ref(raised)};
  return raised;
}

NumpyErrorsSet::NumpyErrorsSet(Kind kind) {
  if (table().errors == nullptr) return;
  Ref value = kind == Kind::kIgnored ? Ref::share(table().ignoring) : errors_raised();
  token_ = checked(PyContextVar_Set(table().errors, value.get()));
}

NumpyErrorsSet::~NumpyErrorsSet() {
  if (!token_) return;
  const SavedError on_its_way;
  if (PyContextVar_Reset(table().errors, token_.get()) < 0) PyErr_Clear();
}

static bool says(PyObject* value, const char* words) {
  const SavedError raised;
  Ref text = Ref::steal(PyObject_Str(value));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return utf8 != nullptr && strstr(utf8, words) != nullptr;
}

bool is_numpy_error(PyObject* type, PyObject* value) {
  return type == PyExc_FloatingPointError && table().errors != nullptr && value != nullptr &&
         says(value, " encountered in ");
}

bool is_read_only_error(PyObject* type, PyObject* value) {
  // A refused buffer request is a TypeError or a BufferError.
  return (type == PyExc_ValueError || type == PyExc_TypeError || type == PyExc_BufferError) && value != nullptr &&
         (says(value, "read-only") || says(value, "read-write") || says(value, "writable") || says(value, "writeable"));
}

// --- warnings ---------------------------------------------------------------------------------------------

// Filters match a message by calling pattern.match(): this pattern matches by thread.
static thread_local bool warnings_raise = false;

static PyObject* matches_here(PyObject*, PyObject*) { return PyBool_FromLong(warnings_raise ? 1 : 0); }

static Ref make_filter() {
  static PyMethodDef method = {"match", matches_here, METH_O, nullptr};
  Ref types = checked(PyImport_ImportModule("types"));
  Ref pattern = checked(PyObject_CallMethod(types.get(), "SimpleNamespace", nullptr));
  Ref match = checked(PyCFunction_New(&method, nullptr));
  check_status(PyObject_SetAttrString(pattern.get(), "match", match.get()));
  return checked(Py_BuildValue("(sOOOi)", "error", pattern.get(), PyExc_Warning, Py_None, 0));
}

WarningsRaise::WarningsRaise() : outer_(std::exchange(warnings_raise, true)) {
  static constinit Lasting<PyObject*> filter;
  Ref name = checked(PyUnicode_FromString("warnings"));
  Ref warnings = checked(PyImport_GetModule(name.get()));
  filters_ = checked(PyObject_GetAttrString(warnings.get(), "filters"));
  filter_ = Ref::share(filter.get([] { return make_filter().release(); }));
  if (outer_ || !PyList_CheckExact(filters_.get())) {
    filters_.reset();
  } else {
    check_status(PyList_Insert(filters_.get(), 0, filter_.get()));
  }
}

WarningsRaise::~WarningsRaise() {
  warnings_raise = outer_;
  for (Py_ssize_t i = 0; filters_ && i < PyList_GET_SIZE(filters_.get()); i++) {
    if (PyList_GET_ITEM(filters_.get(), i) != filter_.get()) continue;
    const SavedError on_its_way;
    if (PyList_SetSlice(filters_.get(), i, i + 1, nullptr) < 0) PyErr_Clear();
    break;
  }
}

}  // namespace alternator::lift
