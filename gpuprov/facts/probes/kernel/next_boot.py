"""The kernel that the bootloader starts next: GRUB's menu with its environment, boot loader entries, systemd-boot's
report. GRUB's generated configuration decides: `GRUB_DEFAULT` and `grub-set-default` take effect only through it."""

from collections.abc import Iterable, Mapping

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.kernel import grub_menu
from gpuprov.facts.probes.kernel.grub_menu import Start, parse_kernel
from gpuprov.host_code import first_boot_systemd
from gpuprov.host_code.first_boot_systemd import DEFAULT, VARIABLES, VENDOR
from gpuprov.host_code.first_boot_systemd import ONE_SHOT as ONCE

NAMES = (ONCE, DEFAULT)
# Shell function `efi NAME`: prints a variable. tail seeks in files, which efivarfs does not support.
EFI = rf"""v={VARIABLES}
efi() {{ [ ! -r "$v/$1-{VENDOR}" ] || cat "$v/$1-{VENDOR}" 2>/dev/null | tail -c +5 | tr -d '\000'; }}
"""


def find_next_start(listing: Iterable[str], variables: Mapping[str, str]) -> Start:
    """Derive the fields of `NextBoot`: the entry chosen for one boot, else bootctl's default, which comes from
    LoaderEntryDefault, loader.conf or the order of the menu."""
    entries = first_boot_systemd.entries(listing)
    stays = _find_entry(entries, variables[DEFAULT]) or next((entry for entry in entries if entry.get("default")), {})
    by = f"{DEFAULT}={variables[DEFAULT]}" if variables[DEFAULT] else "the default of bootctl list"
    if not variables[ONCE]:
        return _describe_kernel(stays) | {"by": by}
    chosen = _find_entry(entries, variables[ONCE])
    if stays is chosen and not variables[DEFAULT]:
        stays = {}  # bootctl calls default what is chosen for one time
    return _describe_kernel(chosen) | {"by": f"{ONCE}={variables[ONCE]}", "once": True, "after": _parse_release(stays)}


def _find_entry(entries: Iterable[dict[str, str]], name: str) -> dict[str, str]:
    return next((entry for entry in entries if name and name in (entry["id"], entry["id"].removesuffix(".conf"))), {})


def _parse_release(entry: Mapping[str, str]) -> str:
    """Return the kernel release of an entry."""
    # For a unified image the version is the distribution's; newer systemd lists the kernel's, too
    # (https://github.com/systemd/systemd/pull/43312).
    path = entry.get("linux", "")
    return entry.get("uname", "") if path.endswith(".efi") else parse_kernel(path) or entry.get("version", "")


def _describe_kernel(entry: Mapping[str, str]) -> Start:
    release = _parse_release(entry)
    if release:
        return {"kernel": release}
    name = entry.get("id", "")
    return {"unknown": f"systemd-boot's entry {name} names no kernel" if name else "bootctl lists no default entry"}


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
        variables = {name: "".join(parts.get(f"@{name}", [])).strip() for name in NAMES}
        return NextBoot(loader="systemd-boot", **find_next_start(parts.get("@list", []), variables))
    return NextBoot(unknown="no configuration of GRUB or systemd-boot was found")


# https://www.gnu.org/software/grub/manual/grub/grub.html, https://systemd.io/BOOT_LOADER_INTERFACE/
NEXT_BOOT = Probe(
    "next_boot",
    EFI
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
