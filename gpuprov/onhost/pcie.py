"""ACS, maximum read request, relaxed ordering and interrupt affinity of GPUs and HCAs. usage: pcie.py apply [CONFIG]

CONFIG has lines `SETTING VALUE`. What differs is set with setpci (interrupts in /proc/irq) and read back; the program fails with one
line if it is not so. Nothing of this outlives a reboot or a reset of the function. Managed by gpuprov.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

ROOT = os.environ.get("GPUPROV_ROOT", "")
DEVICES = ROOT + "/sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
# https://github.com/torvalds/linux/blob/master/include/uapi/linux/pci_regs.h
EXPRESS, ACS, RELAXED, REQUEST = 0x10, 0x0D, 0x0010, 0x7000

UNREADABLE = "unreadable"
HEADER_ONLY = 64
"""Bytes of configuration space that those may read who are not root."""


class Refused(Exception):
    """What a person must know, in one line."""


class Function(NamedTuple):
    """A GPU, an HCA, or a bridge above one. `control`: DevCtl, `acs`: ACSCtl; None where there is no such capability. `size`: bytes of
    configuration space that could be read. `silent`: it does not answer, which reads as ones: it fell off the bus, or sleeps.
    """

    address: str
    kind: str
    size: int = 4096
    silent: bool = False
    control: int | None = None
    acs: int | None = None
    cpus: frozenset[int] = frozenset()
    interrupts: tuple[tuple[int, frozenset[int]], ...] = ()


class Difference(NamedTuple):
    """What a function has, and what it should have. `change`: the expression for setpci; empty for an interrupt."""

    address: str
    setting: str
    found: str
    value: str
    change: str = ""

    def __str__(self) -> str:
        return f"{self.address} {self.setting} {self.found} -> {self.value}"


def differences(functions: Sequence[Function], wanted: Mapping[str, str]) -> Iterator[Difference]:
    """What is not as asked for. Raises Refused where there is nothing that could be."""
    gpus, hcas = ([one for one in functions if one.kind == kind] for kind in ("gpu", "hca"))
    if ("max_read_request" in wanted or "affinity" in wanted) and not hcas:
        raise Refused("there is no HCA: the driver of RDMA devices is not loaded, or there are none")
    if not functions or ("gpu_max_read_request" in wanted and not gpus):
        raise Refused(f"there is no {'GPU' if functions else 'GPU and no HCA'} on the PCI bus")
    if wanted.get("acs") == "disabled":
        yield from _in_access(functions)
    for several, size in ((gpus, "gpu_max_read_request"), (hcas, "max_read_request")):
        yield from _in_control(several, int(wanted.get(size, 0)), wanted.get("relaxed_ordering", ""))
    if wanted.get("affinity") == "local":
        yield from _in_affinity(hcas)


def _in_access(functions: Iterable[Function]) -> Iterator[Difference]:
    for one in map(_readable, functions):
        if one.silent or one.acs:
            yield Difference(
                one.address, "acs", UNREADABLE if one.silent else f"{one.acs or 0:04x}", "0000", "ECAP_ACS+6.w=0000"
            )


def _in_control(functions: Iterable[Function], size: int, ordering: str) -> Iterator[Difference]:
    for one in map(_readable, functions) if size or ordering else ():
        if one.control is None and not one.silent:
            continue
        control = one.control or 0
        found = UNREADABLE if one.silent else str(128 << (control >> 12 & 7))
        if size and found != str(size):
            change = f"CAP_EXP+8.w={(size // 128).bit_length() - 1 << 12:04x}:{REQUEST:04x}"
            yield Difference(one.address, "max_read_request", found, str(size), change)
        found = UNREADABLE if one.silent else "enabled" if control & RELAXED else "disabled"
        if ordering and found != ordering:
            change = f"CAP_EXP+8.w={RELAXED if ordering == 'enabled' else 0:04x}:{RELAXED:04x}"
            yield Difference(one.address, "relaxed_ordering", found, ordering, change)


def _in_affinity(functions: Iterable[Function]) -> Iterator[Difference]:
    for one in functions:
        for number, cpus in one.interrupts:
            if cpus and one.cpus and not cpus <= one.cpus:
                yield Difference(one.address, f"irq {number}", ranges(cpus), ranges(one.cpus))


def _readable(one: Function) -> Function:
    if one.size <= HEADER_ONLY and not one.silent:
        raise Refused(f"the configuration space of {one.address} cannot be read (root can)")
    return one


def ranges(cpus: Iterable[int]) -> str:
    """Numbers as the kernel lists them: `0-3,8`."""
    found: list[list[int]] = []
    for number in sorted(cpus):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ",".join("-".join(str(end) for end in part) for part in found)


def cpus_of(listed: str) -> frozenset[int]:
    """`0-3,8` as numbers."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _read(path: str, size: int = -1) -> bytes:
    """The bytes of a file; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _text(path: str) -> str:
    return _read(path).decode("ascii", "replace").strip()


def _word(space: bytes, at: int) -> int:
    return int.from_bytes(space[at : at + 2], "little")


def _express(space: bytes) -> int:
    """Where the PCI Express capability lies; 0 if there is none."""
    at = space[0x34] & 0xFC if len(space) >= 256 and space[6] & 0x10 else 0
    for _ in range(48):
        if at < 0x40 or space[at] == EXPRESS:
            break
        at = space[at + 1] & 0xFC
    else:
        at = 0
    return at if at >= 0x40 else 0


def _access(space: bytes) -> int:
    """Where the ACS extended capability lies; 0 if there is none."""
    at = 0x100 if len(space) >= 4096 else 0
    for _ in range(960):
        if at < 0x100 or _word(space, at) in (0, 0xFFFF):
            return 0
        if _word(space, at) == ACS:
            return at
        at = _word(space, at + 2) >> 4 & 0xFFC
    return 0


def functions_here() -> list[Function]:
    """GPUs, HCAs and all bridges above them, by address; NVLink bridges are no HCAs, virtual functions have no DevCtl."""
    kinds: dict[str, str] = {}
    for address in sorted(os.listdir(DEVICES) if os.path.isdir(DEVICES) else []):
        folder = os.path.join(DEVICES, address)
        gpu = _text(folder + "/vendor") == "0x10de" and _text(folder + "/class").startswith("0x03")
        hca = os.path.isdir(folder + "/infiniband") and b"SW_MNG" not in _read(folder + "/vpd")
        if not (gpu or hca) or os.path.islink(folder + "/physfn"):
            continue
        kinds[address] = "gpu" if gpu else "hca"
        for part in os.path.realpath(folder).split("/"):
            if ADDRESS.match(part):
                kinds.setdefault(part, "bridge")
    return [_function(address, kind) for address, kind in sorted(kinds.items())]


def _function(address: str, kind: str) -> Function:
    folder = os.path.join(DEVICES, address)
    space = _read(os.path.join(folder, "config"), 4096)
    control, acs = _express(space), _access(space)
    irqs = os.path.join(folder, "msi_irqs")
    numbers = sorted(int(name) for name in os.listdir(irqs)) if kind == "hca" and os.path.isdir(irqs) else []
    return Function(
        address,
        kind,
        len(space),
        len(space) > 1 and _word(space, 0) == 0xFFFF,
        _word(space, control + 8) if control else None,
        _word(space, acs + 6) if acs else None,
        cpus_of(_text(os.path.join(folder, "local_cpulist"))),
        tuple((number, cpus_of(_text(f"{ROOT}/proc/irq/{number}/smp_affinity_list"))) for number in numbers),
    )


def settings(path: str) -> dict[str, str]:
    """The configuration as a dictionary."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = [line.split() for line in file if line[:1].isalpha()]
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    if not rows or any(len(row) != 2 for row in rows):
        raise Refused(f"{path} has {'lines that are no settings' if rows else 'no settings'}")
    return {row[0]: row[1] for row in rows}


def contained() -> bool:
    """Whether this is a container, in which /proc/irq is the machine's."""
    try:
        return subprocess.run(["systemd-detect-virt", "--container", "--quiet"], check=False).returncode == 0
    except OSError:
        return False


def put(one: Difference) -> str:
    """Set one thing; what went wrong, or nothing."""
    if not one.change:
        try:
            with open(f"{ROOT}/proc/irq/{one.setting[4:]}/smp_affinity_list", "w", encoding="ascii") as file:
                file.write(one.value)
        except OSError as error:
            return error.strerror or str(error)
        return ""
    where = ["-A", "linux-sysfs", "-O", f"sysfs.path={ROOT}/sys/bus/pci"] if ROOT else []
    argv = ["setpci", *where, "-s", one.address, one.change]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        return f"setpci: {error.strerror}"
    return " ".join(done.stdout.decode(errors="replace").split())


def main(path: str) -> None:
    wanted = settings(path)
    in_container = contained()

    def differing() -> list[Difference]:
        functions = functions_here()
        return list(
            differences([one._replace(interrupts=()) for one in functions] if in_container else functions, wanted)
        )

    found = differing()
    complaints = {(one.address, one.setting): put(one) for one in found}
    left = {(one.address, one.setting): one for one in differing()}
    for one in found:
        if (one.address, one.setting) not in left:
            print(one)
    if left:
        told = []
        for key, one in left.items():
            why = f" ({complaints[key]})" if complaints.get(key) else ""
            told.append(f"{one.address} {one.setting} stays {one.found}, expected {one.value}{why}")
        raise Refused("; ".join(told[:4]) + (f" and {len(told) - 4} more" if told[4:] else ""))


if __name__ == "__main__":
    try:
        if len(sys.argv) not in (2, 3) or sys.argv[1] != "apply":
            raise Refused("usage: pcie.py apply [CONFIG]")
        main(sys.argv[2] if sys.argv[2:] else ROOT + "/etc/gpuprov/pcie.conf")
    except Refused as problem:
        sys.exit(f"pcie: {problem}")
