# usage: initramfs.sh list|rebuild
# Every initramfs that is older than its configuration: its name, or its rebuild by the program that made it. Each by its own
# name: "-k all" means to update-initramfs only those that it made itself. /boot must hold a second one while it is written.
# Left out: images for a rescue, which dracut never rebuilds, for kdump, where no GPU driver runs, and copies that are no kernel's
# (.old-dkms, .bak): made anew, a copy would have no modules.
set -u
stale() { [ -n "$(find /etc/modprobe.d /etc/dracut.conf.d/90-gpuprov.conf -newer "$1" -print -quit 2>/dev/null)" ]; }
by_dracut() {
  command -v update-initramfs > /dev/null || return 0
  command -v dracut > /dev/null && lsinitramfs "$1" 2>/dev/null | grep -q lib/dracut/
}
for image in /boot/initrd.img-* /boot/initramfs-*.img /boot/initrd-*; do
  case "$image" in *kdump.img | *-kdump | *-0-rescue-*) continue ;; esac
  kernel=${image#/boot/initr*-}
  kernel=${kernel%.img}
  [ -f "$image" ] && [ -d "/lib/modules/$kernel" ] && stale "$image" || continue
  if [ "$1" = list ]; then
    echo "$image"
    continue
  fi
  need=$(($(stat -c %s "$image") / 1048576 + 1))
  free=$(df --output=avail --block-size=1M /boot)
  free=$((${free#*Avail}))
  if [ "$free" -le "$need" ]; then
    echo "/boot has $free MiB free, a rebuilt $image needs $need MiB: remove old kernels" >&2
    exit 1
  fi
  if by_dracut "$image"; then
    dracut --force "$image" "$kernel" || exit 1
    maker="dracut: see /etc/dracut.conf and /etc/dracut.conf.d"
  else
    update-initramfs -u -k "$kernel" || exit 1
    maker="update-initramfs: see update_initramfs in /etc/initramfs-tools/update-initramfs.conf"
  fi
  if stale "$image"; then
    echo "$image was left as it was by $maker" >&2
    exit 1
  fi
done
