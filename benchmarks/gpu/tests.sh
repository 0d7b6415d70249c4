#!/usr/bin/env bash
# tests.sh [LOG] [pytest arguments]: the tests of the package that build.sh has built (build/gpu), on this machine's python3, each file in a
# separate process, as many at a time as there are cores. LOG (default build/gpu/tests.log) gets what they printed.
set -uo pipefail
cd "$(dirname "$0")/../.."
log=$(realpath -m "${1:-build/gpu/tests.log}")
shift || true
place=$(mktemp -d)
cores=$(nproc)  # before OMP_NUM_THREADS is set, which nproc would return
cp -r tests docs README.md pyproject.toml demo benchmarks "$place"
cp -r build/gpu/package/alternator "$place"
find csrc -name "*.def" -exec cp --parents {} "$place" \;  # tables that tests read
cd "$place"
export PYTHONPATH=$place OMP_NUM_THREADS=1 ARGUMENTS="$*" RESULTS=$place/results LOG=$log
mkdir -p "$RESULTS" "$(dirname "$log")"
one() {
  # Traced programs (tests/helpers/traced.py) run in forked processes, where CUDA cannot be used if the parent has initialized it.
  if grep -qE '^(from|import) (harness|trace_support|frontends|forced)\b' "$1"; then export CUDA_VISIBLE_DEVICES=; fi
  timeout -k 5 "${SECONDS_PER_FILE:-280}" python3 -X faulthandler -m pytest -q -rfE --tb=short $ARGUMENTS "$1" >"$RESULTS/$(echo "$1" | tr / _)" 2>&1
  local status=$?
  echo "$1 $status $(tail -1 "$RESULTS/$(echo "$1" | tr / _)")" >>"$LOG.files"
  [ $status -eq 0 ] || [ $status -eq 5 ] || echo "$1: exit status $status: $(tail -1 "$RESULTS/$(echo "$1" | tr / _)")"
}
export -f one
# Tests that need the sources, a virtual environment or another build are left out.
find tests -mindepth 2 -name "test_*.py" -not -path "tests/interpreter/*" -printf "%s %p\n" | sort -rn | cut -d" " -f2 | cat - <(ls tests/test_{fuzzed,harness,whole_models}.py) |
  xargs -P "$cores" -I{} bash -c 'one {}'
for result in "$RESULTS"/*; do echo "== $(basename "$result")"; tail -c 6000 "$result"; done >"$log"
python3 - "$RESULTS" <<'P'
import collections, pathlib, re, sys
sums = collections.Counter()
for path in pathlib.Path(sys.argv[1]).iterdir():
    last = path.read_text().rstrip().rsplit("\n", 1)[-1]
    for number, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?|xfailed)\b", last):
        sums[kind] += int(number)
print(", ".join(f"{n} {kind}" for kind, n in sums.most_common()))
P
