// Exceptions, weak references, tracebacks, and objects that are constants.
#include "cpython/frame_objects.h"
#include "lift/sources/plain.h"
#include "py/import.h"
#include "replay/known_hashes.h"

#include <frameobject.h>

namespace alternator::replay::recipes {

Recipe exception(Builder& builder, Borrowed object) {
  PyTypeObject* layout = layout_of(object.type());
  std::vector<Ref> arguments;
  static PyObject* const group = PyExc_BaseExceptionGroup;
  if (PyType_IsSubtype(layout, reinterpret_cast<PyTypeObject*>(group)) != 0) {
    // The only exceptions with fields that cannot be set later.
    arguments.push_back(read_member(object, "message"));
    arguments.push_back(read_member(object, "exceptions"));
  }
  Recipe recipe = new_instance(object, std::move(arguments));
  add_members(recipe, object, layout);
  auto* e = object.as<PyBaseExceptionObject>();
  recipe.fill.push_back({Op::kFillException,
                         {Ref::share(e->args), Ref::share(e->cause), Ref::share(e->context), Ref::share(e->traceback)},
                         e->suppress_context});
  finish_instance(builder, recipe, object);
  return recipe;
}

// Locals that a finished frame would keep alive: pre-existing values, a generator that is closed when it dies. Others
// are missing in the new frame.
static Ref kept_local(Builder& builder, Borrowed value) {
  if (!value) return {};
  lift::Source* source = builder.world().source_of(value);
  if (source == nullptr && PyCell_Check(value.get())) return kept_local(builder, PyCell_GET(value.get()));
  const bool kept = source != nullptr || lift::is_plain(value.get()) || PyGen_CheckExact(value.get());
  return kept ? Ref::share(value) : Ref();
}

static std::vector<Ref> kept_locals(Builder& builder, PyFrameObject* frame) {
  std::vector<Ref> kept;
  const std::vector<PyObject*> locals = cpython::locals_of(frame);
  const auto outer = static_cast<size_t>(PyCode_GetNumFree(cpython::code_of(frame)));
  for (size_t i = 0; i + outer < locals.size(); i++) kept.push_back(kept_local(builder, locals[i]));
  return kept;
}

Recipe traceback(Builder& builder, Borrowed object) {
  auto* entry = object.as<PyTracebackObject>();
  Ref frame = Ref::share(reinterpret_cast<PyObject*>(entry->tb_frame));
  builder.admit_frame(frame);
  const int line =
      entry->tb_lineno >= 0 ? entry->tb_lineno : PyCode_Addr2Line(cpython::code_of(entry->tb_frame), entry->tb_lasti);
  return {{Op::kTraceback,
           {Ref::share(reinterpret_cast<PyObject*>(entry->tb_next)), std::move(frame),
            checked(PyLong_FromLong(entry->tb_lasti))},
           line}};
}

// Code, globals and line of a finished frame, and its callers: new frames that never ran. A frame that resumes after a
// break is taken over by the resumed frame.
Recipe frame(Builder& builder, Borrowed object) {
  if (!builder.admits_frame(object)) cannot_rebuild(object, "its variables are not those of a frame that is over");
  auto* gone = object.as<PyFrameObject>();
  Ref globals = checked(PyFrame_GetGlobals(gone));
  builder.take_as_preexisting(globals);
  Recipe recipe{{Op::kFrame, {Ref::share(cpython::code_of(gone)), std::move(globals)}, PyFrame_GetLineNumber(gone)}};
  Step fill{Op::kFillFrame, {Ref()}};
  if (PyFrameObject* back = cpython::back_of(gone); back != nullptr && cpython::is_running(back)) {
    fill.number = 1;
  } else if (back != nullptr && cpython::is_over(back)) {
    fill.operands[0] = Ref::share(reinterpret_cast<PyObject*>(back));
    builder.admit_frame(fill.operands[0]);
  }
  for (Ref& local : kept_locals(builder, gone)) fill.operands.push_back(std::move(local));
  recipe.fill.push_back(std::move(fill));
  return recipe;
}

Recipe weak_reference(Builder& builder, Borrowed object) {
  auto* reference = object.as<PyWeakReference>();
  PyObject* referent = PyWeakref_GET_OBJECT(object.get());
  Recipe recipe;
  if (referent == Py_None) {
    recipe.make = {Op::kDeadWeakref, {Ref::share(object.type())}};
  } else {
    recipe.make = {Op::kWeakref, {Ref::share(object.type()), Ref::share(referent)}};
    // A hashed weak reference caches the hash.
    KnownHashes hash;
    if (reference->hash != -1) hash.add(builder, object, reference->hash);
    if (hash.are_known()) recipe.make.number = reference->hash;
    if (reference->wr_callback != nullptr) recipe.make.operands.push_back(Ref::share(reference->wr_callback));
  }
  add_slots(recipe, object);
  return recipe;
}

// random.Random: the state is set, whatever it was seeded with.
Recipe random_generator(Builder& builder, Borrowed object) {
  auto* layout = reinterpret_cast<PyObject*>(layout_of(object.type()));
  auto method = [&](const char* name) { return checked(PyObject_GetAttrString(layout, name)); };
  Recipe recipe = new_instance(object, {checked(PyLong_FromLong(0))});
  recipe.fill.push_back(
      {Op::kSetState, {method("setstate"), checked(PyObject_CallOneArg(method("getstate").get(), object.get()))}});
  finish_instance(builder, recipe, object);
  return recipe;
}

static Recipe itself() {
  Recipe recipe;
  recipe.keep = true;
  return recipe;
}

Recipe kept(Builder&, Borrowed object) {
  require_exact(object);
  return itself();
}

// Nested code is a constant of its code; compile() makes new code in every call.
Recipe code(Builder& builder, Borrowed object) {
  if (!builder.world().made_here(object)) return itself();
  Ref marshal = import_module("marshal");
  return {{Op::kCall,
           {checked(PyObject_GetAttrString(marshal.get(), "loads")),
            checked(PyObject_CallMethod(marshal.get(), "dumps", "O", object.get()))}}};
}

// A match records what was searched and where it was found, not how: a search that finds the same is repeated.
Recipe match(Builder&, Borrowed object) {
  auto field = [&](Borrowed owner, const char* name) { return checked(PyObject_GetAttrString(owner.get(), name)); };
  Ref pattern = field(object, "re"), text = field(object, "string"), regs = field(object, "regs");
  Ref from = field(object, "pos"), to = field(object, "endpos");
  for (const char* name : {"match", "fullmatch", "search"}) {
    Ref method = field(pattern, name);
    Ref again = checked(PyObject_CallFunctionObjArgs(method.get(), text.get(), from.get(), to.get(), nullptr));
    if (again.get() == Py_None) continue;
    Ref found = field(again, "regs");
    const int same = PyObject_RichCompareBool(found.get(), regs.get(), Py_EQ);
    if (same < 0) throw PyError();
    if (same != 0) return {{Op::kCall, {std::move(method), std::move(text), std::move(from), std::move(to)}}};
  }
  cannot_rebuild(object, "it is one of several matches in its string");
}

Recipe type_union(Builder& builder, Borrowed object) {
  Ref parts = checked(PyObject_GetAttrString(object.get(), "__args__"));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); i++) {
    if (builder.world().made_here(PyTuple_GET_ITEM(parts.get(), i))) {
      cannot_rebuild(object, "it names a class that was made in the call");
    }
  }
  // Reconstructed as by `int | str`.
  Ref reduce = import_module("functools"), either = import_module("operator");
  return {{Op::kCall,
           {checked(PyObject_GetAttrString(reduce.get(), "reduce")),
            checked(PyObject_GetAttrString(either.get(), "or_")), std::move(parts)}}};
}

Recipe kept_descriptor(Builder& builder, Borrowed object) {
  if (builder.world().made_here(object.as<PyDescrObject>()->d_type)) {
    cannot_rebuild(object, "it belongs to a class that was made in the call");
  }
  return itself();
}

Recipe kept_module(Builder&, Borrowed object) {
  Ref name = Ref::steal(PyModule_GetNameObject(object.get()));
  if (name && PyDict_GetItem(PyImport_GetModuleDict(), name.get()) == object.get()) return itself();
  PyErr_Clear();
  cannot_rebuild(object, "it is not in sys.modules");
}

}  // namespace alternator::replay::recipes

namespace alternator::replay {

Write end_of_frame(Builder& builder, Borrowed frame) {
  auto* ended = frame.as<PyFrameObject>();
  Write write{Op::kEndFrame, {builder.value(frame)}, PyFrame_GetLineNumber(ended)};
  for (const Ref& local : recipes::kept_locals(builder, ended)) write.operands.push_back(builder.value(local));
  return write;
}

}  // namespace alternator::replay
