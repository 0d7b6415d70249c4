// The interpreter's opcode tables. They use designated array initializers, which C++ does not have.
#define Py_BUILD_CORE 1
#include <Python.h>

#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_interp.h"
#define NEED_OPCODE_METADATA
#define _PyOpcode_Caches alt_opcode_caches_table
#define _PyOpcode_Deopt alt_opcode_deopt_table
#include "internal/pycore_opcode_metadata.h"
#else
#if PY_VERSION_HEX >= 0x030C0000
#include "internal/pycore_interp.h"
#endif
#define NEED_OPCODE_TABLES
#define _PyOpcode_Caches alt_opcode_caches_table
#define _PyOpcode_Deopt alt_opcode_deopt_table
#include "internal/pycore_opcode.h"
#endif

const uint8_t* const alt_opcode_caches = alt_opcode_caches_table;
const uint8_t* const alt_opcode_deopt = alt_opcode_deopt_table;
