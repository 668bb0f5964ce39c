"""Shared outcomes and texts of several capabilities: held packages, units that start or configure something at boot,
file headers."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuprov.capabilities.base import Change, Context, Outcome, fail, not_asked, ok
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.software.packages import LOCKING, NO_LOCK_PLUGIN, Package
from gpuprov.hardware.environment import list_obstacles
from gpuprov.host_code.packages.dnf import LOCK_PLUGIN
from gpuprov.host_code.wanted_units import BRIEFLY, MASKED

APPLY = "gpuprov apply"
# The first line of files that gpuprov writes whole.
HEADER = "# Managed by gpuprov: change the inventory, then apply again.\n"
# Units that start work on GPUs and RDMA devices: their programs read the devices once, when they start, and keep the
# result.
STARTING = (
    *("docker.service", "containerd.service", "crio.service", "podman.service", "podman-restart.service"),
    *("kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"),
    "slurmd.service",
)
# Ordering of units that configure something at boot.
BEFORE = f"Before={' '.join(STARTING[:7])}\nBefore={' '.join(STARTING[7:])}\n"
# Probes of `held`, besides the packages.
HOLDING = (system.OS_RELEASE, LOCKING)
TRY_BY_HAND = "see what apt-get -s install, or dnf install --assumeno, says of these packages on the host"
HELD, NOT_HELD = "held", "not held"
SHOWN = "apt-mark showhold; dnf versionlock list; zypper locks"


def held(facts: Facts, installed: Mapping[str, Package], what: str, *, hold: bool) -> Outcome:
    """Return whether each of these packages is held and holding works; or, if they are not to be held, whether none is
    held."""
    commands, complaint = words(facts.get(system.OS_RELEASE)), facts.get(LOCKING)
    word, other, command = (HELD, NOT_HELD, commands.hold) if hold else (NOT_HELD, HELD, commands.unhold)
    if not installed:
        return fail(word, f"no package of {what} is installed", APPLY)
    expected = f"{len(installed)} package{'' if len(installed) == 1 else 's'} {word}"
    states = [state for name, package in installed.items() for state in package.each or ((name, package.held),)]
    wrong = sorted({called for called, is_held in states if is_held != hold})
    changes = list_holds(wrong, word, other)
    problems = [f"{other}: {' '.join(wrong)}"] * bool(wrong)
    if hold and complaint:
        way = "correct that setting: upgrades move what is held"
        if complaint == NO_LOCK_PLUGIN:
            way = f"{commands.install} {LOCK_PLUGIN}"
        return fail(expected, "; ".join([complaint, *problems]), f"{way}; then {APPLY}", changes=changes)
    if wrong:
        return fail(expected, problems[0], f"{command} {' '.join(wrong)}", changes=changes)
    return ok(expected)


def list_holds(names: Iterable[str], word: str = HELD, other: str = NOT_HELD) -> list[Change]:
    """Return the changes that hold these packages, or release them, as the package manager reports them."""
    return [Change(kind="hold", name=name, before=other, after=word) for name in names]


# Output of `systemctl is-enabled` for units that have something to enable:
# https://www.freedesktop.org/software/systemd/man/systemctl.html
CAN_BE_ENABLED = ("disabled", "indirect", "linked", "linked-runtime", "enabled-runtime", MASKED, BRIEFLY)


def enabling(units: Mapping[str, str]) -> str:
    """Return how to enable units, by name and by systemd's state of each: by apply, if a unit is missing or has nothing
    to enable."""
    if not units or not set(units.values()) <= set(CAN_BE_ENABLED):
        return APPLY
    return "; ".join(filter(None, [unmasking(units), f"systemctl enable --now {' '.join(units)}"]))


def unmasking(units: Mapping[str, str]) -> str:
    """Return how to unmask those of these units that are masked, by name and by systemd's state; empty if none is."""
    masked = [name for name, state in units.items() if state == MASKED]
    briefly = [name for name, state in units.items() if state == BRIEFLY]
    steps = [f"systemctl unmask {' '.join(masked)}"] * bool(masked)
    return "; ".join([*steps, *[f"systemctl unmask --runtime {' '.join(briefly)}"] * bool(briefly)])


def by_unit(load: str, fix: str) -> str:
    """Return how to fix a unit that is not running: by apply, if it does not exist."""
    return APPLY if load == "not-found" else fix


def environment_outcome(ctx: Context[Any]) -> Outcome:
    """Judge what is set for everybody, for a host and for its health."""
    if not pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return not_asked("no NVIDIA GPU on the PCI bus")
    expected = "no system-wide variable interferes with CUDA"
    obstacles = list_obstacles(ctx.facts, mps="mps" in ctx.host.capabilities)
    if not obstacles:
        return ok(expected)
    ways = dict.fromkeys(way for _, way in obstacles)
    return fail(expected, "; ".join(words for words, _ in obstacles), f"take {', '.join(ways)}; then log in again")
