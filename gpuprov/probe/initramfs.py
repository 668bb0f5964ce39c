"""What is inside the initramfs of each installed kernel."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe


class Initramfs(msgspec.Struct, frozen=True):
    """`holds_configuration`: gpuprov's modprobe.d file is inside, and was not changed after the image was made."""

    image: str
    modules: frozenset[str]
    holds_configuration: bool
    readable: bool


def parse(output: Output) -> tuple[Initramfs, ...]:
    images: list[Initramfs] = []
    for line in output.text.splitlines():
        if line.startswith("image "):
            _, path, fresh, status = line.split()
            images.append(Initramfs(path, frozenset(), fresh == "1", status == "0"))
        elif line and images:
            last = images[-1]
            name = line.rsplit("/", 1)[-1].partition(".ko")[0].replace("-", "_")
            images[-1] = msgspec.structs.replace(last, modules=last.modules | {name})
    return tuple(images)


INITRAMFS = Probe(
    "initramfs",
    """for i in /boot/initrd.img-*; do
  [ -f "$i" ] || continue
  l=$(lsinitramfs "$i" 2>/dev/null); s=$?; f=0
  [ -z "$l" ] && s=1
  case "$l" in *etc/modprobe.d/gpuprov.conf*) [ "$i" -nt /etc/modprobe.d/gpuprov.conf ] && f=1 ;; esac
  echo "image $i $f $s"
  printf '%s\\n' "$l" | grep -E '/(nouveau|nova[-_]core|nova[-_]drm|nvidia[^/]*)\\.ko'
done; true""",
    parse,
    "lsinitramfs /boot/initrd.img-$(uname -r) | grep -E 'nouveau|nova|modprobe.d'",
)
