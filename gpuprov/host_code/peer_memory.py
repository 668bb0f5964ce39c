"""A module for peer memory in the running kernel: loaded by its unit, with its parameters, and without its
alternative."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Collection, Mapping, Sequence

from . import kernel_lines
from .failed import Failed
from .files import read
from .systemd import is_active
from .units import restart

MODULES = "/sys/module"


def compare(
    name: str, other: str, parameters: Mapping[str, str], loaded: Collection[str], values: Mapping[str, str]
) -> dict[str, str]:
    """Return what differs, modules and parameters, each as it is. `loaded`, `values`: the modules and parameters of the
    running kernel. A parameter that the loaded module does not have is ignored. Pure: checks on the controller use it
    too."""
    differing = {other: "loaded"} if other in loaded else {}
    if name not in loaded:
        return {**differing, name: "not loaded"}
    return differing | {key: values[key] for key, value in parameters.items() if values.get(key, "") not in ("", value)}


def list_differences(name: str, other: str, parameters: Mapping[str, str]) -> list[str]:
    """List the differences of this host, in words."""
    loaded = [module for module in (name, other) if module and os.path.isdir(f"{MODULES}/{module}")]
    values = {key: read(f"{MODULES}/{name}/parameters/{key}").strip() for key in parameters}
    return [f"{key} is {value}" for key, value in compare(name, other, parameters, loaded, values).items()]


def load(unit: str, name: str, other: str, parameters: Mapping[str, str], causes: Sequence[Mapping[str, str]]) -> None:
    """Have the unit load it. Raises Failed."""
    if other and os.path.isdir(f"{MODULES}/{other}"):
        unload_both(name, other)
    if not is_active(unit) and os.path.isdir(f"{MODULES}/{name}"):
        # A unit that did not run has nothing to stop: a module that something else loaded would stay, with its
        # parameters.
        unload_module(name)
    status, lines = restart(unit)
    if status:
        raise Failed(f"{name} does not load: {explain_failure(lines, causes)}")
    # A module in use does not leave, and keeps its parameters: the unit has nothing to do then, and does not fail.
    if remaining := list_differences(name, other, parameters):
        raise Failed(
            f"{name} stays as it was loaded ({', '.join(remaining)}), for it is in use. Fix: end what uses RDMA on "
            "the host, or reboot it; then apply again"
        )


def unload_both(name: str, other: str) -> None:
    """Unload both modules, which register the same client."""
    problem = unload_module(other)
    if problem:
        raise Failed(
            f"{other} does not leave: {problem}; it and {name} register the same client. Fix: end what uses RDMA on "
            "the host, or reboot it; then apply again"
        )


def unload_module(name: str) -> str:
    """Unload the module; return rmmod's error message, "" if the module was unloaded."""
    done = subprocess.run(["rmmod", name], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.stderr.decode(errors="replace").strip() or "rmmod failed" if done.returncode else ""


def explain_failure(lines: Sequence[str], causes: Sequence[Mapping[str, str]]) -> str:
    """Return the messages of modprobe and the kernel, and their meaning according to the first cause whose `text` (a
    regular expression) matches."""
    kernel = kernel_lines.list_messages(read_kernel_log(), kernel_lines.PEER_MEMORY)[-4:]
    message = " | ".join([*(line for line in lines if "modprobe" in line.lower()), *kernel])
    for cause in causes:
        if re.search(cause["text"], message):
            return f"{message}. That is: {cause['cause']}. Fix: {cause['way']}"
    message = message or "the kernel says nothing of it"
    return f"{message}. Fix: gpuprov verify says what it was built against (gpudirect_rdma.built)"


def read_kernel_log() -> Sequence[str]:
    try:
        words = ["journalctl", "-q", "-k", "-b", "--no-pager", "-o", "short-unix"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.decode(errors="replace").splitlines()
