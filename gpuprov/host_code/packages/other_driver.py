"""Packages of another driver than the host's: whether a transaction would bring some, and why it may not."""

from __future__ import annotations

import glob
import os
import platform
import re
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Mapping, Sequence, TypedDict

from .. import family
from .commands import run
from .model import Manager, Pin, Refused, Transaction

# Programs that only a runfile installation has.
PROGRAMS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
# The installer's record of the files it has installed: https://github.com/NVIDIA/nvidia-installer, backup.c.
RECORD = "/var/lib/nvidia/log"
FILES = ("/usr/lib/*/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1", "/usr/bin/nvidia-smi")
_RPM = ("rpm", "-qf", "--qf", "%{NAME}: \\n")
OWNERS = {"debian": ("dpkg", "-S"), "redhat": _RPM, "suse": _RPM}
VERSION = re.compile(r"(?:[0-9]+:)?([0-9]{3}(?:\.[0-9]+)+)(?![.0-9])")
# Debian's program. If it finds a runfile's driver, its postinst asks whether to uninstall it, by default yes, and
# fails if nobody can answer (https://packages.debian.org/source/stable/nvidia-support, read in 20220217+3~deb12u1).
CLEANUP = "nvidia-installer-cleanup"


class AnotherDriver(Refused):
    """The reason why packages of another driver than the host's must not be installed."""


@dataclass(frozen=True)
class Names:
    """Patterns of package names: of a driver; of its kernel modules, and of packages that may have their own version
    line."""

    driver: str
    modules: str
    own: str


@dataclass(frozen=True)
class Coming:
    """The driver that this run installs: from a runfile, or by this transaction of packages."""

    version: str
    runfile: bool = False
    transaction: Transaction = field(default_factory=lambda: Transaction("the driver"))


@dataclass(frozen=True)
class Present:
    """The driver that the host has. kind: runfile, packages, other (its files belong to no package, or to one of
    another name, such as a vGPU guest's), or empty. label: its description in messages. versions: those of its
    packages; modules: packages of its kernel modules."""

    kind: str = ""
    label: str = ""
    versions: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()


def derive_version(package_version: str) -> str:
    """Return `3:580.95.05-1.el9` -> `580.95.05`; "" if it is not a driver's."""
    match = VERSION.match(package_version)
    return match[1] if match else ""


class ComingOption(TypedDict, total=False):
    """The driver that a run installs, in the module's option `driver`."""

    version: str
    runfile: bool
    install: Sequence[str]
    remove: Sequence[str]
    pin: Mapping[str, Any]
    stream: str


class Option(TypedDict, total=False):
    """The module's option `driver`: names of packages of drivers by family, and the driver of this run."""

    names: Mapping[str, Mapping[str, str]]
    coming: ComingOption


def build_names(params: Option) -> Names | None:
    """Return the names for this host's family, from a module's option `driver`."""
    given = params.get("names", {}).get(family.read_family())
    return Names(given["driver"], given["modules"], given["own"]) if given else None


def read_coming(params: Option) -> Coming | None:
    """Return the driver of this run, from a module's option `driver`; None if the run installs none."""
    given: ComingOption = params.get("coming") or {}
    if not given.get("version"):
        return None
    pin = given["pin"]
    desired = Transaction(
        f"driver {given['version']}",
        tuple(given["install"]),
        tuple(given["remove"]),
        pin=Pin(str(pin["version"]), tuple(pin["patterns"])) if pin.get("patterns") else None,
        stream=given["stream"],
    )
    return Coming(str(given["version"]), bool(given["runfile"]), desired)


def select_driver_packages(rows: Iterable[str], names: Names) -> list[tuple[str, str]]:
    """Return name and version of each driver package that a trial's rows install or change."""
    words = (row.split() for row in rows if row.startswith("Inst "))
    versions = {word[1].partition(":")[0]: word[2] for word in words}
    return sorted((name, version) for name, version in versions.items() if re.fullmatch(names.driver, name))


def select_others(
    touched: Sequence[tuple[str, str]], names: Names, installed: Present, coming: Coming | None
) -> list[tuple[str, str]]:
    """Return the packages of another driver than the present one, or the one that replaces it."""
    if coming and coming.runfile:
        return [*touched]
    if not coming and installed.kind in ("runfile", "other"):
        return [*touched]
    versions = {coming.version} if coming else installed.versions
    if not versions:
        return []

    def is_other(name: str, version: str) -> bool:
        known = derive_version(version)
        second = (
            not coming and installed.modules and name not in installed.modules and re.fullmatch(names.modules, name)
        )
        return bool(second) or bool(known and known not in versions and not re.fullmatch(names.own, name))

    return [package for package in touched if is_other(*package)]


def refuse(manager: Manager, desired: Transaction, rows: Sequence[str], names: Names, coming: Coming | None) -> None:
    """Raise AnotherDriver if the transaction would install packages of another driver than the host's."""
    touched = select_driver_packages(rows, names)
    installed = find_present(manager, names) if touched else Present()
    conflicting = select_others(touched, names, installed, coming)
    if conflicting and coming and not coming.runfile and not coming.transaction.empty:
        # What comes along depends on the driver's own packages, which are in place by then.
        conflicting = select_others(foresee_together(manager, desired, names, coming), names, installed, coming)
    if not conflicting:
        return
    host = _describe_coming(coming) if coming else installed.label
    asks = f"; {CLEANUP} asks whether to uninstall the host's, by default yes"
    raise AnotherDriver(
        f"the host's driver is {host}, and nothing was changed or downloaded: with {desired.of} {manager.name} "
        "would install packages "
        "of another, "
        f"{format_packages(conflicting)}{asks if CLEANUP in dict(conflicting) and installed.kind == 'runfile' else ''}. "
        f"Fix: {f'{desired.instead}; or ' if desired.instead else ''}{_choose_fix(installed, coming)}"
    )


def format_packages(packages: Sequence[tuple[str, str]]) -> str:
    """Return names, grouped by version, with the version after them."""
    versions = dict.fromkeys(version for _, version in packages)
    return ", ".join(
        f"{' '.join(name for name, other in packages if other == release)} ({release})" for release in versions
    )


def find_present(manager: Manager, names: Names) -> Present:
    """Return the driver that this host has."""
    programs = [path for path in PROGRAMS if os.path.lexists(path)]
    if programs or os.path.exists(RECORD):
        return Present("runfile", f"of NVIDIA's runfile ({' '.join(programs) or RECORD})")
    rows = [row for row in manager.read([]).rows if re.fullmatch(names.driver, row[1])]
    versions = {
        row[1]: derive_version(row[2]) for row in rows if derive_version(row[2]) and not re.fullmatch(names.own, row[1])
    }
    if versions:
        modules = [name for name in versions if re.fullmatch(names.modules, name)]
        shown = [f"{name} {versions[name]}" for name in (modules or sorted(versions))[:4]]
        return Present(
            "packages", f"of packages ({', '.join(shown)})", frozenset(versions.values()), frozenset(modules)
        )
    owners = {path: find_owner(path) for path in list_files()}
    files = [path for path, owner in owners.items() if not (owner and re.fullmatch(names.driver, owner))]
    if not files:
        return Present()
    mounted = "mounted from elsewhere" if list_mounts().intersection(files) else "of no package"
    where = f"of the package {owners[files[0]]}" if owners[files[0]] else mounted
    return Present("other", f"{where} ({' '.join(files[:3])})")


def list_files() -> list[str]:
    """Return a driver's libraries, program and module, as far as they exist."""
    paths = [path for pattern in FILES for path in sorted(glob.glob(pattern))]
    return paths + sorted(glob.glob(f"/lib/modules/{platform.release()}/**/nvidia.ko*", recursive=True))


def find_owner(path: str) -> str:
    """Return the package that owns the file; "" if none."""
    real = os.path.realpath(path)
    # A package of the time before /usr was merged calls /usr/lib/... /lib/...
    for place in dict.fromkeys([path, real, real.replace("/usr/lib", "/lib", 1)]):
        ran = run([*OWNERS.get(family.read_family(), _RPM), place])
        owners = [line for line in ran.lines if not line.startswith(("diversion ", "local diversion "))]
        if not ran.status and owners:
            # `dpkg -S` of a file with one owner, with two, and of a diverted one:
            #     libc6:amd64: /usr/lib/x86_64-linux-gnu/libc.so.6
            #     dash, bash: /usr/bin/sh
            #     diversion by dash from: /bin/sh
            return re.split("[,:]", owners[0])[0]
    return ""


def list_mounts() -> set[str]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return {line.split()[4] for line in file}
    except (OSError, IndexError):
        return set()


def foresee_together(manager: Manager, desired: Transaction, names: Names, coming: Coming) -> list[tuple[str, str]]:
    """Return the driver's packages that come along if the driver's own transaction runs in the same run, apart from
    those it names itself."""
    both = replace(
        coming.transaction,
        of=f"{desired.of} and {coming.transaction.of}",
        install=(*coming.transaction.install, *desired.install),
        remove=(*coming.transaction.remove, *desired.remove),
    )
    trial = manager.attempt(both)
    if trial.problem:
        raise Refused(f"{manager.name} cannot install {both.of}: {trial.problem.rstrip('.')}. Fix: {desired.fix}")
    named = {re.split("[=:]", spec)[0] for spec in coming.transaction.install}
    return [row for row in select_driver_packages(trial.rows, names) if row[0] not in named]


def _describe_coming(coming: Coming) -> str:
    return f"to be {coming.version} of {'a runfile' if coming.runfile else 'packages'} (nvidia_driver)"


def _choose_fix(installed: Present, coming: Coming | None) -> str:
    if coming:
        return "leave out what needs them, or have nvidia_driver.source be where they come from"
    if installed.kind == "runfile":
        return (
            f"leave out what needs them; or have a driver of packages: end what uses the GPUs, {PROGRAMS[0]}, and "
            "nvidia_driver in the spec"
        )
    if installed.kind == "other":
        return "leave out what needs them, or have whoever brings that driver bring these, too"
    return "leave out what needs them, or name the driver that they are of in nvidia_driver (version, source)"
