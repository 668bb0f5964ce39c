# usage: modules.sh PACKAGE KERNEL...
# Builds and installs the DKMS package's modules for each kernel that lacks them; "installed for KERNEL", one a line.
# DKMS says "installed" also where the module's file is gone: modinfo looks.
set -u
source=$(dpkg-query -L "$1" | sed -n 's,^/usr/src/\([^/]*\)/dkms.conf$,/usr/src/\1,p')
shift
name=$(sed -n 's/^PACKAGE_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$source/dkms.conf")
version=${source##*/"$name"-}
# What a run that was cut off built aside: a later installation of the same version must not load it.
pack="/usr/share/$name-dkms/$name-$version.dkms.tar.gz"
if [ -f "$pack" ] && ! dpkg-query -S "$pack" > /dev/null 2>&1; then
  rm -f "$pack"
  rmdir --ignore-fail-on-non-empty "${pack%/*}"
fi
for kernel in "$@"; do
  if dkms status -m "$name" -v "$version" -k "$kernel" | grep -q installed; then
    [ "$(modinfo -k "$kernel" -F version "$name" 2> /dev/null)" = "$version" ] && continue
  fi
  if ! answer=$(dkms install --force -m "$name" -v "$version" -k "$kernel" 2>&1); then
    echo "kernel $kernel: $answer"
    tail -n 12 "/var/lib/dkms/$name/$version/build/make.log" 2>/dev/null
    exit 1
  fi
  echo "installed for $kernel"
done
