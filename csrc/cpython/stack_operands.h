// How many stack values an instruction reads.
#pragma once

#include "cpython/operations.h"

namespace alternator::cpython {

inline constexpr int kAllOperands = 1 << 20;

// Instructions that only move values read none of them. An instruction that is not listed may read everything.
inline int operands_looked_at(int opcode, int oparg) {
  switch (opcode) {
    case NOP:
    case RESUME:
    case POP_TOP:
    case PUSH_NULL:
    case COPY:
    case SWAP:
    case LOAD_FAST:
    case STORE_FAST:
    case DELETE_FAST:
    case LOAD_CONST:
    case LOAD_GLOBAL:
    case LOAD_DEREF:
    case DELETE_DEREF:
    case DELETE_GLOBAL:
    case MAKE_CELL:
    case COPY_FREE_VARS:
    case JUMP_FORWARD:
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT:
    case LOAD_BUILD_CLASS:
    case LOAD_ASSERTION_ERROR:
#ifdef LOAD_CLOSURE
    case LOAD_CLOSURE:
#endif
#ifdef PRECALL
    case PRECALL:  // it would unpack a bound method; CALL does so too
#endif
      return 0;
    case UNARY_NEGATIVE:
    case UNARY_NOT:
    case UNARY_INVERT:
    case GET_ITER:
    case FOR_ITER:
    case LOAD_ATTR:
    case DELETE_ATTR:
    case STORE_GLOBAL:
    case STORE_DEREF:
    case UNPACK_SEQUENCE:
    case UNPACK_EX:
    case RETURN_VALUE:
    case GET_LEN:
#ifdef LOAD_METHOD
    case LOAD_METHOD:
#endif
#ifdef POP_JUMP_FORWARD_IF_FALSE
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_NONE:
    case POP_JUMP_FORWARD_IF_NOT_NONE:
    case POP_JUMP_BACKWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_NONE:
    case POP_JUMP_BACKWARD_IF_NOT_NONE:
#endif
#ifdef POP_JUMP_IF_FALSE
    case POP_JUMP_IF_FALSE:
    case POP_JUMP_IF_TRUE:
    case POP_JUMP_IF_NONE:
    case POP_JUMP_IF_NOT_NONE:
#endif
      return 1;
    case BINARY_OP:
    case BINARY_SUBSCR:
    case COMPARE_OP:
    case IS_OP:
    case CONTAINS_OP:
    case STORE_ATTR:
    case DELETE_SUBSCR:
      return 2;
    case STORE_SUBSCR:
      return 3;
    case BUILD_TUPLE:
    case BUILD_LIST:
    case BUILD_SET:
    case BUILD_STRING:
      return oparg;
    case BUILD_MAP:
      return 2 * oparg;
    case LIST_APPEND:
    case SET_ADD:
    case LIST_EXTEND:
    case SET_UPDATE:
    case DICT_UPDATE:
      return oparg + 1;
    case MAP_ADD:
      return oparg + 2;
    case CALL:
      return oparg + 2;
    default:
      return kAllOperands;
  }
}

// Instructions that assume that a container on the stack was just built by this frame, and access it directly. In a
// frame that is resumed in the middle the container is a pre-existing object.
inline bool looks_into_operands(int opcode) {
  switch (opcode) {
    case LIST_APPEND:
      return false;  // whatever the list holds
    case SET_ADD:
    case MAP_ADD:
    case LIST_EXTEND:
    case SET_UPDATE:
    case DICT_UPDATE:
      return true;
    default:
      return operands_looked_at(opcode, 0) == kAllOperands;
  }
}

}  // namespace alternator::cpython
