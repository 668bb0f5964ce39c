"""GRUB's menu and environment: the entry that it starts, and the kernel of that entry."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from gpuprov.host_code import first_boot_grub, first_boot_tools
from gpuprov.rules import package_lists

ONCE = "next_entry"
KEPT = "gpuprov-kept"
#         linux   /boot/vmlinuz-6.1.0-56-amd64 root=UUID=... ro quiet
_KERNEL = re.compile(r"(?:vmlinu[xz]|linux|Image)-(\S+)")
_BLOCK = re.compile(r"(menuentry|submenu)\s(.*)\{")
_SET = "set default="
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass
class Entry:
    """A menu entry; `linux` is the path of its kernel, `inside` the submenu that it opens."""

    title: str
    name: str = ""
    linux: str = ""
    inside: list[Entry] | None = None


@dataclass
class Menu:
    """The menu and its default: `once`, whether grub-reboot's choice takes effect; `default` otherwise."""

    entries: list[Entry] = field(default_factory=list)
    default: str = ""
    once: bool = False


class Start(TypedDict, total=False):
    """The fields of `NextBoot`."""

    kernel: str
    by: str
    once: bool
    after: str
    unknown: str
    choices: dict[str, str]


def find_next_start(menu: Sequence[str], environment: Iterable[str], files: Mapping[str, Sequence[str]]) -> Start:
    """Derive the fields of `NextBoot` from the lines of grub.cfg, of its environment and of boot loader entries (by
    id)."""
    read = read_menu(menu, files)
    return {**_find_next_start(read, environment), "choices": map_choices(read.entries) if read.once else {}}


def _find_next_start(read: Menu, environment: Iterable[str]) -> Start:
    variables = {name: value for name, _, value in (line.partition("=") for line in environment)}
    if variables.get("boot_counter") and variables.get("boot_success") != "1":
        return {"unknown": "GRUB counts boots (boot_counter), and goes back when they are used up"}
    default, by = read.default, "GRUB_DEFAULT"
    if variable := _VARIABLE.fullmatch(default):
        default, by = variables.get(variable[1], ""), variable[1]
    elif "$" in default:
        return {"unknown": f"the default of grub.cfg is {default}"}
    if variables.get(first_boot_grub.VARIABLE) == first_boot_tools.BACK and any(
        entry.name == KEPT for entry in read.entries
    ):
        default, by = KEPT, "gpuprov keeps to what was before a boot that failed"
        stays = find_started(read.entries, default)
        if not (read.once and variables.get(ONCE)):
            return _describe_kernel(stays) | {"by": by}
    stays = find_started(read.entries, default)
    by = f"{by}={default}" if default else ""
    if not (read.once and variables.get(ONCE)):
        return _describe_kernel(stays) | {"by": by}
    first = _describe_kernel(find_started(read.entries, variables[ONCE])) | {
        "by": f"{ONCE}={variables[ONCE]}",
        "once": True,
    }
    return first | {"after": parse_kernel(stays.linux) if stays else ""}


def _describe_kernel(entry: Entry | None) -> Start:
    release = parse_kernel(entry.linux) if entry else ""
    if release or entry is None:
        return {"kernel": release, "unknown": "" if release else "GRUB's menu has no entry"}
    return {"unknown": f"GRUB's entry {entry.title!r} names no kernel by its release ({entry.linux or 'no Linux'})"}


def parse_kernel(path: str) -> str:
    """Parse the release in a kernel's path, /vmlinuz-RELEASE or /MACHINE/RELEASE/linux; empty if the path has none."""
    folder, _, name = path.rpartition("/")
    if match := _KERNEL.fullmatch(name):
        return match[1]
    return folder.rpartition("/")[2] if name in ("linux", "vmlinuz") and folder.count("/") > 1 else ""


def read_menu(lines: Sequence[str], files: Mapping[str, Sequence[str]]) -> Menu:
    """Parse the menu in the lines of grub.cfg; at `blscfg`, the boot loader entries are inserted."""
    menu = Menu()
    menu.default, menu.once = _parse_choice(lines)
    blocks: list[Entry | None] = []
    places = [menu.entries]
    for line in lines:
        word = (line.split(maxsplit=1) or [""])[0]
        if match := _BLOCK.fullmatch(line.strip()):
            entry = _parse_entry(match[2])
            places[-1].append(entry)
            blocks.append(entry)
            if match[1] == "submenu":
                entry.inside = []
                places.append(entry.inside)
        elif word == "blscfg":
            places[-1] += parse_loader_entries(files)
        elif word.startswith("linux") and blocks and blocks[-1] and not blocks[-1].linux:
            blocks[-1].linux = line.split()[1]
        elif line.rstrip().endswith("{"):
            blocks.append(None)
        elif word == "}" and blocks:
            closed = blocks.pop()
            if closed and closed.inside is not None:
                places.pop()
    return menu


def _parse_choice(lines: Iterable[str]) -> tuple[str, bool]:
    """Parse the default entry, and whether grub-reboot's choice precedes it."""
    default, once, depth, of_once = "", False, 0, False
    for line in lines:
        word = (line.split(maxsplit=1) or [""])[0]
        if word == "if" and line.split()[-1] != "fi":
            depth += 1
        elif word == "fi":
            depth -= 1
            of_once = of_once and depth > 0
        elif line.strip().startswith(_SET):
            value = line.strip().removeprefix(_SET).strip("\"'")
            variable = _VARIABLE.fullmatch(value)
            if variable and variable[1] == ONCE:
                once = of_once = True
            elif of_once or depth <= 0:
                default, once = value, once and of_once
    return default, once


def _parse_entry(head: str) -> Entry:
    words = shlex.split(head)
    name = ""
    for place, word in enumerate(words[:-1]):
        if word in ("--id", "$menuentry_id_option", "${menuentry_id_option}"):
            name = words[place + 1]
    return Entry(words[0], next((word[5:] for word in words if word.startswith("--id=")), name))


def parse_loader_entries(files: Mapping[str, Sequence[str]]) -> list[Entry]:
    """Parse boot loader entries, in the order of GRUB's blscfg: by file name, the newest first."""
    entries = []
    for name in sorted(files, key=_get_sort_key, reverse=True):
        fields = {
            key: value.strip() for key, _, value in (line.replace("\t", " ").partition(" ") for line in files[name])
        }
        entries.append(Entry(fields.get("title", name), name, fields.get("linux", "")))
    return entries


def _get_sort_key(name: str) -> tuple[Any, ...]:
    """Return the sort key of an entry: NAME-VERSION-RELEASE, each compared as by rpm, as blscfg does: machine ids come
    first, so that the entries of another machine id stay together."""
    # https://github.com/rhboot/grub2/blob/fedora-39/grub-core/commands/blscfg.c
    first, *rest = name.rsplit("-", 2)
    return tuple(package_lists.rpm_order(part)[1:] for part in (first, *rest, "", "")[:3])


def map_choices(menu: Sequence[Entry], above: str = "") -> dict[str, str]:
    """Map each kernel release to grub-reboot's argument that starts it: its first entry, by id if it has one."""
    commands: dict[str, str] = {}
    for entry in menu:
        choice = above + (entry.name or entry.title).replace(">", ">>")
        if entry.inside is not None:
            inside = map_choices(entry.inside, f"{choice}>")
        else:
            inside = {parse_kernel(entry.linux): choice} if entry.linux and entry.name != KEPT else {}
        commands = {**inside, **commands}
    commands.pop("", None)
    return commands


def find_started(menu: Sequence[Entry], choice: str) -> Entry | None:
    """Find the entry that GRUB starts: by number, title or id, with `>` between the levels (`>>` is one `>` in a
    title). A choice that is not in the menu starts the first entry, as an empty one does; likewise in each submenu."""
    level: Sequence[Entry] | None = menu
    entry = None
    while level:
        head, *rest = re.split(r"(?<!>)>(?!>)", choice, maxsplit=1)
        head, choice = head.replace(">>", ">"), rest[0] if rest else ""
        if re.fullmatch("[0-9]{1,4}", head):
            entry = level[int(head)] if int(head) < len(level) else level[0]
        else:
            entry = next((entry for entry in level if head in (entry.title, entry.name or entry.title)), level[0])
        level = entry.inside
    return entry
