#!/usr/bin/env bash
# asan.sh COMMAND...: runs a command under an uninstrumented Python with the sanitized core (build/asan).
source "$(dirname "$0")/common.sh"

library() {
  local path
  path=$(g++ -print-file-name="$1")
  [ "$path" != "$1" ] || fail "g++ has no $1: install the sanitizer libraries that belong to it (on Debian: libgcc-12-dev)."
  echo "$path"
}

# The interpreter itself is not instrumented, so the sanitizer runtime must be preloaded; libstdc++ too, or the runtime
# cannot intercept C++ exceptions.
preload="$(library libasan.so):$(library libubsan.so):$(library libstdc++.so)"
# With redzones around its variables the loop's C frame is about sixteen times as large: scale the stack for deep recursion.
export ALTERNATOR_FRAME_SCALE=16
ulimit -s $((8192 * ALTERNATOR_FRAME_SCALE)) ||
  fail "the sanitized loop needs a C stack of 128 MiB, which 'ulimit -Hs' does not allow here."
# pymalloc would hide every error in an object's memory. CPython itself leaks memory at exit: leaks are tested
# by counting blocks and references, not here.
exec env LD_PRELOAD="$preload" PYTHONMALLOC=malloc ALTERNATOR_CORE_DIR="$PWD/build/asan" \
  ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0:${ASAN_OPTIONS:-}" \
  UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}" "$@"
