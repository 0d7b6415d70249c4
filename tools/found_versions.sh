#!/usr/bin/env bash
# found_versions.sh VERSION...: prints those that are installed, and warns about the others.
source "$(dirname "$0")/common.sh"
for version in "$@"; do
  status=0
  find_python "$version" >/dev/null || status=$?
  if [ $status = 0 ]; then
    echo "$version"
  else
    warn_loudly "CPython $version was NOT FOUND (PATH, pyenv, ALTERNATOR_PYTHON${version/./}): it is neither built nor tested here."
  fi
done
