"""Processes and services that hold the GPUs of this host: users' processes, and services that may be stopped and
restarted.

Stopped services are recorded in /run, so that any later run can start them again.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from fnmatch import fnmatchcase
from typing import Collection, Iterator, Sequence

from . import reasons
from .files import read, remove, write
from .mig.units import find_unit
from .systemd import is_active, show, systemctl

STOPPED = "/run/gpuprov/stopped"
# Prefix of the paths of NVIDIA's device files.
DEVICE = "/dev/nvidia"
# A group of devices, or one device, that a program has for a virtual machine:
# https://docs.kernel.org/driver-api/vfio.html
LENT = re.compile(r"/dev/vfio/(?:(?:noiommu-)?(?P<group>\d+)|devices/(?P<device>vfio\d+))\Z")
SYS = "/sys"
NVIDIA = "0x10de"
# Properties through which a stop propagates:
# https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html#Requires=
NEEDED_BY = "RequiredBy,RequisiteOf,BoundBy,ConsistsOf,PropagatesStopTo"
RESTARTED = (".service", ".socket", ".timer", ".path")
# The unit with which gpuprov keeps GPUs initialised if there is no nvidia-persistenced.
OURS = "gpuprov-persistence.service"


def list_holders(services: Collection[str], *, guests: bool = False) -> list[str]:
    """List processes that have an NVIDIA device file open, without those of the services, which may be patterns.

    guests: also those that hold a GPU for a virtual machine, which a reboot ends, but a change of this host's driver
    does not. Raises OSError if processes cannot be examined: an empty list must be reliable.
    """
    os.readlink(f"/proc/{os.getpid()}/cwd")
    processes = []
    for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        with contextlib.suppress(OSError):
            if any(path.startswith(DEVICE) or (guests and _is_lent(path)) for path in _open_files(pid)):
                unit = find_unit(pid)
                if not any(known and fnmatchcase(unit, known) for known in (*services, OURS)):
                    processes.append(describe_process(pid, unit))
    return processes


def _open_files(pid: str) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{name}")


def _is_lent(path: str) -> bool:
    """Return whether the file is vfio's, for a device of NVIDIA or for a part of one (mdev)."""
    match = LENT.match(path)
    if not match:
        return False
    places = [f"{SYS}/class/vfio-dev/{match['device']}/device"]
    if match["group"]:
        group = f"{SYS}/kernel/iommu_groups/{match['group']}/devices"
        places = [f"{group}/{name}" for name in (os.listdir(group) if os.path.isdir(group) else ())]
    real = [os.path.realpath(place) for place in places]
    return any(read(f"{at}/vendor").strip() == NVIDIA for path in real for at in (path, os.path.dirname(path)))


def describe_process(pid: str, unit: str) -> str:
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        name = " ".join(file.read().split())  # a process chooses its own
    owner = os.stat(f"/proc/{pid}").st_uid
    user = str(owner)
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(owner).pw_name
    return f"{name} (pid {pid}, {user}{', ' * bool(unit)}{unit})"


def list_active(services: Sequence[str]) -> list[str]:
    """Return the running services, in the order in which they are stopped. A pattern means those that systemd has
    loaded."""
    units: list[str] = []
    for service in (*services, OURS):
        units += show(service, "Id").split() if "*" in service else [service]
    return [unit for unit in dict.fromkeys(units) if is_active(unit)]


def list_dependents(units: Sequence[str]) -> list[str]:
    """Return other running units that systemd stops together with these. No target: starting one starts everything that
    it wants."""
    known = list(units)
    for unit in known:
        for name in show(unit, NEEDED_BY).split():
            if name not in known and name.endswith(RESTARTED) and is_active(name):
                known.append(name)
    return known[len(units) :]


def stop(units: Sequence[str], dependent: Sequence[str]) -> str:
    """Record all, and stop the units. Return the error of the first that does not stop; the others are then left
    alone."""
    for unit in dependent:
        write(f"{STOPPED}/{unit}", "")
    for unit in units:
        write(f"{STOPPED}/{unit}", "")
        status, _, errors = systemctl("stop", "--", unit)
        if status:
            return f"{unit} does not stop: {errors or f'systemctl ended with {status}'}"
    return ""


def list_stopped(services: Sequence[str]) -> list[str]:
    """List the stopped services in the order in which they are started, the reverse: Fabric Manager before DCGM, as its
    guide says."""
    try:
        names = sorted(name for name in os.listdir(STOPPED) if not name.startswith("."))
    except FileNotFoundError:
        return []
    order = [*(service for service in reversed(services) if "*" not in service), OURS, *names]
    return [name for name in dict.fromkeys(order) if name in names]


def forget(patterns: Collection[str]) -> None:
    """Forget that units with these names were stopped."""
    for name in list_stopped(()):
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            remove(f"{STOPPED}/{name}")


def start_services(units: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Start each. Return those that were started, and those that do not start, with the reason.

    The latter stay recorded for the next run; a host that waits for a reboot then starts them, since its driver may not
    be usable before.
    """
    waits = bool(reasons.read_reasons())
    started: list[str] = []
    failed: dict[str, str] = {}
    for unit in units:
        status, _, errors = systemctl("start", "--", unit)
        if status == 0:
            started.append(unit)
        elif not waits:
            failed[unit] = errors or f"systemctl ended with {status}"
            continue
        remove(f"{STOPPED}/{unit}")
    return started, failed
