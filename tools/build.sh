#!/usr/bin/env bash
# build.sh [--configure] torch | core VERSION | asan | mutants: configures (once) and builds one build folder.
#   torch  build/torch: alternator._C and its tests       core  build/core-VERSION: _alternator_core and its tests
#   asan   build/asan: the torch-free rooms under AddressSanitizer and UndefinedBehaviorSanitizer
#   mutants  build/mutants: alternator._C with mutants that can be switched on, for `make test-mutants`
source "$(dirname "$0")/common.sh"
jobs=${JOBS:-$(nproc)}
bin=$PWD/.venv/bin
configure_only=
if [ "${1:-}" = --configure ]; then
  configure_only=yes
  shift
fi

configure_and_build() {
  local folder=$1 python=$2
  shift 2
  # A folder of another interpreter, or of a tree that was moved, is configured again.
  if [ -f "$folder/CMakeCache.txt" ] && ! grep -qF "Python_EXECUTABLE:UNINITIALIZED=$python" "$folder/CMakeCache.txt" &&
    ! grep -qxF "Python_EXECUTABLE:FILEPATH=$python" "$folder/CMakeCache.txt"; then
    rm -rf "$folder"
  fi
  if [ ! -f "$folder/build.ninja" ]; then
    "$bin/cmake" -S . -B "$folder" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DPython_EXECUTABLE="$python" "$@" \
      --log-level=ERROR
  fi
  if [ -n "$configure_only" ]; then
    # The linters need an up-to-date compile_commands.json.
    "$bin/ninja" -C "$folder" --quiet build.ninja
  else
    "$bin/ninja" -C "$folder" -j "$jobs" --quiet
  fi
}

case ${1:-} in
  torch)
    configure_and_build build/torch "$bin/python" -DALTERNATOR_TORCH=ON
    ;;
  core)
    python=$bin/python
    [ "$2" = 3.11 ] || python=$PWD/.venv-$2/bin/python
    configure_and_build "build/core-$2" "$python" -DALTERNATOR_TORCH=OFF
    ;;
  asan)
    configure_and_build build/asan "$bin/python" -DALTERNATOR_TORCH=OFF -DALTERNATOR_SANITIZE=ON \
      -DCMAKE_BUILD_TYPE=RelWithDebInfo
    ;;
  mutants)
    configure_and_build build/mutants "$bin/python" -DALTERNATOR_TORCH=ON -DALTERNATOR_MUTANTS=ON -DALTERNATOR_TESTS=OFF \
      -DALTERNATOR_MODULE_DIR="$PWD/build/mutants/module"
    ;;
  *) fail "build.sh: say 'torch', 'core VERSION', 'asan' or 'mutants'." ;;
esac
