# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Sourced by the scripts beside it: where the project is, what to run there, how to say things.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python
outer_path=$PATH
export PATH="$venv/bin:$PATH"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0

# pip ends on its own at Ctrl-C, with a failure like any other: end here too.
trap 'exit 130' INT

say() { printf '==> %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Prints the comment that follows the calling script's first two lines, and ends it.
help_and_exit() {
  sed -n '3,/^$/s/^# \{0,1\}//p' "$0"
  exit 0
}

# logged <file> <command>...: keeps the output in the file; shows its end if the command fails.
logged() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    printf 'error: failed: %s (all output: %s)\n' "$*" "$log" >&2
    return 1
  }
}

has_gpu() { [[ -e /dev/nvidiactl ]] || nvidia-smi -L >/dev/null 2>&1; }

compiles_cxx20() {
  "$1" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null <<'CXX'
#include <concepts>
#include <span>
struct Probe {
  int value = 0;
  bool operator==(const Probe&) const = default;
};
static_assert(std::integral<int> && Probe{.value = 1} == Probe{.value = 1});
CXX
}

# Exports CXX, the first compiler here that knows C++20.
find_compiler() {
  local candidate
  for candidate in ${CXX:-c++ g++ g++-14 g++-13 g++-12 g++-11 clang++}; do
    if compiles_cxx20 "$candidate"; then
      export CXX=$candidate
      return
    fi
  done
  return 1
}
