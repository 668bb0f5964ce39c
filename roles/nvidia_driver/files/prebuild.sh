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
upstream=$(sed -n 's/^PACKAGE_VERSION="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$conf")
# DKMS knows modules by their folder; a dkms.conf may say another name (nvidia in nvidia-open-570.133.20), and the pack would have it:
# https://github.com/NVIDIA/open-gpu-kernel-modules/pull/567
module=$(basename "${conf%/dkms.conf}")
module=${module%-"$upstream"}
sed -i "s/^PACKAGE_NAME=.*/PACKAGE_NAME=\"$module\"/" "$conf"

# The source asks for the kernel by uname -r where dkms.conf does not say which: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/791
# A kernel may have another compiler than the system's: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/615/oracle-linux.html
with_compiler_of() {
  KERNEL_UNAME=$1
  wanted=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="gcc[^"]*) \([0-9]*\)[.].*/\1/p' "/lib/modules/$1/build/.config" 2> /dev/null)
  tools=/opt/rh/gcc-toolset-$wanted/root/usr/bin
  shift
  if [ -n "$wanted" ] && [ -x "$tools/gcc" ] && [ "$(gcc -dumpversion 2> /dev/null | cut -d. -f1)" != "$wanted" ]; then
    (export KERNEL_UNAME PATH="$tools:$PATH"; "$@")
  else
    (export KERNEL_UNAME; "$@")
  fi
}

aside() {
  action=$1
  shift
  dkms "$action" --dkmstree "$work/tree" --sourcetree "$work/content/usr/src" -m "$module" -v "$upstream" "$@"
}

aside add > /dev/null || exit 1
kernels=""
for kernel in "$@"; do
  if ! with_compiler_of "$kernel" aside build -k "$kernel" > "$work/log" 2>&1; then
    echo "kernel $kernel:"
    log=$(find "$work/tree/$module/$upstream" -name make.log -print -quit)
    { grep -E ': (fatal )?error:|^ERROR: |: command not found' "${log:-$work/log}" || tail -n 8 "${log:-$work/log}"; } | cut -c1-200 | head -n 8
    exit 1
  fi
  built=$(find "$work/tree/$module/$upstream/$kernel" -name 'nvidia*.ko*' | grep -E '/nvidia(-current(-open)?)?[.]ko' | head -n 1)
  magic=$([ -z "$built" ] || modinfo -F vermagic "$built" 2> /dev/null)
  if [ -n "$magic" ] && [ "${magic%% *}" != "$kernel" ]; then
    echo "kernel $kernel: DKMS built modules of kernel ${magic%% *} for it, which it would refuse"
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
