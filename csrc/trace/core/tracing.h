// Tracing: the Semantics that lifts what the program reads, and gates what it calls.
#pragma once

#include "trace/calls/call_dispatch.h"
#include "trace/calls/instance_tests.h"
#include "trace/core/tracer.h"
#include "trace/numpy/array_nodes.h"
#include "trace/numpy/concrete_arrays.h"
#include "trace/numpy/numpy_scalars.h"
#include "trace/opcodes/attribute_writes.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/class_patterns.h"
#include "trace/opcodes/items.h"
#include "trace/opcodes/iteration.h"
#include "trace/opcodes/raised_exceptions.h"
#include "trace/opcodes/tensor_operators.h"
#include "trace/soundness/value_text.h"
#include "trace/symbolic/backed_numbers.h"
#include "trace/symbolic/deferred_values.h"
#include "trace/symbolic/unbacked_arithmetic.h"
#include "trace/torch/torch_calls.h"
#include "trace/torch/torch_function_modes.h"

#include "graph/record/record_error.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/containers.h"
#include "lift/lifting/functions.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/namespaces.h"
#include "py/names.h"

#include <algorithm>

namespace alternator::trace {

struct Tracing : Concrete {
  static constexpr bool kObserves = true;
  static constexpr bool kMayLeave = false;
  Tracer& t;
  explicit Tracing(Tracer& tracer) : t(tracer) {}

  // Runs tracer code; C++ exceptions become the error value that the caller expects.
  template <class Result, class Body>
  Result guard(Result failure, Body&& body) {
    try {
      return body();
    } catch (const PyError&) {
      if (!PyErr_Occurred()) t.stop_here(report::Reason::internal, "an error without an exception");
      if (PyErr_ExceptionMatches(graph::record_error_class().get())) stop_with_error();
    } catch (const Stop& stop) {
      t.stop_here(stop.reason, stop.context);
    } catch (const lift::CannotLift& error) {
      t.stop_here(report::Reason::cannot_lift, error.what());
    } catch (const std::exception& error) {
      t.stop_here(report::Reason::internal, error.what());
    }
    return failure;
  }
  template <class Body>
  Ref value(Body&& body) {
    return guard(Ref(), std::forward<Body>(body));
  }
  template <class Body>
  int status(Body&& body) {
    return guard(-1, [&] {
      body();
      return 0;
    });
  }

  Verdict at_boundary(const Position& position);
  void cannot_leave() { t.stop_here(report::Reason::debugger, {}); }
  int enter(cpython::Frame* frame) {
    return status([&] {
      t.lifter.functions->note_code(cpython::code_of(frame));
      t.lifter.functions->use_defaults(cpython::function_of(frame), frame->localsplus);
    });
  }
  int escape(Borrowed object) {
    return status([&] { t.lifter.escape(object); });
  }
  // The trace's own result is returned as whatever is found at its source: it need not be lifted.
  int returning(cpython::Frame* frame, Borrowed result) { return t.is_outermost(frame) ? 0 : escape(result); }
  // Nor need it be lifted to be put into a tuple or list, until something reads from that container.
  int gather(PyObject** items, int count) {
    int partly = 0;
    for (int i = 0; i < count; i++) {
      if (lift::is_lazy(items[i]) && reinterpret_cast<LazyObject*>(items[i])->lifted != nullptr &&
          local(&items[i]) == nullptr) {
        return -1;
      }
      if (t.lifter.lazy->is_partly_read(items[i])) partly = 1;
    }
    return partly;
  }
  void gathered(Borrowed made) { t.lifter.lazy->note_open(made); }

  PyObject* local(PyObject** slot) {
    PyObject* found = *slot;
    if (found == nullptr || !Py_IS_TYPE(found, &lazy_type)) return found;
    PyObject* lifted = guard(static_cast<PyObject*>(nullptr), [&] { return t.lifter.lazy->read(found); });
    if (lifted == nullptr) return nullptr;
    *slot = Py_NewRef(lifted);
    Py_DECREF(found);
    return *slot;
  }
  PyObject* moved_local(PyObject** slot) {
    PyObject* found = *slot;
    if (found == nullptr || !Py_IS_TYPE(found, &lazy_type)) return found;
    if (reinterpret_cast<LazyObject*>(found)->lifted != nullptr) return local(slot);
    t.note_lazy_on_stack();
    return found;
  }
  Ref load_global(Borrowed globals, Borrowed builtins, Borrowed name) {
    return value([&] { return trace::load_global(t, globals, builtins, name); });
  }
  int store_global(Borrowed globals, Borrowed name, Borrowed stored) {
    return status([&] { trace::store_global(t, globals, name, stored); });
  }
  int delete_global(Borrowed globals, Borrowed name) {
    return status([&] { trace::store_global(t, globals, name, {}); });
  }
  // A module's code has its globals as its locals.
  Ref load_local_name(Borrowed locals, Borrowed name) {
    if (!t.lifter.namespaces->is_globals(locals)) return Concrete::load_local_name(locals, name);
    return value([&] { return t.lifter.containers->dict_item(t.lifter.namespaces->of_globals(locals), name); });
  }
  int store_local_name(Borrowed locals, Borrowed name, Borrowed stored) {
    if (!t.lifter.namespaces->is_globals(locals)) return Concrete::store_local_name(locals, name, stored);
    return status([&] { trace::store_global(t, locals, name, stored); });
  }
  int delete_local_name(Borrowed locals, Borrowed name) {
    if (!t.lifter.namespaces->is_globals(locals)) return Concrete::delete_local_name(locals, name);
    return status([&] { trace::store_global(t, locals, name, {}); });
  }
  Ref load_cell(Borrowed cell) {
    if (!t.lifter.cells->is_preexisting(cell)) return Concrete::load_cell(cell);
    return value([&] { return t.lifter.cells->load(cell); });
  }
  int store_cell(Borrowed cell, Ref stored) {
    if (!t.lifter.cells->is_preexisting(cell)) return Concrete::store_cell(cell, std::move(stored));
    return status([&] { trace::store_cell(t, cell, std::move(stored)); });
  }
  int copy_free_variables(cpython::Frame* frame) {
    return status([&] { t.lifter.cells->use_closure(cpython::function_of(frame)); });
  }

  Ref get_attribute(Borrowed owner, Borrowed name) {
    return value([&] { return trace::get_attribute(t, owner, name); });
  }
  bool get_method(Borrowed owner, Borrowed name, Ref* method) {
    *method = get_attribute(owner, name);
    return false;
  }
  int set_attribute(Borrowed owner, Borrowed name, Borrowed stored) {
    return status([&] { trace::set_attribute(t, owner, name, stored); });
  }
  Ref get_item(Borrowed container, Borrowed key) {
    return value([&] { return trace::get_item(t, container, key); });
  }
  int set_item(Borrowed container, Borrowed key, Borrowed stored) {
    return status([&] { trace::set_item(t, container, key, stored); });
  }
  int delete_item(Borrowed container, Borrowed key) {
    return status([&] { trace::set_item(t, container, key, {}); });
  }
  Ref special_method(Borrowed owner, Borrowed name) {
    return value([&] { return trace::special_method(t, owner, name); });
  }
  Py_ssize_t length(Borrowed object) {
    return guard(Py_ssize_t(-1), [&] {
      t.lifter.escape(object);
      if (t.array_nodes->is_symbolic_array(object)) return t.array_nodes->length_of_symbolic(object);
      trace::check_use(t, object, "len");
      if (!has_native_length(object) && trace::may_hold_unbacked(t, object))
        stop(report::Reason::unbacked_value, "len");
      return PyObject_Length(object.get());
    });
  }

  // Their values are about to be read. False: an exception is set.
  bool make_plain(Borrowed left, Borrowed right) {
    return status([&] {
             t.backed->make_plain(left);
             t.backed->make_plain(right);
           }) >= 0;
  }

  Ref unary(unaryfunc operation, Borrowed operand) {
    if (Borrowed function = operator_on_tensors(operation, operand)) return record_operator(function, operand, {});
    if (lift::is_array(operand.get())) return value([&] { return t.arrays->operate_on_array(operation, operand); });
    return native(operand, {}, "an operator", [&] { return operation(operand.get()); });
  }
  Ref binary(binaryfunc operation, Borrowed left, Borrowed right) {
    if (is_deferred_random(left) || is_deferred_random(right))
      return value([&] { return t.deferred->combine(operation, left, right); });
    if (is_deferred_string(left) || is_deferred_string(right))
      return use(is_deferred_string(left) ? left : right, "an operator"), Ref();
    if (t.arrays->is_array_operation(left, right) && make_plain(left, right))
      return value([&] { return t.arrays->operate_on_arrays(operation, left, right); });
    Ref number;
    if (lift::is_numpy_number(left.get()) || lift::is_numpy_number(right.get())) {
      if (status([&] { number = trace::check_numbers(t, &left, &right); }) < 0) return {};
    }
    if (Borrowed function = operator_on_tensors(operation, left, right)) return record_operator(function, left, right);
    if ((operation == PyNumber_Remainder || operation == PyNumber_InPlaceRemainder) &&
        (PyUnicode_Check(left.get()) || PyBytes_Check(left.get()) || PyByteArray_Check(left.get()))) {
      // String formatting with % shows the right operand.
      if (status([&] {
            check_percent_text(t, left, right);
            if (holds_identity(right)) stop(report::Reason::object_id, "string formatting");
            if (trace::may_hold_unbacked(t, right)) stop(report::Reason::unbacked_value, "string formatting");
          }) < 0) {
        return {};
      }
    }
    if ((fake::is_symbol(left) || fake::is_symbol(right)) && !graph::is_tensor(left) && !graph::is_tensor(right))
      return value([&] { return trace::operate(t, operation, left, right); });
    if (PyAnySet_Check(right.get()) && (PyList_Check(left.get()))) {
      if (status([&] { trace::check_order(t, right, "an operator"); }) < 0) return {};  // list += set
    }
    return native(left, right, "an operator", [&] { return operation(left.get(), right.get()); });
  }
  Ref compare(Borrowed left, Borrowed right, int operation) {
    if (is_deferred_random(left) || is_deferred_random(right))
      return use(is_deferred_random(left) ? left : right, "a comparison"), Ref();
    if (is_deferred_string(left) || is_deferred_string(right))
      return use(is_deferred_string(left) ? left : right, "a comparison"), Ref();
    if (t.arrays->is_array_operation(left, right) && make_plain(left, right))
      return value([&] { return t.arrays->compare_arrays(left, right, operation); });
    Ref number;
    if (lift::is_numpy_number(left.get()) || lift::is_numpy_number(right.get())) {
      if (status([&] { number = trace::check_numbers(t, &left, &right); }) < 0) return {};
    }
    if (Borrowed function = comparison_of_tensors(operation, left, right))
      return record_operator(function, left, right);
    if ((is_identity(left) || is_identity(right)) && make_plain(left, right))
      return Ref::steal(PyObject_RichCompare(left.get(), right.get(), operation));
    if (status([&] {
          t.lifter.escape(left);  // their contents are lifted from here on
          t.lifter.escape(right);
          trace::check_comparison(t, left, right);
          check_arrays_within(t, left);
          check_arrays_within(t, right);
        }) < 0) {
      return {};
    }
    // A float on the left would read the symbol's value natively.
    if (trace::compares_symbols(t, left, right))
      return value([&] { return trace::compare_numbers(t, left, right, operation); });
    return native(left, right, "a comparison",
                  [&] { return PyObject_RichCompare(left.get(), right.get(), operation); });
  }
  Tri contains(Borrowed container, Borrowed element) {
    return guard(Tri(-1), [&] { return Tri(trace::contains(t, container, element) ? 1 : 0); });
  }
  bool is(Borrowed left, Borrowed right) {
    status([&] { trace::note_identity_test(t, left, right); });
    return left == right || trace::are_one_small_int(left, right);
  }
  Tri truth(Borrowed object) {
    return guard(Tri(-1), [&] { return trace::truth(t, object); });
  }
  Ref format(Borrowed object, PyObject* (*conversion)(PyObject*), Borrowed spec) {
    if (t.deferred->may_show_later(object, spec)) return value([&] { return t.deferred->show_later(); });
    const auto check = [&] {
      if (conversion == nullptr || conversion == PyObject_Str)
        check_own_text(t, object, conversion == nullptr ? OwnText::kFormat : OwnText::kStr);
      else
        trace::check_text(t, object);
    };
    if (status(check) < 0) return {};
    return Concrete::format(object, conversion, spec);
  }
  Ref convert(PyObject* (*conversion)(PyObject*), Borrowed object) {
    if (t.deferred->may_show_later(object, {})) return value([&] { return t.deferred->show_later(); });
    const auto check = [&] { conversion == PyObject_Str ? check_own_text(t, object) : trace::check_text(t, object); };
    if (status(check) < 0) return {};
    return Concrete::convert(conversion, object);
  }

  Ref join(PyObject* const* parts, int count) {
    if (std::any_of(parts, parts + count, [](PyObject* part) { return is_deferred_string(part); }))
      return value([&] { return t.deferred->show_later(); });
    return Concrete::join(parts, count);
  }

  Ref get_iterator(Borrowed iterable) {
    Ref rows;
    if (status([&] { rows = rows_of_symbolic(t, iterable); }) < 0) return {};
    if (rows) return Ref::steal(PyObject_GetIter(rows.get()));
    if (check_iteration(iterable) < 0) return {};
    return native(iterable, {}, "iteration", [&] { return PyObject_GetIter(iterable.get()); });
  }
  Ref next(Borrowed iterator) {
    if (t.lifter.iterators->is_preexisting(iterator)) return value([&] { return next_of_preexisting(t, iterator); });
    if (status([&] { trace::check_use(t, iterator, "iteration"); }) < 0) return {};
    Ref result = Concrete::next(iterator);
    if (!result && torch_failed()) return {};
    return result;
  }
  PySendResult send(Borrowed receiver, Borrowed sent, Ref* result) {
    if (status([&] { trace::check_use(t, receiver, "a generator step"); }) < 0) return PYGEN_ERROR;
    return Concrete::send(receiver, sent, result);
  }
  bool unpack(Borrowed iterable, int before, int after, PyObject** top) {
    Ref rows;
    if (status([&] { rows = rows_of_symbolic(t, iterable); }) < 0) return false;
    if (rows) iterable = rows;
    if (after < 0 && t.lifter.lazy->is_open(iterable) && Py_SIZE(iterable.get()) == before) {
      return status([&] {
               t.lifter.lazy->guard_open_length(iterable);
               std::vector<Ref> items;
               for (int i = 0; i < before; i++) items.push_back(t.lifter.lazy->open_item(iterable, i));
               for (Ref& item : items) *--top = item.release();
             }) == 0;
    }
    if (status([&] {
          t.lifter.escape(iterable);
          trace::check_use(t, iterable, "unpacking");
          trace::check_order(t, iterable, "unpacking");
        }) < 0) {
      return false;
    }
    return Concrete::unpack(iterable, before, after, top) || (torch_failed(), false);
  }
  int list_extend(Borrowed list, Borrowed iterable) {
    return use(iterable, "unpacking") < 0 || check_iteration(iterable) < 0 ? -1 : Concrete::list_extend(list, iterable);
  }
  int set_update(Borrowed set, Borrowed iterable) {
    return use(iterable, "unpacking") < 0 ? -1 : Concrete::set_update(set, iterable);
  }
  int dict_update(Borrowed dict, Borrowed mapping) {
    return use(mapping, "unpacking") < 0 ? -1 : Concrete::dict_update(dict, mapping);
  }
  int dict_merge(Borrowed dict, Borrowed mapping) {
    return use(mapping, "unpacking") < 0 ? -1 : Concrete::dict_merge(dict, mapping);
  }

  Ref call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
    return value([&] {
      const Call call{callable, arguments, positional, keyword_names};
      // Before the stages: their arguments may escape, and would be lifted whole.
      if (Ref answer = call_on_partly_read(t, call)) return answer;
      return trace::call(t, call);
    });
  }
  Ref call_with_tuple(Borrowed callable, Borrowed arguments, Borrowed keywords);
  Ref make_tuple(Borrowed iterable) {
    return use(iterable, "unpacking") < 0 || check_iteration(iterable) < 0 ? Ref() : Concrete::make_tuple(iterable);
  }
  Ref make_function(Borrowed code, Borrowed globals) {
    Ref function = Concrete::make_function(code, globals);
    if (function) t.lifter.note_made_here(function);
    return function;
  }

  int check_raise(Borrowed exception) {
    return status([&] {
      // Raising mutates it: its traceback, its context.
      if (!PyType_Check(exception.get()) && t.lifter.known(exception) != nullptr)
        stop(report::Reason::native_call, "a pre-existing exception is raised, or split by except*");
      t.exceptions->check_group(exception);
    });
  }
  // Guards the MRO: the bases of the class may change.
  Tri exception_matches(Borrowed exception, Borrowed type) {
    if (status([&] { trace::guard_order_of_bases(t, exception.type()); }) < 0) return Tri(-1);
    return Concrete::exception_matches(exception, type);
  }
  int before_raise(Ref* exception) {
    return status([&] { t.exceptions->before_raise(exception); });
  }
  // An exception that was raised before the trace is read like any other pre-existing object.
  Ref class_of(Borrowed exception) {
    if (t.lifter.known(exception) == nullptr) return Concrete::class_of(exception);
    return get_attribute(exception, names::__class__);
  }
  Ref traceback_of(Borrowed exception) {
    if (t.lifter.known(exception) == nullptr) return Concrete::traceback_of(exception);
    return get_attribute(exception, names::__traceback__);
  }
  void raising() {
    status([&] { t.exceptions->raising(); });
  }
  void abandoned(cpython::Frame* frame) { t.exceptions->note_abandoned(frame->frame_obj); }
  int handle_breaker(PyThreadState* ts) { return t.exceptions->handle_breaker(ts); }

  Ref import_name(PyThreadState* ts, cpython::Frame* frame, Borrowed name, Borrowed fromlist, Borrowed level);
  Ref import_from(Borrowed module, Borrowed name) {
    Ref found = get_attribute(module, name);
    if (found || t.result.stopped || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();  // a submodule of that name, or an ImportError
    return value([&]() -> Ref { stop(report::Reason::first_import, PyUnicode_AsUTF8(name.get())); });
  }
  int import_star(Borrowed, Borrowed) {
    return status([&] { stop(report::Reason::native_call, "import *"); });
  }
  Ref match_keys(Borrowed mapping, Borrowed keys) {
    return use(mapping, "a pattern") < 0 ? Ref() : Concrete::match_keys(mapping, keys);
  }
  Ref match_class(Borrowed subject, Borrowed type, int positional, Borrowed keyword_names) {
    return value([&] { return trace::match_class(t, subject, type, positional, keyword_names); });
  }

 private:
  // The recorder's errors are not exceptions of the program.
  void stop_with_error();
  // Values on the stack of a resumed frame are lifted when an instruction inspects them.
  int read_operands(const Position& position);
  int check_iteration(Borrowed iterable) {
    return status([&] { trace::check_order(t, iterable, "iteration"); });
  }
  int use(Borrowed object, const char* what) {
    return status([&] {
      t.lifter.escape(object);
      trace::check_use(t, object, what);
    });
  }
  // An operation that native code carries out on one or two lifted values.
  template <class Operation>
  Ref native(Borrowed left, Borrowed right, const char* what, Operation&& operation) {
    // Operators access an unbacked symbol through its slots.
    auto used = [&](Borrowed operand) { return !operand || fake::is_symbol(operand) || use(operand, what) == 0; };
    if (!used(left) || !used(right)) return {};
    std::optional<Paused> torch_paused;  // torch implements symbol arithmetic in Python
    if (t.recorder.has_symbols() && is_torchs_operation(left, right)) {
      if (status([&] { t.function_modes->forbid("an unbacked symbol"); }) < 0) return {};
      torch_paused.emplace(t);
    }
    Ref result = Ref::steal(operation());
    torch_paused.reset();
    if (!result && !torch_failed() && !t.function_modes->is_unwinding() &&
        (graph::is_tensor(left) || (right && graph::is_tensor(right))))
      t.stop_here(report::Reason::torch_call, what);
    return result;
  }
  Ref record_operator(Borrowed function, Borrowed left, Borrowed right) {
    PyObject* operands[] = {nullptr, left.get(), right.get()};
    return value([&] { return trace::call_torch(t, {function, operands + 1, right ? 2U : 1U, {}}); });
  }
  // An exception that torch raised on fake tensors is a break, never one that the program may catch.
  bool torch_failed();
};

}  // namespace alternator::trace
