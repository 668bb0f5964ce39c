"""The kernel that a description names: its headers in a container; the kernel itself, and the boot into it, in a machine."""

from __future__ import annotations

from gpuprov.simulate import image
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import Part

FIND = """export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
known=$(apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\\([0-9.]*-[0-9]*-amd64\\)$/\\1/p' | sort -V | tr '\\n' ' ')
case " $known" in *' {kernel} '*) ;; *) echo "kernel is {kernel}; this distribution has: $known" >&2; exit 1 ;; esac
"""
# The others go, so that the host has one kernel only, as a machine that was never upgraded.
HEADERS = """apt-get -qq install -y --no-install-recommends linux-headers-{kernel} >/dev/null
dpkg-query -W -f '${{Package}}\\n' 'linux-headers-[0-9]*-amd64' linux-headers-amd64 2>/dev/null \\
  | grep -vx linux-headers-{kernel} | xargs -r apt-get -qq purge -y >/dev/null
for other in $(ls /lib/modules | grep -vx {kernel}); do
  rm -rf "/lib/modules/$other" "/boot/initrd.img-$other" "/boot/config-$other"
done
"""
# The headers first: DKMS builds the PCI functions for the kernel when its image is installed, before its initramfs is made.
IMAGE = """apt-get -qq install -y --no-install-recommends linux-headers-{kernel} >/dev/null
apt-get -qq install -y --no-install-recommends linux-image-{kernel} >/dev/null
echo 'GRUB_DEFAULT="Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {kernel}"' \\
  > /etc/default/grub.d/60-gpuprov-sim.cfg
update-grub 2>/dev/null
"""


def part(_name: str, description: Description) -> Part:
    """What makes the host have this kernel; nothing where the description names none."""
    kernel = description.kernel
    if not kernel:
        return Part()
    if description.kind == "machine":
        return Part(script=(FIND + IMAGE).format(kernel=kernel))
    return Part(script=(FIND + HEADERS).format(kernel=kernel) + image.INITRAMFS)
