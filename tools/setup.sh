#!/usr/bin/env bash
# setup.sh VERSION FILE...: a virtual environment for CPython VERSION with the packages of requirements/FILE.txt.
# 3.11 lives in .venv (with torch), other versions in .venv-VERSION.
source "$(dirname "$0")/common.sh"
version=$1
shift
venv=.venv
[ "$version" = 3.11 ] || venv=.venv-$version

check_tools() {
  command -v g++ >/dev/null || fail "g++ was not found: install a C++20 compiler (on Debian: apt-get install g++)."
  g++ -std=c++20 -fsyntax-only -x c++ - 2>/dev/null <<<'int main() { return 0; }' ||
    fail "g++ does not accept -std=c++20: install g++ 11 or newer."
}

make_venv() {
  local python
  python=$(find_python "$version") || {
    [ $? = 2 ] || exit 1
    fail "no CPython $version with its C headers was found on PATH, under pyenv or in ALTERNATOR_PYTHON${version/./}: install it (on Debian: apt-get install python$version-dev python$version-venv)."
  }
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments: install its venv module (on Debian: apt-get install python$version-venv)."
  echo "alternator: creating $venv with $python"
  "$python" -m venv "$venv" || fail "$python could not create the virtual environment $venv."
}

check_tools
[ -e "$venv" ] || make_venv
usable_python "$version" "$venv/bin/python" >/dev/null ||
  fail "$venv is not a working environment of CPython $version: run 'make distclean' and start again."

arguments=()
for file in "$@"; do
  arguments+=(-r "requirements/$file.txt")
done
echo "alternator: installing $* for CPython $version into $venv"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check "${arguments[@]}" ||
  fail "pip could not install requirements ($*): its error message is above; a package index must be reachable."
