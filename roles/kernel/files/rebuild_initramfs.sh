# Rebuilds every initramfs that is older than the modprobe configuration. Each by its own name: "-k all" means only those
# that update-initramfs made itself. /boot must hold a second one while it is written.
set -u
for image in /boot/initrd.img-*; do
  [ -f "$image" ] && [ -n "$(find /etc/modprobe.d -newer "$image" -print -quit)" ] || continue
  need=$(($(stat -c %s "$image") / 1048576 + 1))
  free=$(df --output=avail --block-size=1M /boot)
  free=$((${free#*Avail}))
  if [ "$free" -le "$need" ]; then
    echo "/boot has $free MiB free, a rebuilt $image needs $need MiB: remove old kernels" >&2
    exit 1
  fi
  update-initramfs -u -k "${image#/boot/initrd.img-}" || exit 1
  if [ -n "$(find /etc/modprobe.d -newer "$image" -print -quit)" ]; then
    echo "update-initramfs left $image as it was: see update_initramfs in /etc/initramfs-tools/update-initramfs.conf" >&2
    exit 1
  fi
done
