# usage: modules.sh FAMILY FLAVOUR MODULE PACK PACKAGE KERNEL...
# Builds and installs the DKMS package's modules for each kernel that lacks them; "installed for KERNEL", one a line.
# DKMS says "installed" also where the module's file is gone, or is of the other flavour: modinfo looks.
# MODULE is what the file is called, DKMS may call it otherwise. PACK, if not empty, has modules that were built aside.
set -u
family=$1 flavour=$2 module=$3 pack=$4
shift 4
if [ "$family" = debian ]; then files=$(dpkg-query -L "$1"); else files=$(rpm -ql "$1"); fi || { echo "$1 is not installed"; exit 1; }
source=$(echo "$files" | sed -n 's,^/usr/src/\([^/]*\)/dkms.conf$,/usr/src/\1,p')
if [ ! -f "$source/dkms.conf" ]; then
  echo "$1 has no dkms.conf below /usr/src, so DKMS cannot build its modules: install $1 anew, or take a version whose package has one"
  exit 1
fi
shift
# DKMS knows modules by their folder, whatever name is in dkms.conf.
version=$(sed -n 's/^PACKAGE_VERSION="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$source/dkms.conf")
name=${source##*/}
name=${name%-"$version"}
# What a run that was cut off built aside: a later installation of the same version must not load it.
left="/usr/share/$name-dkms/$name-$version.dkms.tar.gz"
if [ "$family" = debian ] && [ -f "$left" ] && ! dpkg-query -S "$left" > /dev/null 2>&1; then
  rm -f "$left"
  rmdir --ignore-fail-on-non-empty "${left%/*}"
fi

# As in prebuild.sh.
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

right() { # KERNEL
  [ "$(modinfo -k "$1" -F version "$module" 2> /dev/null)" = "$version" ] || return 1
  # Of another kernel it is right only where the distribution has found that it fits (weak-modules).
  made=$(modinfo -k "$1" -F vermagic "$module" 2> /dev/null)
  case $(modinfo -k "$1" -n "$module" 2> /dev/null) in
    */weak-updates/*) ;;
    *) [ -z "$made" ] || [ "${made%% *}" = "$1" ] || return 1 ;;
  esac
  # https://github.com/NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv.c: the open module's license has GPL in it
  case $(modinfo -k "$1" -F license "$module" 2> /dev/null) in *GPL*) [ "$flavour" = open ] ;; *) [ "$flavour" = proprietary ] ;; esac
}

for kernel in "$@"; do
  known=$(dkms status -m "$name" -v "$version" -k "$kernel")
  if echo "$known" | grep -q installed; then
    right "$kernel" && continue
    # What is there is another flavour's or kernel's, or its file is lost: DKMS would install the same again.
    [ "$family" = debian ] || dkms unbuild -m "$name" -v "$version" -k "$kernel" > /dev/null 2>&1
  fi
  if [ -n "$pack" ] && ! dkms status -m "$name" -v "$version" -k "$kernel" | grep -qE 'built|installed'; then
    dkms ldtarball --force --archive "$pack" > /dev/null 2>&1
  fi
  if ! answer=$(with_compiler_of "$kernel" dkms install --force -m "$name" -v "$version" -k "$kernel" 2>&1); then
    echo "kernel $kernel: $answer"
    tail -n 12 "/var/lib/dkms/$name/$version/build/make.log" 2>/dev/null
    exit 1
  fi
  echo "installed for $kernel"
done
# What DKMS found in the place of its own modules it would put back when it goes: over precompiled ones, for instance.
rm -rf "/var/lib/dkms/$name/original_module"
