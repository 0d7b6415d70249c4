#include "cpython/version.h"

#include "cpython/frame_objects.h"

#include "py/error.h"

#include <utility>

namespace alternator::cpython {

void set_reached(PyFrameObject* frame, int line) {
  frame->f_lineno = line;
  Frame* inner = frame->f_frame;
  PyCodeObject* code = code_of(inner);
  for (int i = code->co_nlocalsplus - code->co_nfreevars; i < code->co_nlocalsplus; i++) {
    if (inner->localsplus[i] == nullptr) inner->localsplus[i] = checked(PyCell_New(nullptr)).release();
  }
}

PyCodeObject* code_of(PyFrameObject* frame) { return code_of(frame->f_frame); }

std::vector<PyObject*> locals_of(PyFrameObject* frame) {
  Frame* inner = frame->f_frame;
  return {inner->localsplus, inner->localsplus + code_of(inner)->co_nlocalsplus};
}

void set_local(PyFrameObject* frame, size_t index, PyObject* value) {
  Py_XDECREF(std::exchange(frame->f_frame->localsplus[index], Py_NewRef(value)));
}

PyFrameObject* back_of(PyFrameObject* frame) { return frame->f_back; }

void set_back(PyFrameObject* frame, PyFrameObject* back) {
  Ref held = Ref::share(reinterpret_cast<PyObject*>(back));
  Ref old = Ref::steal(reinterpret_cast<PyObject*>(frame->f_back));
  frame->f_back = reinterpret_cast<PyFrameObject*>(held.release());
}

bool is_over(PyFrameObject* frame) { return frame->f_frame->owner == FRAME_OWNED_BY_FRAME_OBJECT; }

bool is_running(PyFrameObject* frame) { return frame->f_frame->owner == FRAME_OWNED_BY_THREAD; }

bool is_return(int opcode) {
#if PY_VERSION_HEX >= 0x030C0000
  if (opcode == RETURN_CONST) return true;
#endif
  return opcode == RETURN_VALUE;
}

void empty_frame(PyFrameObject* frame) {
  Frame* inner = frame->f_frame;
  if (!is_over(frame)) return;
  PyCodeObject* code = code_of(inner);
  const int cells = code->co_nlocalsplus - code->co_nfreevars;  // from here on: f_locals dereferences them
  for (int i = 0; i < inner->stacktop; i++) {
    Ref empty = i >= cells && i < code->co_nlocalsplus ? checked(PyCell_New(nullptr)) : Ref();
    Ref old = Ref::steal(std::exchange(inner->localsplus[i], empty.release()));
  }
  Ref mapping = Ref::steal(std::exchange(inner->f_locals, nullptr));
}

void adopt_frame_object(Frame* frame, Ref object) {
  auto* adopted = object.as<PyFrameObject>();
  Frame* own = adopted->f_frame;
  if (frame->frame_obj != nullptr || !is_over(adopted) || code_of(own) != code_of(frame)) return;
  empty_frame(adopted);
  PyObject_GC_UnTrack(object.get());  // while the frame runs
  std::vector<Ref> dropped_objects;
  dropped_objects.reserve(static_cast<size_t>(own->stacktop) + 3);
  for (int i = 0; i < own->stacktop; i++)
    dropped_objects.push_back(Ref::steal(std::exchange(own->localsplus[i], nullptr)));
  dropped_objects.push_back(Ref::steal(reinterpret_cast<PyObject*>(std::exchange(adopted->f_back, nullptr))));
#if PY_VERSION_HEX >= 0x030D0000
  dropped_objects.push_back(Ref::steal(std::exchange(own->f_executable, nullptr)));
  dropped_objects.push_back(Ref::steal(std::exchange(own->f_funcobj, nullptr)));
#elif PY_VERSION_HEX >= 0x030C0000
  dropped_objects.push_back(Ref::steal(reinterpret_cast<PyObject*>(std::exchange(own->f_code, nullptr))));
  dropped_objects.push_back(Ref::steal(std::exchange(own->f_funcobj, nullptr)));
#else
  dropped_objects.push_back(Ref::steal(reinterpret_cast<PyObject*>(std::exchange(own->f_code, nullptr))));
  dropped_objects.push_back(Ref::steal(reinterpret_cast<PyObject*>(std::exchange(own->f_func, nullptr))));
#endif
#if PY_VERSION_HEX < 0x030D0000
  adopted->f_fast_as_locals = 0;
#endif
  adopted->f_lineno = 0;
  adopted->f_frame = frame;
  object.release();
  frame->frame_obj = adopted;
}

}  // namespace alternator::cpython
