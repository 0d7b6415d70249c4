#include "trace/core/user_lines.h"

#include "trace/core/tracer.h"

#include "lift/sources/python_twins.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

#include <string_view>

namespace alternator::trace {

namespace {

// The frames of the traced program, from the innermost to the one that was compiled.
class TracedStack final : public graph::StackSource {
 public:
  explicit TracedStack(Tracer* tracer) : outermost_(cpython::current_frame(PyThreadState_Get())), tracer_(tracer) {}
  void collect(std::vector<graph::Frame>& frames) override {
    cpython::Frame* frame = cpython::current_frame(PyThreadState_Get());
    for (; frame != nullptr && frame != outermost_; frame = frame->previous) {
      if (cpython::is_incomplete(frame)) continue;
      auto* code = reinterpret_cast<PyObject*>(cpython::code_of(frame));
      if (lift::is_stand_in(code)) continue;  // eager has no such frame
      frames.push_back({code, cpython::current_index(frame) * static_cast<int>(sizeof(cpython::CodeUnit)),
                        code == Natives::table().module_entry_code ? module_of(frame) : nullptr});
    }
  }
  std::string path_of(Borrowed module) override {
    const lift::Known* known = tracer_->lifter.known(module);
    return known != nullptr && known->source != nullptr ? known->source->text() : std::string();
  }

 private:
  // The first argument of Module.__call__, which may still be lazy.
  static PyObject* module_of(cpython::Frame* frame) {
    PyObject* self = frame->localsplus[0];
    if (self != nullptr && PyCell_Check(self)) self = PyCell_GET(self);
    return self != nullptr && Py_IS_TYPE(self, &lazy_type) ? reinterpret_cast<LazyObject*>(self)->value : self;
  }

  cpython::Frame* outermost_;
  Tracer* tracer_;
};

}  // namespace

// Whether a function is part of torch: the line that calls it tells a user more.
bool is_torchs(PyCodeObject* code) {
  static constinit Lasting<PyObject*> lasting;
  PyObject* folder = lasting.get([] {
    Ref file = checked(PyObject_GetAttrString(import_module("torch").get(), "__file__"));
    const std::string_view path = PyUnicode_AsUTF8(file.get());
    const std::string_view parent = path.substr(0, path.rfind('/') + 1);
    return checked(PyUnicode_FromStringAndSize(parent.data(), static_cast<Py_ssize_t>(parent.size()))).release();
  });
  return PyUnicode_Tailmatch(code->co_filename, folder, 0, PY_SSIZE_T_MAX, -1) == 1;
}

bool is_librarys(PyCodeObject* code) {
  static constinit Lasting<std::string> lasting;
  const std::string& folder = lasting.get([] {
    Ref file = checked(PyObject_GetAttrString(import_module("os").get(), "__file__"));
    const std::string_view path = PyUnicode_AsUTF8(file.get());
    return std::string(path.substr(0, path.rfind('/') + 1));
  });
  const char* text = PyUnicode_AsUTF8(code->co_filename);
  if (text == nullptr) return PyErr_Clear(), false;
  const std::string_view file = text;
  const bool installed = file.find("/site-packages/") != file.npos || file.find("/dist-packages/") != file.npos;
  return file.starts_with("<frozen ") || (file.starts_with(folder) && !installed);
}

bool is_contextlibs(PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) PyErr_Clear();
  return file != nullptr && std::string_view(file).ends_with("contextlib.py");
}

// The instruction that a guard is attributed to: in the innermost frame of the program that is not torch's, or else in
// the innermost frame.
void locate_guard(lift::SourceTree& tree, cpython::Frame* below) {
  cpython::Frame *frame = cpython::current_frame(PyThreadState_Get()), *found = nullptr;
  for (; frame != nullptr && frame != below; frame = frame->previous) {
    if (cpython::is_incomplete(frame)) continue;
    if (found == nullptr) found = frame;
    if (is_torchs(cpython::code_of(frame))) continue;
    found = frame;
    break;
  }
  if (found == nullptr || frame == nullptr) {
    tree.set_site({}, 0);
  } else {
    tree.set_site(reinterpret_cast<PyObject*>(cpython::code_of(found)), cpython::current_index(found));
  }
}

std::unique_ptr<graph::StackSource> traced_stack(Tracer& tracer) { return std::make_unique<TracedStack>(&tracer); }

}  // namespace alternator::trace
