#!/bin/bash
# usage: tests/newcomer.sh [BIN]    The tutorial, as somebody walks it who has run `make demo`: questions answered on a terminal, an
# inventory of one's own, a host that ssh reaches, a green verify and a page. Prints the seconds of each step. Root, on Debian.
# BIN is the folder of gpuprov and python. The host is a simulated one, made for this and removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=$(realpath "${1:-.venv/bin}")
PATH=$BIN:$PATH
HOST=newcomer01
place=$(mktemp -d)

end() {
  code=$?
  trap - EXIT
  python -m gpuprov.simulate down "$HOST" > /dev/null 2>&1 || true
  rm -rf "$place"
  exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# CODE COMMAND...: prints the command, runs it, and how long it took; ends unless it exits with the code.
step() {
  local expected=$1 code=0 begun=$SECONDS
  shift
  printf '\n$ %s\n' "$*" >&2
  "$@" || code=$?
  printf -- '--- %d s: %s\n' $((SECONDS - begun)) "${*:1:2}" >&2
  if [ "$code" != "$expected" ]; then
    echo "tests/newcomer.sh: exit code $code, expected $expected: $*" >&2
    exit 1
  fi
}

# Ends unless the file of what was printed last has the text.
shows() {
  grep -qF -- "$2" "$1" || { echo "tests/newcomer.sh: not printed: $2" >&2; cat "$1"; exit 1; }
}

answers() { # hosts, user, GPU, driver, engines, reboot: Enter takes what is offered
  printf '%s\n' "$HOST" gpuadmin '' any '' '' | script --quiet --return --command 'gpuprov init' /dev/null
}

step 0 python -m gpuprov.simulate up "$HOST" --inventory "$place/hosts.yaml"
cd "$place"
step 0 answers
grep -q '^# Written by gpuprov init' inventory.yaml
step 0 gpuprov check inventory.yaml hosts.yaml
step 1 gpuprov plan inventory.yaml hosts.yaml > plan.txt # 1: the host differs from its spec
shows plan.txt "1 host: driver "
step 0 gpuprov apply inventory.yaml hosts.yaml --yes
step 0 gpuprov verify inventory.yaml hosts.yaml --html page.html > verify.txt
shows verify.txt 'matches the spec, but'
shows verify.txt 'next boot right'
shows page.html 'matches its spec, but'
step 0 gpuprov plan inventory.yaml hosts.yaml > plan.txt # nothing is left to do
echo
echo "a green verify and a page after $SECONDS s"
