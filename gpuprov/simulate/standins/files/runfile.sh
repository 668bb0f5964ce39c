#!/bin/sh
# A gpuprov stand-in for NVIDIA's .run file: for simulated hosts, never for a real one.
label="NVIDIA Accelerated Graphics Driver for Linux-x86_64 @VERSION@"
version_string=@VERSION@
skip=@SKIP@
sum=@SHA256@
targetdir=NVIDIA-Linux-x86_64-@VERSION@

whole() {
  found=$(tail -n "+$skip" "$0" | sha256sum)
  [ "${found%% *}" = "$sum" ] && return 0
  echo "Error in check sums: $found is not $sum" >&2
  return 1
}
unpacked() { mkdir -p "$1" && tail -n "+$skip" "$0" | tar -xz -C "$1"; }

case ${1-} in
  --info) echo "$label (a gpuprov stand-in)"; echo "target directory: $targetdir"; exit 0 ;;
  --check) whole || exit 1; echo "check sums are ok"; exit 0 ;;
  -x | --extract-only) whole && unpacked "$PWD/$targetdir"; exit ;;
esac
whole || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/selfgz.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
unpacked "$work" && cd "$work" && ./nvidia-installer "$@"
exit $?
