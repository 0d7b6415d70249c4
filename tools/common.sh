# Shared by the scripts beside it. Sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Prints one sentence and exits.
fail() {
  echo "alternator: $*" >&2
  exit 1
}

# A warning that must not be missed, but does not stop the run.
warn_loudly() {
  printf '\n!!! alternator: %s\n\n' "$*" >&2
}

# find_python X.Y: prints the interpreter of that version; returns 2 if there is none.
# Order: the variable ALTERNATOR_PYTHONXY, PATH, pyenv.
find_python() {
  local version=$1 variable candidate found
  variable=ALTERNATOR_PYTHON${version/./}
  if [ -n "${!variable:-}" ]; then
    found=$(usable_python "$version" "${!variable}") ||
      fail "$variable is set to '${!variable}', which is not a CPython $version with its C headers."
    echo "$found"
    return
  fi
  for candidate in "python$version" python3 python \
    $(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python 2>/dev/null | sort -rV); do
    usable_python "$version" "$candidate" && return
  done
  return 2
}

# Prints the real path of the interpreter if it is a CPython of that version with headers and a GIL.
usable_python() {
  "$2" -c '
import os, sys, sysconfig
wanted = tuple(map(int, sys.argv[1].split(".")))
headers = os.path.join(sysconfig.get_path("include"), "Python.h")
usable = (sys.version_info[:2] == wanted and sys.implementation.name == "cpython"
          and os.path.exists(headers) and not sysconfig.get_config_var("Py_GIL_DISABLED"))
print(sys.executable) if usable else sys.exit(1)' "$1" 2>/dev/null
}
