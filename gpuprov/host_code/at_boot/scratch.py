"""A scratch file system on local NVMe disks: the decision what may be done with them, and the program that does it.
`scratch apply [SECONDS]` makes, assembles or mounts it; the same decision is apply's before it changes anything.

Its configuration has lines `KEY VALUE`: `mount`, `filesystem`, `mode`, `count`, `disk` (a pattern of names in
/dev/disk/by-id), `local` and `remote` (patterns of models). A disk that holds anything is never written to, unless it
has the UUID that gpuprov gave to its own array or file system and recorded on this host.
"""

from __future__ import annotations

import os
import shlex
import uuid
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Iterator, NamedTuple, Sequence

from .program import Refused, have, main, read, read_rows, run, run_for_complaint, tell, wait
from .scratch_state import ENDS, READER, RECORD, Device, Signature, State, format_size, parse

CONFIG = "/etc/gpuprov/scratch.conf"
ARRAY = "gpuprov-scratch"
RAID = "linux_raid_member"
KEEP, CREATE, ASSEMBLE, FORMAT, MOUNT, MODE = "keep", "create", "assemble", "format", "mount", "mode"
ROUNDS = 6


@dataclass(frozen=True)
class Config:
    """`patterns`: of links in /dev/disk/by-id; none: the disks with a `local` model. `count` 0: as many as there
    are."""

    mount: str
    filesystem: str
    mode: str
    count: int = 0
    patterns: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()


class Obstacle(NamedTuple):
    """The reason to leave a disk alone: what it is and holds, and the command with which an administrator frees it."""

    what: str
    way: str


class Decision(NamedTuple):
    """`action` is empty if there is an obstacle. `target`: the device that is formatted, mounted or kept."""

    action: str
    disks: tuple[Device, ...] = ()
    target: str = ""
    obstacles: tuple[Obstacle, ...] = ()


def parse_config(rows: Sequence[Sequence[str]]) -> Config:
    values: dict[str, list[str]] = {}
    for key, *rest in rows:
        values.setdefault(key, []).append(" ".join(rest))
    lists = [tuple(values.get(key, ())) for key in ("disk", "local", "remote")]
    try:
        mount, filesystem, mode, count = (values[key][0] for key in ("mount", "filesystem", "mode", "count"))
        return Config(mount, filesystem, mode, int(count), *lists)
    except (LookupError, ValueError):
        raise Refused(f"{CONFIG} lacks mount, filesystem, mode or count") from None


def select_disks(state: State, config: Config) -> tuple[Device, ...]:
    """Return the disks that the configuration names; without patterns, local ones of a known cloud by their model."""

    def named(disk: Device) -> bool:
        if config.patterns:
            return any(fnmatchcase(link, pattern) for link in disk.links for pattern in config.patterns)
        return matches(disk.model, config.local) and not matches(disk.model, config.remote)

    return tuple(disk for disk in state.disks if named(disk))


def matches(model: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in patterns)


def decide(state: State, config: Config) -> Decision:
    """Decide what to do next; an obstacle if anything of it could destroy or hide what is there."""
    disks = select_disks(state, config)
    obstacles = [*_explain_number(state, config, disks)]
    for disk in disks:
        if not _is_own(disk, state, config, alone=len(disks) == 1) and (obstacle := explain_taken(disk, config)):
            obstacles.append(obstacle)
    if obstacles:
        return Decision("", disks, "", tuple(obstacles))
    blank = [disk for disk in disks if disk.blank]
    if blank and len(blank) < len(disks):
        names = " ".join(f"/dev/{disk.name}" for disk in disks if not disk.blank)
        what = f"{' '.join(map(str, blank))}: blank, and {names} has gpuprov's earlier file system without it"
        return Decision("", disks, "", (Obstacle(what, free(disk for disk in disks if not disk.blank)),))
    if blank and len(disks) > 1:
        return _refuse_if_occupied(Decision(CREATE, disks), state, config)
    return _decide_target(disks, state, config)


def _decide_target(disks: tuple[Device, ...], state: State, config: Config) -> Decision:
    """Decide about a single disk, or about the array that the disks are members of."""
    target = disks[0]
    if any(signature.kind == RAID for signature in target.signatures):
        holders = {holder for disk in disks for holder, _ in disk.holders}
        arrays = [array for array in state.arrays if array.name in holders]
        if not arrays:
            return _refuse_if_occupied(Decision(ASSEMBLE, disks), state, config)
        target = arrays[0]
    if target.blank:
        return _refuse_if_occupied(Decision(FORMAT, disks, target.name), state, config)
    elsewhere = target.mounts and config.mount not in target.mounts
    if not _has_own_filesystem(target, state, config) or elsewhere:
        return Decision("", disks, "", (explain_taken(target, config) or Obstacle(str(target), "lsblk"),))
    if state.at is None or state.at.device != target.name:
        return _refuse_if_occupied(Decision(MOUNT, disks, target.name), state, config)
    right = int(state.at.mode or "0", 8) == int(config.mode, 8)
    return Decision(KEEP if right else MODE, disks, target.name)


def _explain_number(state: State, config: Config, disks: Sequence[Device]) -> Iterator[Obstacle]:
    if state.contained:
        yield Obstacle("this is a container, and the disks are the machine's", "apply it to the machine")
    named = " ".join(config.patterns) or "a model of a cloud's local disks"
    present = ", ".join(map(str, state.disks)) or "none"
    if not disks:
        yield Obstacle(
            f"no NVMe disk has {named}; there are: {present}", "ls -l /dev/disk/by-id; scratch.disks in the spec"
        )
    elif config.count and len(disks) != config.count:
        yield Obstacle(f"{len(disks)} of {config.count} disks are there: {', '.join(map(str, disks))}",
                       "lsblk -o NAME,SIZE,MODEL,SERIAL; scratch.count in the spec")  # fmt: skip
    own = [disk for disk in disks if _has_uuid(disk.signatures, RAID, state.own.get("array", ""))]
    number = state.own.get("disks", "")
    if own and number.isdigit() and len(disks) != int(number):
        yield Obstacle(f"gpuprov's array was made of {number} disks, and {len(disks)} are there", "nvme list; lsblk")


def _refuse_if_occupied(decision: Decision, state: State, config: Config) -> Decision:
    """Return the decision, unless something is in the way at the mount point."""
    if state.at is not None:
        what = f"{config.mount}: {state.at.device or 'another file system'} ({state.at.filesystem}) is mounted there"
        return Decision("", decision.disks, "", (Obstacle(what, f"umount {config.mount}; or another scratch.mount"),))
    if state.under:
        way = f"ls -la {config.mount}; move it away, or another scratch.mount"
        return Decision("", decision.disks, "", (Obstacle(f"{config.mount} {state.under}", way),))
    return decision


def _has_uuid(signatures: Sequence[Signature], kind: str, own: str) -> bool:
    return bool(own) and [(each.kind, _strip_escapes(each.uuid)) for each in signatures] == [
        (kind, _strip_escapes(own))
    ]


def _strip_escapes(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter in "0123456789abcdef")


def _has_own_filesystem(device: Device, state: State, config: Config) -> bool:
    used = device.parts or device.holders or device.swap or device.data or device.unreadable
    return not used and _has_uuid(device.signatures, config.filesystem, state.own.get("filesystem", ""))


def _is_own(disk: Device, state: State, config: Config, *, alone: bool) -> bool:
    """Return whether a disk is a member of gpuprov's own array, or alone has its file system, and nothing else uses
    it."""
    if disk.transport != "pcie" or matches(disk.model, config.remote):
        return False
    if alone and _has_own_filesystem(disk, state, config):
        return True
    member = _has_uuid(disk.signatures, RAID, state.own.get("array", ""))
    arrays = {array.name for array in state.arrays}
    other = disk.parts or disk.mounts or disk.swap or any(holder not in arrays for holder, _ in disk.holders)
    return member and not other and len(disk.holders) <= 1


def explain_taken(disk: Device, config: Config) -> Obstacle | None:
    """Explain what is on a disk or an array, and how to free it by hand; None for a blank one."""
    if disk.transport not in ("", "pcie"):
        return Obstacle(f"{disk}: a remote disk ({disk.transport})", "leave it out of scratch.disks")
    if matches(disk.model, config.remote):
        return Obstacle(f"{disk}: a persistent disk of the cloud", "leave it out of scratch.disks")
    attached = disk.transport or disk.name.startswith("md")
    if disk.blank and attached:
        return None
    holds = [f"mounted on {' '.join(disk.mounts)}"] * bool(disk.mounts) + ["swap"] * disk.swap
    holds += [f"used by {name} ({label})" if label else f"used by {name}" for name, label in disk.holders]
    holds += [f"{len(disk.parts)} partition{'s' * (len(disk.parts) > 1)} ({' '.join(disk.parts)})"] * bool(disk.parts)
    holds += dict.fromkeys(map(str, disk.signatures))
    holds += ["data without a signature in its first or last MiB"] * disk.data
    holds += [f"it cannot be read: {disk.unreadable}"] * bool(disk.unreadable)
    holds += ["the kernel does not say how it is attached"] * (not attached)
    return Obstacle(f"{disk}: {', '.join(holds)}", free([disk]))


def free(disks: Iterator[Device] | Sequence[Device]) -> str:
    """Return the commands that destroy what is on these disks, for an administrator."""
    listed = [*disks]
    places = [place for disk in listed for place in disk.mounts]
    arrays = dict.fromkeys(name for disk in listed for name, _ in disk.holders if name.startswith("md"))
    steps = [f"umount {' '.join(map(shlex.quote, places))}"] * bool(places)
    steps += [f"mdadm --stop {' '.join(f'/dev/{name}' for name in arrays)}"] * bool(arrays)
    for disk in listed:
        last = max(disk.size - ENDS, 0)
        steps.append(
            "wipefs -a {0}; blkdiscard -z -l {1} {0}; blkdiscard -z -o {2} {0}".format(f"/dev/{disk.name}", ENDS, last)
        )
    return f"if nothing of it is needed any more: {'; '.join(steps)}"


def look(config: Config) -> State:
    try:
        return parse(read(f"mount={shlex.quote(config.mount)}\n{READER}"))
    except (ValueError, LookupError) as error:
        raise Refused(f"the disks cannot be read: {error}") from None


def remember(**values: str) -> None:
    """Record what is made next, before it is made: an end in between leaves something that is known to be gpuprov's."""
    os.makedirs(os.path.dirname(RECORD), exist_ok=True)
    with open(f"{RECORD}.new", "w", encoding="utf-8") as file:
        file.write("".join(f"{key} {value}\n" for key, value in values.items()))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{RECORD}.new", RECORD)


def act(decision: Decision, state: State, config: Config) -> None:
    """Do one thing; the host is read again before the next."""
    devices = [f"/dev/{disk.name}" for disk in decision.disks]
    target = f"/dev/{decision.target}"
    if decision.action == CREATE:
        own = str(uuid.uuid4())
        remember(array=own, disks=str(len(devices)))
        do("mdadm", "--create", f"/dev/md/{ARRAY}", "--run", "--level=0", "--metadata=1.2", f"--name={ARRAY}",
           f"--uuid={own}", f"--raid-devices={len(devices)}", *devices)  # fmt: skip
    elif decision.action == ASSEMBLE:
        do("mdadm", "--assemble", f"/dev/md/{ARRAY}", f"--uuid={state.own['array']}", *devices)
    elif decision.action == FORMAT:
        own = str(uuid.uuid4())
        array = {key: state.own[key] for key in ("array", "disks") if len(devices) > 1 and key in state.own}
        remember(**array, filesystem=own)
        given = ["-m", f"uuid={own}"] if config.filesystem == "xfs" else ["-U", own]
        do(f"mkfs.{config.filesystem}", "-q", *given, target)
    elif decision.action == MOUNT:
        os.makedirs(config.mount, exist_ok=True)
        do("mount", "-t", config.filesystem, "-o", "noatime", target, config.mount)
        if have("restorecon"):
            run("restorecon", config.mount)
    elif decision.action == MODE:
        os.chmod(config.mount, int(config.mode, 8))
    tell(f"{decision.action} {config.mount}: {', '.join(map(str, decision.disks))}")


def do(*argv: str) -> None:
    if problem := run_for_complaint(*argv):
        raise Refused(f"{' '.join(argv)}: {problem}")
    run("udevadm", "settle", "--timeout=60")


def has_all_disks(state: State, config: Config) -> bool:
    """Return whether as many disks are there as the spec asks for, or else as there were when the array was made."""
    before = state.own.get("disks", "")
    return len(select_disks(state, config)) >= (config.count or (int(before) if before.isdigit() else 1))


def apply(seconds: int) -> None:
    config = parse_config(read_rows(CONFIG))
    wait(seconds, lambda: has_all_disks(look(config), config))
    for _ in range(ROUNDS):
        state = look(config)
        decision = decide(state, config)
        if decision.obstacles:
            raise Refused("; ".join(f"{what}. {way}" for what, way in decision.obstacles))
        if decision.action == KEEP:
            return
        act(decision, state, config)
    raise Refused(f"{config.mount} is not as {CONFIG} says after {ROUNDS} steps; {describe(decision, config)}")


def describe(decision: Decision, config: Config) -> str:
    """Describe the file system that the disks should have."""
    size = format_size(sum(disk.size for disk in decision.disks))
    how = f"RAID 0 of {len(decision.disks)} disks" if len(decision.disks) > 1 else "one disk"
    return f"{config.filesystem} of {size} on {how}: {' '.join(disk.name for disk in decision.disks)}"


if __name__ == "__main__":
    main("scratch", {"apply": apply})
