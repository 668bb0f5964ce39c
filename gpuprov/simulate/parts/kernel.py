"""The kernel that a container's description names: its headers. A machine has it on its disk."""

from __future__ import annotations

from gpuprov.simulate import image
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import Part

FIND = """export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
known=$(apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\\([0-9.]*-[0-9]*-amd64\\)$/\\1/p' | sort -V |
  tr '\\n' ' ')
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


def part(_name: str, description: Description) -> Part:
    """Return the part that gives the host this kernel; nothing if the description names none."""
    kernel = description.kernel
    if not kernel or description.kind == "machine":
        return Part()
    return Part(script=(FIND + HEADERS).format(kernel=kernel) + image.INITRAMFS)
