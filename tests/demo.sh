#!/bin/bash
# usage: tests/demo.sh BIN    The main job on a simulated GPU host: check, plan, apply, verify.
# BIN is the folder of gpuprov and python. KEEP=1 leaves the host up at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=$(realpath "${1:-.venv/bin}")
PATH=$BIN:$PATH
HOST=gpu01

end() {
  code=$?
  trap - EXIT
  if [ "${KEEP:-}" = 1 ]; then
    echo "the host stays: gpuprov simulate down $HOST" >&2
  else
    gpuprov simulate down "$HOST" || true
  fi
  exit "$code"
}

# Prints the command, runs it, and ends the demo unless it exits with the expected code.
show() {
  local expected=$1 code=0
  shift
  printf '\n$ %s\n' "$*"
  "$@" || code=$?
  if [ "$code" != "$expected" ]; then
    echo "tests/demo.sh: exit code $code, expected $expected: $*" >&2
    exit 1
  fi
}

mkdir -p build
if gpuprov simulate list | grep -q "^${HOST}[[:space:]]"; then
  gpuprov simulate down "$HOST"
fi
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

INVENTORY=(inventories/example/inventory.yaml build/simulated.yaml --limit simulated)
show 0 gpuprov simulate up "$HOST" --file tests/demo.yaml --inventory build/simulated.yaml
show 0 gpuprov check "${INVENTORY[@]}"
show 1 gpuprov plan "${INVENTORY[@]}" # 1: the host differs from its spec
show 0 gpuprov apply "${INVENTORY[@]}" --yes
show 0 gpuprov simulate reboot "$HOST"
show 0 gpuprov verify "${INVENTORY[@]}" --verbose
show 0 gpuprov simulate run "$HOST" nvidia-smi
show 0 gpuprov simulate fault "$HOST" fabric-manager-dead
show 1 gpuprov verify "${INVENTORY[@]}" # 1: found
show 0 gpuprov simulate fault "$HOST" fabric-manager-dead --heal
show 0 gpuprov apply "${INVENTORY[@]}" --yes # nothing is left to do
