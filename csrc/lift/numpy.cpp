#include "lift/numpy.h"

#include "py/lasting.h"

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
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
  std::unordered_set<PyObject*> functions;
  PyObject* errors = nullptr;   // the context variable that says what is done about floating-point errors
  PyObject* raising = nullptr;  // its value where they are raised
};

// Where the number lies in the object.
const char* bytes_of(PyObject* number) { return reinterpret_cast<const char*>(number) + sizeof(PyObject); }

constexpr const char* kFunctions = "prod sum mean std var max min amax amin round around";

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
      if (lies_as_expected(type.as<PyTypeObject>(), bytes))
        table.rows.push_back({reinterpret_cast<PyTypeObject*>(type.release()), bytes, kind});
    }
  }
}

void add_functions(Table& table, Borrowed numpy) {
  Ref ufunc = checked(PyObject_GetAttrString(numpy.get(), "ufunc"));
  Ref names = checked(PyObject_Dir(numpy.get()));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); i++) {
    // What numpy makes on demand, some of it with a warning, is left alone.
    PyObject* found = PyDict_GetItemWithError(PyModule_GetDict(numpy.get()), PyList_GET_ITEM(names.get(), i));
    if (found != nullptr && Py_IS_TYPE(found, ufunc.as<PyTypeObject>())) table.functions.insert(Py_NewRef(found));
  }
  std::istringstream words(kFunctions);
  for (std::string word; words >> word;) {
    PyObject* found = PyDict_GetItemString(PyModule_GetDict(numpy.get()), word.c_str());
    if (found != nullptr) table.functions.insert(Py_NewRef(found));
  }
}

// What numpy calls its error state is private to it; without it, nothing of numpy's is computed in a trace.
bool add_errors(Table& table) {
  Ref path = checked(PyUnicode_FromString("numpy._core.umath"));
  Ref umath = Ref::steal(PyImport_GetModule(path.get()));  // numpy has imported it
  Ref variable = umath ? Ref::steal(PyObject_GetAttrString(umath.get(), "_extobj_contextvar")) : Ref();
  Ref make = umath ? Ref::steal(PyObject_GetAttrString(umath.get(), "_make_extobj")) : Ref();
  Ref none = checked(PyTuple_New(0)), options = checked(PyDict_New());
  Ref raise = checked(PyUnicode_FromString("raise"));
  check_status(PyDict_SetItemString(options.get(), "all", raise.get()));
  Ref value = make ? Ref::steal(PyObject_Call(make.get(), none.get(), options.get())) : Ref();
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)) throw PyError();
  if (!variable || !value || !PyContextVar_CheckExact(variable.get())) {
    PyErr_Clear();
    return false;
  }
  table.errors = variable.release();
  table.raising = value.release();
  return true;
}

// Empty where numpy is not there. Torch imports it where it can.
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
  if (!token_) PyErr_Clear();  // out of memory: floating-point errors are what they were
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

bool is_numpy_error(PyObject* type, PyObject* value) {
  if (type != PyExc_FloatingPointError || table().errors == nullptr || value == nullptr) return false;
  const SavedError raised;
  Ref text = Ref::steal(PyObject_Str(value));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return utf8 != nullptr && strstr(utf8, " encountered in ") != nullptr;
}

}  // namespace alternator::lift
