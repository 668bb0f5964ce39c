"""Contents of the initramfs of each installed kernel."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.kernel.next_boot import EFI
from gpuprov.host_code.initramfs import NVIDIA, PARTITIONS, Copy, select_old_copy


class Initramfs(msgspec.Struct, frozen=True):
    """`holds_configuration`: gpuprov's modprobe.d file is inside, and was not changed after the image was made.

    `by_dracut`: dracut made it (the Red Hat and SUSE families, Ubuntu from 25.10 on), not initramfs-tools. `old_copy`:
    systemd-boot starts the host from a copy of an earlier state, which lacks what the image holds. `old_driver`: it
    holds NVIDIA modules, and was made before those of its kernel were installed.
    """

    image: str
    modules: frozenset[str]
    holds_configuration: bool
    readable: bool
    by_dracut: bool = False
    old_copy: str = ""
    old_driver: bool = False

    @property
    def release(self) -> str:
        """The kernel release of the image."""
        # /boot/initrd.img-6.1.0-56-amd64
        # /boot/initramfs-5.14.0-503.11.1.el9_5.x86_64.img
        return re.sub(r"^(initrd(\.img)?|initramfs)-|\.img\Z", "", self.image.rsplit("/", 1)[-1])

    @property
    def rebuild(self) -> str:
        """The command that rebuilds the image."""
        return "dracut --force --regenerate-all" if self.by_dracut else "update-initramfs -u -k all"

    @property
    def listing(self) -> str:
        """The command that lists its contents."""
        return f"{'lsinitrd' if self.by_dracut else 'lsinitramfs'} {self.image}"


COPY = re.compile(r"copy (\d{1,15}) (\d{1,15}) (\d{1,15}) (\d{1,15}) ([=-]) (/.+)")


def parse(output: Output) -> tuple[Initramfs, ...]:
    images: list[Initramfs] = []
    copies: list[Copy] = []
    for line in output.text.splitlines():
        if line.startswith("image "):
            _, path, fresh, status, *by = line.split()
            copies = []
            images.append(Initramfs(path, frozenset(), fresh == "1", status == "0", by == ["dracut"]))
        elif match := COPY.fullmatch(line) if images else None:
            size, made, copied_size, copied = map(int, match.groups()[:4])
            copies.append(Copy(copied_size, copied, match[5] == "=", match[6]))
            images[-1] = msgspec.structs.replace(images[-1], old_copy=select_old_copy(size, made, copies))
        elif line == "older" and images:
            old = any(NVIDIA.fullmatch(f"{name}.ko") for name in images[-1].modules)
            images[-1] = msgspec.structs.replace(images[-1], old_driver=old)
        elif line and images:
            last = images[-1]
            # usr/lib/modules/6.1.0-44-amd64/kernel/drivers/gpu/nova-core/nova-core.ko.xz
            name = line.rsplit("/", 1)[-1].partition(".ko")[0].replace("-", "_")
            images[-1] = msgspec.structs.replace(last, modules=last.modules | {name})
    return tuple(
        msgspec.structs.replace(image, holds_configuration=image.holds_configuration and not image.old_copy)
        for image in images
    )


# Skipped are rescue images (generic, never rebuilt), kdump images (no GPU driver runs there), and copies without a
# kernel (.old-dkms, .bak).
#
# lsinitrd takes seconds per image; dracut's own skipcpio yields the same list of names in a tenth of the time.
INITRAMFS = Probe(
    "initramfs",
    EFI
    + """k=/usr/lib/dracut/skipcpio
names() {
  case "$($k "$1" 2>/dev/null | head -c 4 | od -An -tx1 | tr -d ' ')" in
  1f8b*) d='gzip -dc' ;; 28b52ffd) d='zstd -dcq' ;; fd377a58) d='xz -dc' ;; 02214c18) d='lz4 -dc' ;; 30373037) d=cat ;; *) d=false ;;
  esac
  $k "$1" 2>/dev/null | $d 2>/dev/null | cpio -it --quiet 2>/dev/null
}
for i in /boot/initrd.img-* /boot/initramfs-*.img /boot/initrd-*; do
  case "$i" in *kdump.img|*-kdump|*-0-rescue-*) continue ;; esac
  r=${i#/boot/initr*-}
  [ -f "$i" ] && [ -d "/lib/modules/${r%.img}" ] || continue
  if command -v lsinitramfs >/dev/null; then l=$(lsinitramfs "$i" 2>/dev/null); s=$?
  else l=$(names "$i") && [ -n "$l" ] || l=$(lsinitrd "$i" 2>/dev/null); s=$?; fi
  f=0; b=initramfs-tools
  [ -z "$l" ] && s=1
  case "$l" in *etc/modprobe.d/gpuprov.conf*) [ "$i" -nt /etc/modprobe.d/gpuprov.conf ] && f=1 ;; esac
  case "$l" in *lib/dracut/*) b=dracut ;; esac
  echo "image $i $f $s $b"
  case "$(efi LoaderInfo)" in systemd-boot*) for c in COPIES; do
    [ -f "$c" ] || continue
    q=-; [ "$c" -ot "$i" ] && cmp -s "$i" "$c" && q='='
    echo "copy $(stat -c '%s %Y' "$i") $(stat -c '%s %Y' "$c") $q $c"
  done;; esac
  printf '%s\\n' "$l" | grep -E '/(nouveau|nova[-_]core|nova[-_]drm|vfio[-_]pci|nvidia[^/]*)\\.ko'
  case "$l" in *nvidia*.ko*) for n in nvidia-current nvidia-current-open nvidia; do
    m=$(modinfo -k "${r%.img}" -n $n 2>/dev/null) && [ "$m" -nt "$i" ] && echo older && break
  done;; esac
done; true""".replace("COPIES", " ".join(f'{place}/*/"${{r%.img}}/${{i##*/}}"' for place in PARTITIONS)),
    parse,
    "lsinitramfs /boot/initrd.img-$(uname -r); lsinitrd /boot/initramfs-$(uname -r).img",
)


def parse_dracut(output: Output) -> bool:
    return output.text.strip() == "dracut"


# True if dracut is installed, and therefore must be configured to include gpuprov's modprobe.d file.
DRACUT = Probe(
    "dracut",
    "[ -x /usr/bin/dracut ] && echo dracut || echo none",
    parse_dracut,
    "command -v dracut",
    speaks=True,
    blank="none$",
)
