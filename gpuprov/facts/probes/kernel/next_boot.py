"""The kernel that the bootloader starts next: GRUB's menu with its environment, boot loader entries, systemd-boot's
report. GRUB's generated configuration decides: `GRUB_DEFAULT` and `grub-set-default` take effect only through it."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.kernel import grub_menu, systemd_boot


class NextBoot(msgspec.Struct, frozen=True, kw_only=True):
    """The next boot. `kernel`: the release that the bootloader starts next; empty if unknown, and `unknown` is the
    reason. `once`: it is started one time only, and `after` from then on (empty: unknown). `by`: the setting that chose
    it. `choices`: grub-reboot's argument for each kernel release; empty if grub-reboot has no effect."""

    loader: str = ""
    kernel: str = ""
    by: str = ""
    once: bool = False
    after: str = ""
    unknown: str = ""
    choices: dict[str, str] = {}


def parse_next_boot(output: Output) -> NextBoot:
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.text.splitlines():
        if line.startswith("@"):
            lines = parts.setdefault(line, [])
        else:
            lines.append(line)
    loader = next((name.split()[1] for name in parts if name.startswith("@loader ")), "")
    if loader == "grub":
        entries = {name.partition(" ")[2]: lines for name, lines in parts.items() if name.startswith("@entry ")}
        start = grub_menu.find_next_start(parts.get("@menu", []), parts.get("@env", []), entries)
        return NextBoot(loader="GRUB", **start)
    if loader == "systemd-boot":
        variables = {name: "".join(parts.get(f"@{name}", [])).strip() for name in systemd_boot.NAMES}
        return NextBoot(loader="systemd-boot", **systemd_boot.find_next_start(parts.get("@list", []), variables))
    return NextBoot(unknown="no configuration of GRUB or systemd-boot was found")


# https://www.gnu.org/software/grub/manual/grub/grub.html, https://systemd.io/BOOT_LOADER_INTERFACE/
NEXT_BOOT = Probe(
    "next_boot",
    systemd_boot.EFI
    + r"""g=
case $(efi LoaderInfo) in
systemd-boot*)
  echo "@loader systemd-boot"
  for n in LoaderEntryOneShot LoaderEntryDefault; do echo "@$n"; efi $n; echo; done
  echo "@list"; bootctl list --no-pager 2>/dev/null ;;
*)
  for f in /boot/grub/grub.cfg /boot/grub2/grub.cfg /boot/efi/EFI/*/grub.cfg; do
    grep -qE '^[[:space:]]*(menuentry|submenu|blscfg|set default=)' "$f" 2>/dev/null && { g=$f; break; }
  done ;;
esac
if [ -n "$g" ]; then
  echo "@loader grub"
  echo "@menu"
  c=; for f in custom.cfg gpuprov/boot.cfg; do grep -q "/$f" "$g" && c="$c ${g%/*}/$f"; done
  w='(menuentry|submenu|linux|linuxefi|linux16|if)[[:space:]]|(blscfg|fi)\b'
  for f in "$g" $c; do
    grep -hE "^[[:space:]]*(set default=|$w|\})|\{[[:space:]]*$" "$f" 2>/dev/null
  done | sed 's/^\([[:space:]]*linux[a-z0-9]*[[:space:]]*[^[:space:]]*\).*/\1/'
  echo "@env"
  { grub2-editenv list || grub-editenv list || cat "${g%/*}/grubenv"; } 2>/dev/null | grep -aE '^[A-Za-z_]+='
  for e in /boot/loader/entries/*.conf; do
    [ -f "$e" ] && { n=${e##*/}; echo "@entry ${n%.conf}"; grep -hE '^(title|version|linux)[[:space:]]' "$e"; }
  done
fi
true""",
    parse_next_boot,
    "grep -E 'set default|menuentry|submenu' /boot/grub*/grub.cfg; grub-editenv list; grubby --default-kernel; "
    "bootctl list",
)
