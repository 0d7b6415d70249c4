#include "trace/core/tracing.h"
#include "trace/calls/call_dispatch.h"
#include "trace/opcodes/items.h"
#include "trace/soundness/value_text.h"
#include "trace/torch/torch_function_methods.h"
#include "trace/torch/torch_function_modes.h"

#include "cpython/stack_operands.h"

#include "graph/record/torch_types.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/namespaces.h"
#include "trace/calls/natives.h"
#include "trace/core/lazy_unpack.h"

#include <string_view>

namespace alternator::trace {

static constexpr uint64_t kMostInstructions = 50'000'000;

Verdict Tracing::at_boundary(const Position& position) {
  const Verdict verdict = t.begin_instruction(position);
  if (verdict != Verdict::kGo) [[unlikely]]
    return verdict;
  if (t.instructions() > kMostInstructions) [[unlikely]] {
    t.stop_here(report::Reason::trace_too_long, {});
    return Verdict::kFail;
  }
  if (t.has_lazy_on_stack() && read_operands(position) < 0) return Verdict::kFail;
  if (t.taint != nullptr) [[unlikely]] {
    // What the last instruction pushed; an unpacking pushes several.
    PyObject** base = cpython::stack_base(position.frame);
    for (PyObject** slot = position.sp; slot > base && position.sp - slot < 4;) t.check_taint(*--slot);
  }
  return Verdict::kGo;
}

// Whether an instruction leaves the slots of this operand unread, or reads them one by one. `operand` counts from the
// top of the stack.
static bool keeps_open(const Tracer& t, const Position& position, int opcode, int oparg, int operand) {
  switch (opcode) {
    case IS_OP:
    case UNARY_NOT:
    case UNPACK_SEQUENCE:
#ifdef POP_JUMP_FORWARD_IF_NONE
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_NONE:
    case POP_JUMP_FORWARD_IF_NOT_NONE:
#endif
#ifdef POP_JUMP_IF_NONE
    case POP_JUMP_IF_NONE:
    case POP_JUMP_IF_NOT_NONE:
    case POP_JUMP_IF_FALSE:
    case POP_JUMP_IF_TRUE:
#endif
      return true;
    case BINARY_SUBSCR:
      return operand == 2 && PyLong_CheckExact(position.sp[-1]);
    case RETURN_VALUE:
      return t.is_outermost(position.frame);
    case CALL: {
      if (operand != oparg || oparg == 0) return false;
      const Natives& natives = Natives::table();
      PyObject* const callable = position.sp[-oparg - 1] != nullptr ? position.sp[-oparg - 1] : position.sp[-oparg - 2];
      return position.keyword_names == nullptr &&
             ((callable == natives.len && oparg == 1) || (callable == natives.isinstance && oparg == 2));
    }
    default:
      return false;
  }
}

int Tracing::read_operands(const Position& position) {
  const cpython::CodeUnit* next = position.next;
  int opcode = cpython::base_opcode(*next), oparg = cpython::argument(*next);
  while (opcode == EXTENDED_ARG) {
    next++;
    opcode = cpython::base_opcode(*next);
    oparg = oparg << 8 | cpython::argument(*next);
  }
  // These only move their operands: see gather() and returning().
  if (opcode == BUILD_TUPLE || opcode == BUILD_LIST) return 0;
  if (opcode == RETURN_VALUE && t.is_outermost(position.frame)) return 0;
  const cpython::StackOperands operands = cpython::stack_operands(opcode, oparg);
  const int count = std::min(operands.count, position.stack_size());
  if (opcode == UNPACK_SEQUENCE && position.sp[-1] != nullptr) {
    Ref elements;
    if (status([&] { elements = lazy_elements(t.lifter, position.sp[-1], oparg); }) < 0) return -1;
    if (elements) {
      Py_SETREF(position.sp[-1], elements.release());
      return 0;
    }
  }
  for (int i = 1; i <= count; i++) {
    if (position.sp[-i] == nullptr) continue;
    if (local(&position.sp[-i]) == nullptr) return -1;
    if (operands.opened && escape(position.sp[-i]) < 0) return -1;
    if (t.lifter.lazy->is_open(position.sp[-i]) && !keeps_open(t, position, opcode, oparg, i) &&
        escape(position.sp[-i]) < 0) {
      return -1;
    }
  }
  return 0;
}

void Tracing::stop_with_error() {
  Ref error = cpython::take_raised();
  Ref text = Ref::steal(PyObject_Str(error.get()));
  PyErr_Clear();
  t.stop_here(report::Reason::torch_call, text ? PyUnicode_AsUTF8(text.get()) : "");
}

bool Tracing::torch_failed() {
  if (t.function_modes->is_unwinding()) return false;
  if (PyErr_Occurred() && PyErr_ExceptionMatches(graph::record_error_class().get()) && !t.result.stopped) {
    stop_with_error();
    return true;
  }
  const fake::Failure* failure = t.session.failure();
  if (failure == nullptr || !PyErr_Occurred() || t.result.stopped) return false;
  t.stop_here(
      failure->kind == fake::FailureKind::DataDependent ? report::Reason::data_dependent : report::Reason::torch_call,
      failure->op + ": " + failure->reason);
  return true;
}

Ref Tracing::call_with_tuple(Borrowed callable, Borrowed arguments, Borrowed keywords) {
  return value([&]() -> Ref {
    if (keywords && !PyDict_CheckExact(keywords.get()))
      stop(report::Reason::native_call, "a call with ** of another mapping");
    if (keywords) t.lifter.escape(keywords);
    t.lifter.escape(arguments);
    const Py_ssize_t positional = PyTuple_GET_SIZE(arguments.get());
    const Py_ssize_t named = keywords ? PyDict_GET_SIZE(keywords.get()) : 0;
    std::vector<PyObject*> flat(static_cast<size_t>(positional + named) + 1);
    for (Py_ssize_t i = 0; i < positional; i++) flat[static_cast<size_t>(i) + 1] = PyTuple_GET_ITEM(arguments.get(), i);
    // func(*args, **{}): __torch_function__ receives that dict as kwargs, and otherwise None.
    if (keywords && named == 0 && !PyFunction_Check(callable.get()) && Natives::table().torch(callable) &&
        !Natives::table().recorded(callable) &&
        t.torch_functions->is_overridden_call({callable, flat.data() + 1, flat.size() - 1, {}})) {
      for (size_t i = 1; i < flat.size(); i++) {
        trace::check_use(t, flat[i], "a torch call");
        trace::check_order(t, flat[i], "a torch call");
      }
      return t.torch_functions->run_overridden(
          native_name(callable), [&] { return PyObject_Call(callable.get(), arguments.get(), keywords.get()); });
    }
    Ref keyword_names;
    if (named > 0) {
      keyword_names = checked(PyTuple_New(named));
      PyObject *key, *item;
      Py_ssize_t at = 0;
      for (Py_ssize_t position = 0; PyDict_Next(keywords.get(), &position, &key, &item); at++) {
        if (!PyUnicode_Check(key)) {
          PyErr_SetString(PyExc_TypeError, "keywords must be strings");
          throw PyError();
        }
        PyTuple_SET_ITEM(keyword_names.get(), at, Py_NewRef(key));
        flat[static_cast<size_t>(positional + at) + 1] = item;
      }
    }
    return trace::call(t, {callable, flat.data() + 1, static_cast<size_t>(positional), keyword_names});
  });
}

// Resolves a relative import in a module with these globals.
static Ref absolute_name(Tracer& tracer, Borrowed globals, Borrowed name, long level) {
  Ref key = checked(PyUnicode_InternFromString("__package__"));
  Ref package = tracer.lifter.containers->dict_item(tracer.lifter.namespaces->of_globals(globals), key);
  if (!package || !PyUnicode_Check(package.get()) || PyUnicode_GET_LENGTH(package.get()) == 0)
    stop(report::Reason::first_import, "a relative import without a __package__");
  for (; level > 1; level--) {
    const Py_ssize_t length = PyUnicode_GET_LENGTH(package.get());
    const Py_ssize_t dot = PyUnicode_FindChar(package.get(), '.', 0, length, -1);
    if (dot < 0) stop(report::Reason::first_import, "a relative import beyond the top-level package");
    package = checked(PyUnicode_Substring(package.get(), 0, dot));
  }
  if (PyUnicode_GET_LENGTH(name.get()) == 0) return package;
  return checked(PyUnicode_FromFormat("%U.%U", package.get(), name.get()));
}

// `from package import name` imports a submodule where the package has no such attribute.
static void check_from_list(Borrowed module, Borrowed names) {
  if (!PyTuple_Check(names.get()) || !PyModule_Check(module.get())) return;
  PyObject* attributes = PyModule_GetDict(module.get());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); i++) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), i);
    if (PyDict_GetItemWithError(attributes, name) == nullptr &&
        PyDict_GetItemString(attributes, "__path__") != nullptr) {
      PyErr_Clear();
      stop(report::Reason::first_import, PyUnicode_AsUTF8(name));
    }
  }
}

// torch.vmap imports TorchDynamo to query is_compiling(): torch.compiler answers that too.
static bool asks_whether_compiling(cpython::Frame* frame, Borrowed name, Borrowed fromlist) {
  if (PyUnicode_CompareWithASCIIString(name.get(), "torch._dynamo") != 0) return false;
  PyObject* module = PyDict_GetItemString(frame->f_globals, "__name__");
  const char* text = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  PyErr_Clear();
  return text != nullptr && graph::is_of_torch(text) && PyTuple_Check(fromlist.get()) &&
         PyTuple_GET_SIZE(fromlist.get()) == 1 && PyUnicode_Check(PyTuple_GET_ITEM(fromlist.get(), 0)) &&
         PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(fromlist.get(), 0), "is_compiling") == 0;
}

Ref Tracing::import_name(PyThreadState* ts, cpython::Frame* frame, Borrowed name, Borrowed fromlist, Borrowed level) {
  return value([&]() -> Ref {
    if (const long up = PyLong_AsLong(level.get()); up > 0) {
      Ref absolute = absolute_name(t, frame->f_globals, name, up);
      return import_name(ts, frame, absolute, fromlist, checked(PyLong_FromLong(0)));
    }
    Ref loaded = Ref::steal(PyImport_GetModule(name.get()));
    if (!loaded) {
      PyErr_Clear();
      if (asks_whether_compiling(frame, name, fromlist))
        return import_name(ts, frame, checked(PyUnicode_FromString("torch.compiler")), fromlist, level);
      stop(report::Reason::first_import, PyUnicode_AsUTF8(name.get()));
    }
    check_from_list(loaded, fromlist);
    // The module that sys.modules has under the name is guarded, and so is __import__.
    trace::guard_import(t, name);
    Ref module;
    {
      Paused paused(t);
      module = Concrete::import_name(ts, frame, name, fromlist, level);
    }
    if (!module) stop(report::Reason::first_import, PyUnicode_AsUTF8(name.get()));
    return t.lifter.lift(module, t.lifter.constant(module));
  });
}

}  // namespace alternator::trace
