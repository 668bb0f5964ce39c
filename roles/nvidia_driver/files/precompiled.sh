# usage: precompiled.sh FAMILY VERSION "PACKAGE..." KERNEL...
# Has the modules of the packages be the ones that each kernel loads; "linked for KERNEL", one a line. DKMS, when it goes, puts back what it
# once found in the place of its own (original_module in https://github.com/dell/dkms/blob/main/dkms.in): of no package, and first.
family=$1 version=$2 packages=$3
shift 3

of_a_package() { # FILE
  if [ "$family" = debian ]; then dpkg-query -S "$1"; else rpm -qf "$1"; fi > /dev/null 2>&1
}

for kernel in "$@"; do
  [ "$(modinfo -k "$kernel" -F version nvidia 2> /dev/null)" = "$version" ] && continue
  find "/lib/modules/$kernel" -name 'nvidia.ko*' | while read -r file; do
    [ "$(modinfo -F version "$file" 2> /dev/null)" = "$version" ] || of_a_package "$file" || rm -f "${file%/*}"/nvidia.ko* "${file%/*}"/nvidia-*.ko*
  done
  depmod -a "$kernel"
  for package in $packages; do
    [ "$(modinfo -k "$kernel" -F version nvidia 2> /dev/null)" = "$version" ] && break
    case $package in *-"$kernel" | *-"${kernel%%.el[0-9]*}") ;; *) continue ;; esac
    if [ "$family" = debian ]; then
      answer=$(DEBIAN_FRONTEND=noninteractive dpkg-reconfigure "$package" 2>&1)
    else
      answer=$(rpm -q --qf '%{POSTIN}\n' "$package" | sh 2>&1)
    fi
  done
  found=$(modinfo -k "$kernel" -F version nvidia 2> /dev/null)
  [ "$found" = "$version" ] || { echo "kernel $kernel: ${found:-no module} of nvidia, not $version: ${answer-}"; exit 1; }
  echo "linked for $kernel"
done
