"""Units as systemd has loaded them, and the effects of foreign drop-ins: judged in the same way on the controller and
on hosts."""

from __future__ import annotations

import fnmatch
import os
from typing import Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

from . import systemd

SHOW = (
    "show",
    "-p",
    "Id",
    "-p",
    "LoadState",
    "-p",
    "FragmentPath",
    "-p",
    "DropInPaths",
    "-p",
    "NeedDaemonReload",
    "-p",
    "ActiveState",
    "-p",
    "UnitFileState",
    "-p",
    "WantedBy",
    "-p",
    "Result",
    "--",
)
KINDS = (".service", ".timer", ".path", ".socket", ".mount")
# Folders whose unit files take precedence over those in /etc/systemd/system: systemd.unit(5).
STRONGER = ("/etc/systemd/system.control/", "/run/systemd/system.control/", "/run/systemd/transient/")
# Settings to which a later drop-in adds, and which none can reset: systemd.unit(5).
ADDED = (
    "Unit.After",
    "Unit.Before",
    "Unit.Wants",
    "Unit.Requires",
    "Unit.Requisite",
    "Unit.BindsTo",
    "Unit.PartOf",
    "Unit.Conflicts",
)
# Settings that a site may add to a gpuprov unit: they change neither what it starts nor whether it starts;
# MemoryDenyWriteExecute does, which ends programs that call C libraries.
# systemd.unit(5), systemd.exec(5), systemd.resource-control(5).
HARMLESS = (
    *("Unit.Description", "Unit.Documentation", "Unit.OnFailure", "Unit.OnSuccess", "Unit.After", "Unit.Wants"),
    *("Service.Nice", "Service.IOScheduling*", "Service.CPU*", "Service.IO*", "Service.Memory[!D]*", "Service.Tasks*"),
    *("Service.OOM*", "Service.Log*", "Service.Syslog*", "Service.StandardOutput", "Service.StandardError"),
    *("Service.TimeoutStartSec", "Service.TimeoutSec", "Service.Slice", "Service.*Accounting", "Timer.AccuracySec"),
)


class Loaded(NamedTuple):
    """A unit as loaded by systemd: LoadState, FragmentPath, DropInPaths in the order in which they are read,
    ActiveState, and as `file` the output of `systemctl is-enabled`. `stale`: its files have changed since systemd read
    them. `wanted`: units want it, which start at a boot or do not. `result`: how its last run ended."""

    load: str = "not-found"
    fragment: str = ""
    drop_ins: tuple[str, ...] = ()
    # Its files have changed since systemd read them.
    stale: bool = False
    active: str = "inactive"
    file: str = ""
    wanted: bool = False
    result: str = ""


def parse_show(text: str) -> dict[str, Loaded]:
    """Parse units by name in the output of `systemctl show` with SHOW."""
    loaded = {}
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            loaded[values["Id"]] = Loaded(
                values.get("LoadState", "not-found"),
                values.get("FragmentPath", ""),
                tuple(values.get("DropInPaths", "").split()),
                values.get("NeedDaemonReload") == "yes",
                values.get("ActiveState", "inactive"),
                find_file_state(values),
                bool(values.get("WantedBy")),
                values.get("Result", ""),
            )
    return loaded


def find_file_state(values: Mapping[str, str]) -> str:
    """Return UnitFileState; for the unit of an init script, which systemd calls generated in either case, whether it is
    wanted at boot."""
    state = values.get("UnitFileState", "")
    if state == "generated" and "WantedBy" in values:
        return "enabled" if values["WantedBy"] else "disabled"
    return state


def derive_unit(path: str) -> str:
    """Return the unit that a file is, or is a drop-in of, by a name that systemctl shows: for a template, an instance.
    "" for others."""
    folder, _, name = path.rpartition("/")
    if folder.endswith(".d"):
        name = folder.rpartition("/")[2][: -len(".d")]
    return name.replace("@.", "@gpuprov.") if path.startswith(systemd.FILES) and name.endswith(KINDS) else ""


def derive_unit_file(unit: str) -> str:
    """Return the file of a gpuprov unit: for an instance, its template's."""
    name, at, rest = unit.partition("@")
    return systemd.FILES + (f"{name}@.{rest.rpartition('.')[2]}" if at else unit)


def is_instance(unit: str, path: str) -> bool:
    """Return whether a unit is an instance of the template in this file."""
    return "@." in path and not is_drop_in(path) and "@" in unit and derive_unit_file(unit) == path


def is_among(unit: str, paths: Collection[str]) -> bool:
    """Return whether one of these files is the unit's, its template's, or a drop-in of it."""
    return derive_unit_file(unit) in paths or unit in map(derive_unit, paths)


def is_drop_in(path: str) -> bool:
    return os.path.dirname(path).endswith(".d")


def list_settings(text: str) -> list[str]:
    """Return the settings in a unit's text as SECTION.KEY, each once, in their order. Comments and continued lines do
    not count."""
    keys: dict[str, None] = {}
    section, continued = "", False
    for line in text.splitlines():
        words = line.strip()
        if words.startswith(("#", ";")):
            continue
        if not continued and words.startswith("["):
            section = words.strip("[]")
        elif not continued and "=" in words:
            keys[f"{section}.{words.partition('=')[0].strip()}"] = None
        continued = words.endswith("\\")
    return list(keys)


def list_overridden(text: str, drop_in: str, *, whole: bool) -> list[str]:
    """Return the settings of a drop-in that override or extend `text`, which is read before it.

    `whole`: the text is a unit, to which only harmless settings may be added; otherwise it is a drop-in itself, and
    only its own settings count.
    """
    own_settings = list_settings(text)
    return [
        key
        for key in list_settings(drop_in)
        if (key in own_settings and (whole or key not in ADDED))
        or (whole and not any(fnmatch.fnmatchcase(key, known) for known in HARMLESS))
    ]


def explain_unread(path: str, unit: Loaded) -> str:
    """Return the reason why systemd has not loaded this file as it is on disk; "" if it has.

    A drop-in of a unit that does not exist takes effect when the unit appears.
    """
    drop_in = is_drop_in(path)
    if drop_in and unit.load == "not-found":
        return ""
    if unit.load == "masked":
        return "masked"
    if not drop_in and unit.fragment not in ("", path):
        return f"{unit.fragment} is loaded in its place"
    if unit.stale or (path not in unit.drop_ins if drop_in else unit.fragment != path):
        return "not read by systemd since it changed"
    return ""


def find_shadows(
    path: str, text: str, unit: Loaded, texts: Mapping[str, str], own_files: Sequence[str]
) -> dict[str, list[str]]:
    """Return foreign drop-ins that override settings of this file: the overridden settings by path."""
    # systemd reads the drop-ins of a unit in the order of their names, whatever their folders: systemd.unit(5).
    whole = not is_drop_in(path)
    later = [drop_in for drop_in in unit.drop_ins if whole or os.path.basename(drop_in) > os.path.basename(path)]
    overrides = {
        drop_in: list_overridden(text, texts.get(drop_in, ""), whole=whole)
        for drop_in in later
        if drop_in not in own_files
    }
    return {drop_in: keys for drop_in, keys in overrides.items() if keys}


def set_aside(texts: Mapping[str, str], *, check: bool) -> list[str]:
    """Make systemd ignore foreign drop-ins that change the settings in these files, and units that are loaded in their
    place; return their paths. `texts`: the files by path.

    A site's file is renamed. A file of a package or of a generator stays, and is masked by a link of the same name in
    /etc. A drop-in of several units (service.d, gpuprov-.service.d) stays for the others, and is masked for the unit
    alone.
    """
    replaced: dict[str, None] = {}
    masks: dict[str, str] = {}
    loaded = read_loaded(texts)
    for path, text in texts.items():
        for name, unit in loaded.items():
            if name != derive_unit(path) and not is_instance(name, path):
                continue
            drop_ins = {drop_in: _read(drop_in) for drop_in in unit.drop_ins}
            for shadow in find_shadows(path, text, unit, drop_ins, list(texts)):
                replaced[shadow] = None
                if not _is_of_unit_alone(shadow, name):
                    masks[f"{derive_unit_file(name)}.d/{os.path.basename(shadow)}"] = shadow
            if not is_drop_in(path) and unit.fragment.startswith(STRONGER):
                replaced[unit.fragment] = None
    for path in () if check else replaced:
        if path in masks.values():
            continue
        if path.startswith((systemd.FILES, *STRONGER)):
            _rename(path)
        else:
            mask_file(path)
    for place in () if check else masks:
        _mask(place)
    return list(replaced)


def _is_of_unit_alone(drop_in: str, unit: str) -> bool:
    """Return whether a drop-in is in a folder of this unit, or of its template: systemd.unit(5)."""
    folder = os.path.basename(os.path.dirname(drop_in))
    return folder in (f"{unit}.d", f"{os.path.basename(derive_unit_file(unit))}.d")


def _rename(path: str) -> None:
    number, place = 0, f"{path}.set-aside"
    while os.path.lexists(place):
        number, place = number + 1, f"{path}.set-aside.{number + 1}"
    os.rename(path, place)


def mask_file(path: str) -> None:
    folder, name = os.path.split(path)
    _mask(os.path.join(systemd.FILES, os.path.basename(folder), name))


def _mask(place: str) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.symlink(os.devnull, place)


def list_late(texts: Mapping[str, str]) -> list[str]:
    """Return the files that systemd has loaded in another state than on disk: it has to reload them."""
    loaded = read_loaded(texts)
    return [path for path in texts if (unit := loaded.get(derive_unit(path))) and explain_unread(path, unit)]


def read_loaded(paths: Sequence[str] | Mapping[str, str]) -> dict[str, Loaded]:
    names = list(dict.fromkeys([*filter(None, map(derive_unit, paths)), *_list_instances(paths)]))
    return parse_show(systemd.systemctl(*SHOW, *names)[1]) if names else {}


def _list_instances(paths: Iterable[str]) -> Iterator[str]:
    """Yield the instances of these templates that have drop-ins of their own."""
    for folder in (systemd.FILES, "/run/systemd/system/", *STRONGER):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            unit = name[: -len(".d")]
            if name.endswith(".d") and any(is_instance(unit, path) for path in paths) and "@." not in unit:
                yield unit


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(65536)
