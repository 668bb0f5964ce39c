#!/bin/sh
# usage: prebuild.sh PACKAGE VERSION KERNEL...
# Builds the DKMS package's modules for every kernel in a tree of its own, and packs them where the package's postinst looks
# (ldtarball in /usr/lib/dkms/common.postinst), so that the transaction builds nothing. The host's DKMS tree is not touched.
# The last line of output is the path of the pack.
set -u
package=$1 version=$2
shift 2
work=/var/lib/gpuprov/prebuild
rm -rf "$work"
mkdir -p "$work/deb" "$work/tree" || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

name="${package}_$(echo "$version" | sed 's/:/%3a/')_*.deb"
file=$(find /var/cache/apt/archives -maxdepth 1 -name "$name" -print -quit)
if [ -z "$file" ]; then
  (cd "$work" && apt-get -qq download "$package=$version") || exit 1
  file=$(find "$work" -maxdepth 1 -name "$name" -print -quit)
fi
dpkg-deb -x "$file" "$work/deb" || exit 1
conf=$(find "$work/deb/usr/src" -maxdepth 2 -name dkms.conf -print -quit)
[ -n "$conf" ] || { echo "$package $version has no dkms.conf"; exit 1; }
module=$(sed -n 's/^PACKAGE_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$conf")
upstream=$(sed -n 's/^PACKAGE_VERSION="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$conf")

aside() {
  action=$1
  shift
  dkms "$action" --dkmstree "$work/tree" --sourcetree "$work/deb/usr/src" -m "$module" -v "$upstream" "$@"
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
pack="/usr/share/$module-dkms/$module-$upstream.dkms.tar.gz"
mkdir -p "${pack%/*}"
# shellcheck disable=SC2086
aside mktarball $kernels --archive "$pack" > /dev/null || { rm -f "$pack"; exit 1; }
echo "$pack"
