// The interpreter's internals, for the CPython this file is compiled against.
//
// Everything that differs between versions is behind one interface (namespace alternator::cpython), implemented once
// per version in v3xx.h / v3xx.cpp. No other folder includes internal headers.
//
// Porting to a new version: copy the newest v3xx.{h,cpp}, add rows to opcodes.def, then check
//   - _PyInterpreterFrame: names and meaning of the instruction pointer, stack top, owner, locals;
//   - who clears a frame that returns or unwinds, and who owns the recursion count;
//   - where the exception being handled and the raised one are kept, and what "none" is;
//   - where the current frame is linked (cframe or thread state), and how tracing is switched on;
//   - the eval breaker's bits;
//   - opcodes: cache entries, oparg packing, stack effects (tests/interpreter compares them with `dis`).
#pragma once

#if defined(Py_PYTHON_H) && !defined(Py_BUILD_CORE)
#error "include a header of cpython/ or interpreter/ before any other that includes Python.h"
#endif
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX >= 0x030E0000
#error "alternator knows the internals of CPython 3.11 to 3.13 only: see cpython/version.h for what to check"
#elif PY_VERSION_HEX >= 0x030D0000
#include "cpython/v313.h"
#elif PY_VERSION_HEX >= 0x030C0000
#include "cpython/v312.h"
#elif PY_VERSION_HEX >= 0x030B0000
#include "cpython/v311.h"
#else
#error "alternator needs CPython 3.11 or newer"
#endif
