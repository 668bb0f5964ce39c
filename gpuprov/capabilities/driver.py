"""The driver as other capabilities see it: the one that the spec asks for, and the installed one."""

from collections.abc import Iterable
from typing import Any

from gpuprov.capabilities.base import Change, Context, Outcome, fail
from gpuprov.catalog.drivers.sets import is_gpu_service
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import system
from gpuprov.rules import resolve
from gpuprov.spec.model import HostSpec


def find_requested_version(host: HostSpec) -> str:
    """Return the version or branch that the spec names; empty if it names none."""
    version = str(getattr(host.capabilities.get("nvidia_driver"), "version", "any"))
    return "" if version == "any" else version


def find_requested_branch(host: HostSpec) -> int:
    """Return its branch; 0 if the spec names none."""
    return _parse_branch(find_requested_version(host))


def find_current_version(facts: Facts) -> str:
    """Return the version of the installed user-mode driver, else of the loaded module; empty if there is none."""
    return facts.get(nvidia.LIBRARIES).get("libcuda", "") or facts.get(nvidia.DRIVER).version


def find_current_branch(facts: Facts) -> int:
    """Return its branch; 0 if there is none."""
    return _parse_branch(find_current_version(facts))


def explain_absent_driver(facts: Facts) -> str:
    """Return the reason why a container is not checked: its machine has no driver loaded; empty elsewhere."""
    kind = facts.get(system.CONTAINER)
    if not kind or facts.get(nvidia.DRIVER).version:
        return ""
    return f"{kind} container: the driver is the machine's, and none is loaded there"


def find_target_branch(host: HostSpec, facts: Facts) -> int:
    """Return the branch that the spec asks for, else the installed one; 0 if that is unknown."""
    return find_requested_branch(host) or find_current_branch(facts)


def judge_holders(ctx: Context[Any], changes: Iterable[Change]) -> Outcome:
    """Return whether services alone hold GPUs, which apply stops for a driver that is unloaded. changes: its
    modules'."""
    holders = ctx.facts.get(nvidia.CLIENTS)
    moves = [*changes]
    moves += [
        Change(kind="client", name=f"{c.command} ({c.unit or 'process'} {c.pid})", after="stopped") for c in holders
    ]
    users = [c for c in holders if not is_gpu_service(c.unit, ctx.host.site)]
    if users:
        listed = ", ".join(f"{client.command} pid {client.pid} {client.unit}".strip() for client in users)
        fix = "stop or drain them first, or give apply a drain command: --drain COMMAND"
        return fail("no process of a user holds a GPU", listed, fix, changes=moves)
    return Outcome(
        status="pass", expected="services only", found=counted(len(holders), "service"), changes=tuple(moves)
    )


def _parse_branch(version: str) -> int:
    return resolve.order(version)[0] if version else 0
