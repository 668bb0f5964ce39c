"""Drop-ins and units of others that keep a unit of others from doing its work at a boot."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from gpuprov.facts.probes.host.contents import Contents
from gpuprov.host_code.unit_files import KINDS, Loaded
from gpuprov.host_code.wanted_units import RUNS, STARTS

# Programs, and words of a shell, that do no work.
NOTHING = frozenset({"", ":", "true", "false", "echo", "printf", "sleep", "test", "exit"})
# Options with which a daemon does none of what a spec asks it for.
IDLE_OPTIONS = frozenset({"--no-persistence-mode"})
SHELLS = frozenset({"sh", "bash", "dash", "busybox", "env"})
# Settings by which a unit is stopped with another one: systemd.unit(5).
BINDING = ("BindsTo", "PartOf", "StopPropagatedFrom")
TRUE = ("1", "yes", "true", "on")
# Settings, with the values that count (none: any time), by which a unit, and every container that it starts, has no
# GPU, or that end it: systemd.exec(5), systemd.resource-control(5), systemd.service(5).
AWAY: dict[str, tuple[str, ...]] = {
    "PrivateDevices": TRUE,
    "DevicePolicy": ("closed", "strict"),
    "RuntimeMaxSec": (),
}
AWAY_WORDS = {
    **dict.fromkeys(("PrivateDevices", "DevicePolicy"), "kept from the GPUs' device files"),
    "RuntimeMaxSec": "ended some time after its start",
}
# States of loading in which systemd starts nothing: systemd.unit(5).
BROKEN = ("bad-setting", "error")
# Folders whose unit files are in the place of a package's: systemd.unit(5).
SITE = ("/etc/systemd/", "/run/systemd/")


class Value(NamedTuple):
    """A value that a file sets."""

    path: str
    text: str


def explain_idle(unit: Loaded, contents: Contents, own: Collection[str]) -> str:
    """Return why a unit that is enabled does nothing at the next boot, with the file that makes it so; "" if no drop-in
    of others does, nor a unit file of theirs in the place of a package's. `own`: files of gpuprov's."""
    if unit.load in BROKEN:
        return f"{unit.load}: systemd takes its files for faulty"
    of_site = (unit.fragment,) if unit.fragment.startswith(SITE) else ()
    foreign = [path for path in (*of_site, *unit.drop_ins) if path not in own]
    for path in foreign:
        if unmet := contents.unmet.get(path):
            return f"kept from starting by {path}, whose {unmet[0]} is not met"
    texts = {path: contents.drop_ins.get(path, "") for path in (unit.fragment, *unit.drop_ins)}
    if why := _find_setting(foreign, texts):
        return why
    for value in _list_in_force("ExecCondition", texts):
        if value.path in foreign:
            return f"kept from starting by {value.path} unless its ExecCondition={value.text} agrees"
    commands = list(_list_in_force("ExecStart", texts))
    if commands and commands[-1].path in foreign and all(_is_idle(command.text) for command in commands):
        return f"made idle by {commands[-1].path}, whose ExecStart is {commands[-1].text}"
    return ""


def _find_setting(foreign: Collection[str], texts: Mapping[str, str]) -> str:
    """Return how a setting of others stops a unit, or keeps it from GPUs; "" if none does."""
    for key in BINDING:
        for value in _list_in_force(key, texts):
            if value.path in foreign and (others := [name for name in value.text.split() if name.endswith(KINDS)]):
                return f"stopped with {' '.join(others)}, by {key} in {value.path}"
    for key, idle_values in AWAY.items():
        for value in list(_list_in_force(key, texts))[-1:]:
            counts = value.text.lower() in idle_values if idle_values else value.text != "infinity"
            if value.path in foreign and counts:
                return f"{AWAY_WORDS[key]} by {value.path}, whose {key} is {value.text}"
    return ""


def explain_rival(name: str, contents: Contents, own: Collection[str]) -> tuple[str, str]:
    """Return why a unit may not run after the next boot: another one, which starts then or runs now, conflicts with it;
    and that one. "" if none does. `own`: units that the spec has off."""
    for rival in contents.rivals.get(name, ()):
        state = contents.others.get(rival, Loaded())
        if rival not in own and (state.file in STARTS or state.active in RUNS):
            when = "starts at a boot, too" if state.file in STARTS else "runs now"
            return f"kept from running by {rival}, which conflicts with it and {when}", rival
    return "", ""


def _list_in_force(key: str, texts: Mapping[str, str]) -> Iterator[Value]:
    """Yield the values of a key that are in force: an empty one resets the list (systemd.service(5))."""
    values: list[Value] = []
    for path, text in texts.items():
        for line in text.replace("\\\n", " ").splitlines():
            name, equals, value = line.strip().partition("=")
            if not equals or name.rstrip() != key:
                continue
            if value.strip():
                values.append(Value(path, " ".join(value.split())))
            else:
                values.clear()
    return iter(values)


def _is_idle(command: str) -> bool:
    """Return whether a command line, without systemd's marks before it, does no work."""
    words = command.lstrip("@-:+!|").replace("'", " ").replace('"', " ").split()
    if IDLE_OPTIONS & set(words):
        return True
    programs = [word.rpartition("/")[2] for word in words]
    while programs and programs[0] in SHELLS:
        programs = [word for word in programs[1:] if not word.startswith("-")]
        programs[:1] = [word.rstrip(";") for word in programs[:1]]
    return not programs or programs[0] in NOTHING
