#!/bin/bash
# A gpuprov stand-in for AWS's installer of EFA: it builds and installs the packages that lie beside it, in the real one's order.
# Its own test of the devices is left out, whatever is asked; so are rdma-core, efa-config and debug packages.
version=@version@ list=/opt/amazon/efa_installed_packages
kmod=1 plugin=1 mpi='openmpi40-aws openmpi50-aws' yes='' reboot=''

usage() {
  echo "usage: efa_installer.sh -y [-n] [-l] [-k] [--skip-plugin] [--skip-mpi | --mpi=openmpi4|openmpi5] (gpuprov stand-in)" >&2
  exit 1
}

fail() {
  echo "Error: $*, exiting" >&2
  exit 1
}

unload() {
  [ -d /sys/module/efa ] || return 0
  echo "Unloading EFA kernel module"
  rmmod efa && return
  echo "Failed to unload EFA kernel module."
  echo "Reboot is needed!" >&2
  reboot=reboot
}

for word in "$@"; do
  case $word in
    -y | --yes) yes=1 ;;
    -n | --no-verify | -l | --skip-limit-conf | -g | --enable-gdr) ;;
    -k | --skip-kmod) kmod='' ;;
    --skip-plugin) plugin='' ;;
    --skip-mpi) mpi='' ;;
    --mpi=openmpi4) mpi=openmpi40-aws ;;
    --mpi=openmpi5) mpi=openmpi50-aws ;;
    *) usage ;;
  esac
done

echo "= Starting Amazon Elastic Fabric Adapter Installation Script ="
echo "= EFA Installer Version: $version ="
echo
[ -d packages ] || fail "please cd into the installer directory"
[ "$(id -u)" = 0 ] || fail "this must be run as root"
[ -n "$yes" ] || fail "nobody is asked by a stand-in: -y"
echo "== Installing EFA dependencies =="
apt-get install -y -q pciutils ${kmod:+dkms} || fail "failed to install third-party dependencies"
echo "== Installing EFA packages =="
installed='' made=()
for name in libfabric1-aws libfabric-aws-bin efa-profile ${plugin:+libnccl-ofi} $mpi ${kmod:+efa}; do
  folder=packages/$name
  new=$(sed -n 's/^Version: //p' "$folder/DEBIAN/control")
  installed="$installed ${name}_${new}_amd64"
  there=$(dpkg-query -W -f '${Version}' "$name" 2>/dev/null)
  if [ -n "$there" ] && dpkg --compare-versions "$new" le "$there"; then
    echo "${name}_$there already installed"
    continue
  fi
  for source in "$folder"/opt/amazon/ofi-nccl/lib/*.c; do
    [ -e "$source" ] || continue
    library=${source##*/}
    gcc -shared -fPIC -Wl,-soname,"${library%.c}.so" -o "${source%.c}.so" "$source" && rm "$source" || fail "$source is not built"
  done
  chmod -f 755 "$folder"/DEBIAN/p* "$folder"/opt/amazon/*/bin/*
  dpkg-deb --root-owner-group --build "$folder" "$name.deb" >/dev/null || fail "$name is not built"
  made+=("./$name.deb")
  [ "$name" != efa ] || unload
done
if [ ${#made[@]} -gt 0 ]; then
  dpkg --install --force-confmiss --force-confold "${made[@]}" || fail "failed to install EFA packages"
fi
mkdir -p /opt/amazon
printf '# EFA installer version: %s\n# Debug packages installed: no\n# Packages installed:\n%s\n' "$version" "${installed# }" >"$list"
if [ -n "$kmod" ]; then
  echo "Updating boot ramdisk"
  update-initramfs -u -k all || fail "failed to generate new initramfs image"
  modprobe ib_core
  modprobe ib_uverbs
  unload
  echo "Reloading EFA kernel module"
  modprobe efa
fi
echo "==================================================="
echo "EFA installation complete."
echo "- Please ${reboot:-logout/login} to complete the installation."
echo "- Libfabric was installed in /opt/amazon/efa"
echo "==================================================="
