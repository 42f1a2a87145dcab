# What the shell tools share: where things are, and steps that say what they do. Sourced, never run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
logs=build/logs
mkdir -p "$logs"
trap 'exit 130' INT  # some tools exit with an ordinary status on Ctrl-C; the script must end too

die() {
  printf '%s\n' "$*" >&2
  exit 1
}

# quietly LOG COMMAND...: runs a command with its output in a log, shows the log's tail when it
# fails, and leaves its exit status in `status`. REQUIRES: not called in a condition, where bash
# would ignore `set -e` inside the command.
quietly() {
  local log=$logs/$1.log
  shift
  set +e
  (set -e; "$@") >"$log" 2>&1
  status=$?
  set -e
  if [ "$status" -ne 0 ]; then
    printf 'FAILED\n--- the end of %s:\n' "$log"
    tail -n 40 "$log"
    printf -- '---\n'
  fi
}

# Numbered lines, up to `step_count`: step LOG TEXT COMMAND... does it and says how long it took;
# say TEXT only says it.
step_number=0
step() {
  local log=$1 text=$2 start=$SECONDS
  shift 2
  step_number=$((step_number + 1))
  printf '[%d/%d] %s ... ' "$step_number" "$step_count" "$text"
  quietly "$log" "$@"
  [ "$status" -eq 0 ] || exit "$status"
  printf 'done (%d s)\n' $((SECONDS - start))
}

say() {
  step_number=$((step_number + 1))
  printf '[%d/%d] %s\n' "$step_number" "$step_count" "$1"
}

# The compiler and the Python tools that `tools/setup` has put in place. REQUIRES: tools/setup ran.
use_environment() {
  export PATH=$PWD/.venv/bin:$PATH
  unset PYTHONHOME
  if [ -z "${CXX:-}" ] && command -v g++-12 >/dev/null && [ "$(gxx_major)" -lt 12 ]; then
    export CXX=g++-12  # coroutines in the distribution's g++ 11 are not good enough
  fi
  # The builds of one checkout have most of their objects in common, if one compiler makes them:
  # pip would ask the interpreter for its own.
  export CXX=${CXX:-c++}
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=${CCACHE_DIR:-$PWD/build/ccache}
  fi
}

gxx_major() {
  { g++ -dumpversion 2>/dev/null || echo 0; } | cut -d. -f1
}

# zoffload itself into .venv; build/python is kept, so a repeat compiles only what changed.
install_package() {
  pip install --no-build-isolation --no-deps .
}
