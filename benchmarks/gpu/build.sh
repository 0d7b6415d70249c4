#!/usr/bin/env bash
# build.sh [FOLDER]: builds alternator for the torch that `python3` imports, whatever its version, into FOLDER (default
# build/gpu), for machines that have torch, CMake and ninja but not the environment of `make`. FOLDER/package then holds an importable
# `alternator`.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/gpu}
python=$(command -v python3)
"$python" -c 'import sys, torch; print("CPython", sys.version.split()[0], "torch", torch.__version__, "CUDA", torch.version.cuda)'
mkdir -p "$folder/package/alternator"
# torch loads the shared libstdc++: a module that is linked with a static copy crashes at the first number that it writes
# to a stream. The library path of the environment may contain the static one first, so the shared one is named.
compiler=
for candidate in ${CXX:-} g++ c++; do
  echo '#include <sstream>
std::string text(int x) { std::ostringstream s; s << x; return s.str(); }' >"$folder/probe.cpp"
  if "$candidate" -shared -fPIC -o "$folder/probe.so" "$folder/probe.cpp" && readelf -d "$folder/probe.so" | grep 'libstdc++\.so' >/dev/null; then
    compiler=$(command -v "$candidate")
    break
  fi
done
[ -n "$compiler" ] || { echo "build.sh: no C++ compiler here links the shared libstdc++" >&2; exit 1; }
cmake -S . -B "$folder" -G Ninja -DPython_EXECUTABLE="$python" -DCMAKE_CXX_COMPILER="$compiler" -DALTERNATOR_TORCH=ON -DALTERNATOR_TESTS=OFF \
  -DCMAKE_MODULE_LINKER_FLAGS="-Wl,--no-as-needed $("$compiler" -print-file-name=libstdc++.so) -Wl,--as-needed" \
  -DALTERNATOR_MODULE_DIR="$PWD/$folder/package/alternator" --log-level=ERROR
cmake --build "$folder" --target _C
cp -r alternator/*.py alternator/py.typed "$folder/package/alternator/"
