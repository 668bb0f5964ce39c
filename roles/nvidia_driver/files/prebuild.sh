#!/bin/sh
# usage: prebuild.sh FAMILY "FILE..." KERNEL...
# Builds the modules of a DKMS package, whose source a further one may hold, for every kernel in a tree of its own, and packs
# them: on Debian where the package's postinst looks (ldtarball in /usr/lib/dkms/common.postinst), so that the transaction builds
# nothing; else in /var/lib/gpuprov, for preload.sh. The host's DKMS tree is not touched. The last line of output is the pack's path.
set -u
family=$1 files=$2
shift 2
work=/var/lib/gpuprov/prebuild
rm -rf "$work"
mkdir -p "$work/content" "$work/tree" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

for file in $files; do
  if [ "$family" = debian ]; then
    dpkg-deb -x "$file" "$work/content"
  else
    rpm2archive - < "$file" | tar -xz -C "$work/content"
  fi || { echo "$file cannot be unpacked"; exit 1; }
done
conf=$(find "$work/content/usr/src" -maxdepth 2 -name dkms.conf -print -quit)
[ -n "$conf" ] || { echo "$files: no dkms.conf"; exit 1; }
module=$(sed -n 's/^PACKAGE_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$conf")
upstream=$(sed -n 's/^PACKAGE_VERSION="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$conf")

aside() {
  action=$1
  shift
  dkms "$action" --dkmstree "$work/tree" --sourcetree "$work/content/usr/src" -m "$module" -v "$upstream" "$@"
}

aside add > /dev/null || exit 1
kernels=""
for kernel in "$@"; do
  if ! aside build -k "$kernel" > "$work/log" 2>&1; then
    echo "kernel $kernel:"
    log=$(find "$work/tree/$module/$upstream" -name make.log -print -quit)
    { grep -E ': (fatal )?error:|^ERROR: ' "${log:-$work/log}" || tail -n 8 "${log:-$work/log}"; } | cut -c1-200 | head -n 8
    exit 1
  fi
  kernels="$kernels -k $kernel"
done
pack="/var/lib/gpuprov/prebuilt/$module-$upstream.dkms.tar.gz"
[ "$family" != debian ] || pack="/usr/share/$module-dkms/$module-$upstream.dkms.tar.gz"
mkdir -p "${pack%/*}"
# Not compressed, which takes longer than all else here: ldtarball looks at the content, not the name (dkms 2.8 to 3.2).
# shellcheck disable=SC2086
{ aside mktarball $kernels --archive "${pack%.gz}" > /dev/null && mv "${pack%.gz}" "$pack"; } || { rm -f "${pack%.gz}"; exit 1; }
echo "$pack"
