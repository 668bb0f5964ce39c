"""Boot counting with systemd-boot: it starts our entry once (LoaderEntryOneShot), and from then on the kept one.

The first entry is the one that it would start by itself, with FIRST on its command line. The kept one is
LoaderEntryDefault; the site's own value is recorded, and restored once the boot is good.
https://systemd.io/BOOT_LOADER_INTERFACE/
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import Iterable, Sequence

from . import first_boot_tools as tools
from .first_boot_tools import BACK, FIRST, ONCE, ROOT, Record

NAME = "systemd-boot"
VARIABLES = "/sys/firmware/efi/efivars"
VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
ONE_SHOT, DEFAULT = "LoaderEntryOneShot", "LoaderEntryDefault"
# Names of the entries. With these, and without a sort-key, they are last in the menu, so that they are never the first
# entry, or the first match of a pattern.
FIRST_ENTRY, KEPT_ENTRY = "_-gpuprov-first.conf", "_-gpuprov-kept.conf"
OWN = (FIRST_ENTRY, KEPT_ENTRY)
# The version in Debian 12. Older ones start the last of their entries, later ones the first.
SINCE = 252
LINES = ("/etc/kernel/cmdline", "/usr/lib/kernel/cmdline")
# The part of an entry's name in which systemd counts its boots: https://systemd.io/AUTOMATIC_BOOT_ASSESSMENT/
COUNTER = re.compile(r"\+\d+(-\d+)?(?=\.conf\Z)")


def started() -> bool:
    """Return whether systemd-boot has started the host."""
    return variable("LoaderInfo").startswith("systemd-boot")


def impossible() -> str:
    return why_not(
        container=tools.is_contained(),
        info=variable("LoaderInfo"),
        program=bool(shutil.which("bootctl")),
        writable=os.access(ROOT + VARIABLES, os.W_OK),
        saved="@saved" in (variable(DEFAULT), *_list_defaults()),
        line=any(tools.read_text(path) for path in LINES),
        listing=_list_files(),
    )


def why_not(
    *, container: bool, info: str, program: bool, writable: bool, saved: bool, line: bool, listing: Iterable[str]
) -> str:
    """Return the same from known facts. `info`: its name with its version. `saved`: the last choice is the default.
    `line`: kernel-install has a command line of its own."""
    if container:
        return "a container has no bootloader"
    # The EFI variable LoaderInfo names the loader: systemd-boot 252.39-1~deb12u2
    version = re.search(r"[0-9]+", info)
    if version is None or int(version[0]) < SINCE:
        return f"{info or 'systemd-boot'} has its menu in another order; boots are counted since {SINCE}"
    if not program:
        return "systemd-boot's bootctl is not there"
    if not writable:
        return f"the firmware's variables cannot be written, {VARIABLES}"
    if saved:
        return "systemd-boot's default is @saved, what was chosen last in its menu"
    if not line:
        return (
            "kernel-install would write a counted boot's command line into new entries: the site's belongs into "
            f"{LINES[0]}"
        )
    default = next((entry for entry in entries(listing) if "default" in entry), None)
    if default is None:
        return "bootctl lists no default entry"
    if not default.get("source", "").endswith(".conf"):
        return f"systemd-boot's default, {default['id']}, is no .conf entry, which would take words for one boot"
    return ""


def entries(listing: Iterable[str]) -> list[dict[str, str]]:
    """Parse the output of `bootctl list`: keys with their values, and `default` for the entry that starts next."""
    rows: list[dict[str, str]] = [{}]
    for line in listing:
        key, colon, value = line.strip().partition(":")
        if not line.strip():
            rows.append({})
        elif colon and value.strip():
            rows[-1][key] = value.strip()
            if key == "title" and "default)" in value.strip().split(" (")[1:]:
                rows[-1]["default"] = "yes"
            if key == "source":  # since 255 with the partition that it is on
                rows[-1][key] = os.path.normpath(value.strip().partition(" (")[0])
    return [row for row in rows if "id" in row]


def odd(words: Sequence[str]) -> str:
    refused_words = [word for word in words if not (word.isascii() and word.isprintable())]
    return (
        f"its command line has a word that an entry cannot hold as it is: {refused_words[0]!a}" if refused_words else ""
    )


def sources(kernel: str) -> dict[str, str]:
    source = _find_running(kernel)
    keys = _read(source)
    initrds = {f"initrd-{n}-{kernel}": path for n, path in enumerate(keys.get("initrd", []))}
    paths = {f"vmlinuz-{kernel}": keys.get("linux", [""])[-1], **initrds}
    return {name: f"{_find_mount_point(source)}/{path.lstrip('/')}" for name, path in paths.items()}


def folder(kernel: str) -> str:
    return _find_mount_point(_find_running(kernel)) + "/gpuprov"


def prepare(known: Record, words: Sequence[str]) -> Record:
    files = sorted(os.listdir(known["folder"]) if os.path.isdir(known["folder"]) else [])
    if f"vmlinuz-{known['kernel']}" not in files:
        raise LookupError(f"the kernel that was kept is not in {known['folder']} any more")
    lines = [f"title as before run {known['run']} of gpuprov ({known['kernel']})"]
    lines += [f"linux /gpuprov/{name}" for name in files if name.startswith("vmlinuz-")]
    lines += [f"initrd /gpuprov/{name}" for name in files if name.startswith("initrd-")]
    return {"kept": "\n".join([*lines, f"options {' '.join(words)}", ""])}


def again(known: Record) -> Record:
    """Return the site's default: bootctl's, with the site's own settings, for which gpuprov's are removed for a
    moment."""
    own = bool(counted())
    if own:
        forget(known)
    site, listed = variable(DEFAULT), _list_files()
    if own:
        _set(DEFAULT, KEPT_ENTRY)
    default = next((entry for entry in entries(listed) if "default" in entry), {})
    source = default.get("source", "")
    lines = [line for line in _read_lines(source) if line.split()[:1] not in (["title"], ["sort-key"])]
    if not any(line.split()[:1] == ["linux"] for line in lines):
        raise LookupError(f"systemd-boot's default, {default.get('id', 'none')}, cannot be read, or starts no Linux")
    first = [f"title first boot after run {known['run']} of gpuprov", *lines, f"options {' '.join(FIRST)}", ""]
    return {
        "site": site,
        "first": "\n".join(first),
        "entries": os.path.dirname(source),
        **({"tried": default["version"]} if "version" in default else {}),
    }


def arm(known: Record, *, once: bool) -> None:
    """Arm the counter. Until the last step the site's default starts, or the new state, once."""
    kept, first = _find_copy(known)
    tools.write(kept, known["kept"])
    if once:
        tools.write(first, known["first"])
    os.sync()
    _set(ONE_SHOT, FIRST_ENTRY if once else "")
    _set(DEFAULT, KEPT_ENTRY)


def counted() -> str:
    return counts(variable(DEFAULT), variable(ONE_SHOT))


def counts(default: str, one_shot: str) -> str:
    """Return the same from these values."""
    if default != KEPT_ENTRY:
        return ""
    return ONCE if one_shot == FIRST_ENTRY else BACK


def readable() -> bool:
    return bool(os.path.isdir(ROOT + VARIABLES))


def forget(known: Record) -> None:
    _set(DEFAULT, known.get("site", ""))
    if variable(ONE_SHOT) == FIRST_ENTRY:
        _set(ONE_SHOT, "")


def drop(known: Record) -> None:
    if known.get("folder"):
        for path in _find_copy(known):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        shutil.rmtree(known["folder"], ignore_errors=True)


def kernels() -> list[str]:
    return [entry["version"] for entry in entries(_list_files()) if "version" in entry and entry["id"] not in OWN]


def words_of(line: Sequence[str]) -> list[str]:
    """Return the words of the command line without those that the loader adds: it passes the initramfs as an
    argument."""
    return [word for word in line if not word.startswith(("BOOT_IMAGE=", "initrd="))]


def variable(name: str) -> str:
    """Read a variable of the firmware; its first four bytes are attributes."""
    try:
        with open(f"{ROOT}{VARIABLES}/{name}-{VENDOR}", "rb") as file:
            return file.read()[4:].decode("utf-16-le", "replace").rstrip("\0")
    except OSError:
        return ""


def _set(name: str, value: str) -> None:
    if variable(name) != value:
        tools.call(["bootctl", "set-oneshot" if name == ONE_SHOT else "set-default", value])


def _list_files() -> list[str]:
    return tools.capture_output(["bootctl", "list", "--no-pager"]).splitlines()


def _list_defaults() -> list[str]:
    """Return loader.conf's settings of the default entry."""
    esp = tools.capture_output(["bootctl", "--print-esp-path"])
    return _read(f"{ROOT}{esp}/loader/loader.conf").get("default", []) if esp else []


def _find_running(kernel: str) -> str:
    """Return the file of the entry that the host was started by; after a first boot, whose own entry is gone, that of
    the same kernel."""
    name = COUNTER.sub("", variable("LoaderEntrySelected")).lower()
    listed = [
        entry
        for entry in entries(_list_files())
        if entry.get("source", "").endswith(".conf") and entry["id"] not in OWN
    ]
    matching = [entry for entry in listed if COUNTER.sub("", os.path.basename(entry["source"])).lower() == name]
    matching = matching or [entry for entry in listed if entry.get("version") == kernel]
    if len(matching) != 1:
        raise LookupError(f"bootctl lists no entry that the host was started by ({name or 'none is named'})")
    return ROOT + matching[0]["source"]


def _find_mount_point(source: str) -> str:
    """Return the mount point of the partition with this entry."""
    return os.path.dirname(os.path.dirname(os.path.dirname(source)))


def _read_lines(source: str) -> list[str]:
    return tools.read_text(source).splitlines() if source else []


def _read(path: str) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in tools.read_text(path[len(ROOT) :]).splitlines():
        key, *value = line.split(None, 1) or [""]
        settings.setdefault(key, []).extend(word.strip() for word in value)
    return settings


def _find_copy(known: Record) -> tuple[str, str]:
    """Return the kept copy on its own partition; the first one next to the entry that it is a copy of."""
    kept = f"{os.path.dirname(known['folder'])}/loader/entries"
    first = f"{ROOT}{known['entries']}" if known.get("entries") else kept
    return f"{kept}/{KEPT_ENTRY}", f"{first}/{FIRST_ENTRY}"
