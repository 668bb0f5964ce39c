"""The running kernel's desired state: modules loaded, sysctls set, services' limits, memory freed for hugepages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from .failed import Failed
from .settings import is_met, list_unmet

SYSCTL_FILE = "/etc/sysctl.d/90-gpuprov.conf"
PROC, MODULES = "/proc/sys", "/sys/module"


def list_absent(modules: Sequence[str]) -> list[str]:
    """Return the modules that are not loaded."""
    return [name for name in modules if not os.path.isdir(os.path.join(MODULES, name.replace("-", "_")))]


def list_loaded(modules: Sequence[str]) -> list[str]:
    """Return the modules that are loaded, as the kernel writes their names."""
    missing = list_absent(modules)
    return [name.replace("-", "_") for name in modules if name not in missing]


def unload(module: str, *, dry: bool = False) -> bool:
    """Unload a module; return False if it is in use. `dry`: only return whether it would unload."""
    if dry:
        with open(os.path.join(MODULES, module, "refcnt"), encoding="ascii") as file:
            return int(file.read()) == 0
    _run(["modprobe", "--remove", module])
    return bool(list_absent([module]))


def load(module: str) -> None:
    done = _run(["modprobe", module])
    if done.returncode:
        raise Failed(f"{module} cannot be loaded: {find_last_error(done)}. Fix: dmesg | tail, on the host")


def find_sysctl_path(name: str) -> str:
    """Return the path of a sysctl. In a name, a dot inside a level is written as a slash: sysctl(8)."""
    return os.path.join(PROC, name.translate(str.maketrans("./", "/.")))


def list_differing(desired: Mapping[str, str]) -> dict[str, str]:
    """Return the sysctls with another value, each with its actual value; spaces between the values of one count as
    one."""
    values = {}
    for name, value in desired.items():
        try:
            with open(find_sysctl_path(name), encoding="utf-8", errors="replace") as file:
                now = " ".join(file.read().split())
        except OSError as error:
            now = f"unreadable ({error.strerror})"
        if not is_met(value, now):
            values[name] = now
    return values


def set_sysctls() -> None:
    """Apply gpuprov's file."""
    done = _run(["sysctl", "-p", SYSCTL_FILE])
    if done.returncode:
        raise Failed(f"a sysctl cannot be set: {find_last_error(done)}")


def list_differing_limits(desired: Mapping[str, str]) -> dict[str, str]:
    """Return systemd's limits (`DefaultLimitNOFILE`) that differ, each with its actual value."""
    if not desired:
        return {}
    done = _run(["systemctl", "show"] + ["--property=" + name for name in desired])
    if done.returncode:
        raise Failed(f"the limits of services cannot be read: {find_last_error(done)}")
    current = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return list_unmet(desired, current)


def reload_systemd() -> None:
    """Have systemd reread its configuration; running services continue."""
    done = _run(["systemctl", "daemon-reexec"])
    if done.returncode:
        raise Failed(f"systemd does not read its limits anew: {find_last_error(done)}")


def count_hugepages() -> int:
    """Return the number of hugepages of the default size."""
    with open(os.path.join(PROC, "vm/nr_hugepages"), encoding="ascii") as file:
        return int(file.read())


def enlarge_hugepages(pages: int) -> int:
    """Compact memory, and try once more; return the resulting number."""
    for name, value in (("compact_memory", 1), ("nr_hugepages", pages)):
        with open(os.path.join(PROC, "vm", name), "w", encoding="ascii") as file:
            file.write(f"{int(value)}\n")
    return count_hugepages()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)


def find_last_error(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr or done.stdout).split()) or f"status {int(done.returncode)}"
