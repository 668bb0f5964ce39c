"""systemd-boot: its entries as bootctl lists them, and the firmware variables that choose one."""

from collections.abc import Iterable, Mapping

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
