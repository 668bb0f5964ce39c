"""Have users' processes leave the GPUs of a host: by the site's command, which runs there, or by kubectl, which runs
here.

state: drained, or returned, which gives back a Kubernetes node that this run has drained.
command: The site's, or `kubernetes` with its options; if empty, nothing is done.
node: The Kubernetes node.
services: Units of gpuprov that hold GPUs and do not count as users.
guests: True to count a GPU that a virtual machine has, too.
always: True to drain even if nobody holds a GPU.
"""

from typing import TypedDict

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import TreeView
from gpuprov.fleet.drain import in_play, noted
from gpuprov.play.host import Host, Result, succeeded


class Arguments(TypedDict, total=False):
    """Those of the task."""

    state: str
    command: str
    node: str
    services: list[str]
    guests: bool
    always: bool


def run(host: Host, arguments: Arguments) -> Result:
    """Drain the host, or give its node back. Raises StepFailed and GpuprovError."""
    command, node, owner = (
        str(arguments.get("command") or ""),
        str(arguments.get("node") or ""),
        _find_owner(host.variables),
    )
    cluster = in_play.parse_options(command, owner)
    if arguments["state"] == "returned":
        return _return(host, cluster, node, owner)
    if not command or not (arguments.get("always") or _list_holders(host, arguments)):
        return {"changed": False}
    if host.check_mode:
        return {"changed": True}
    if cluster is None:
        _run_script(host, command)
        return {"changed": True}
    whose = _run_script(host, noted.written("kubernetes", owner, host.name, over=False))
    try:
        warning = in_play.take_out(cluster, node, owner)
    except GpuprovError:
        if whose == noted.NEW and in_play.left(cluster, node, owner) != owner:
            _run_script(host, noted.gone(owner))
        raise
    if whose == noted.THEIRS:  # of a run that has it no more
        _run_script(host, noted.written("kubernetes", owner, host.name, over=True))
    return {"changed": True, "warnings": [f"node {node}: {warning}"] if warning else []}


def _return(host: Host, cluster: in_play.Asked | None, node: str, owner: str) -> Result:
    """Give the node back; `gpuprov apply` gives nodes back by itself, after its verify."""
    if cluster is None or not owner or host.check_mode or host.variables.get("gpuprov_verified_later"):
        return {"changed": False}
    if succeeded(host.step("reason"))["reasons"]:
        return {"changed": False}
    changed, why = in_play.give_back(cluster, node, owner, green=not _has_failed_change(host.variables))
    if changed:
        _run_script(host, noted.gone())
    return {"changed": changed, "warnings": [why] if why else []}


def _list_holders(host: Host, arguments: Arguments) -> list[str]:
    services, guests = list(arguments.get("services") or []), arguments.get("guests", False)
    return succeeded(host.step("clients", state="listed", services=services, guests=guests))["clients"]


def _run_script(host: Host, script: str) -> str:
    return str(succeeded(host.step("command", argv=["/bin/sh", "-c", script])).get("stdout") or "").strip()


def _find_owner(variables: TreeView) -> str:
    """Return the run that has the host's lock, which identifies the node as its own."""
    owner = (variables.get("host_lock") or {}).get("run") or variables.get("gpuprov_run") or {}
    return str(owner.get("run") or "")


def _has_failed_change(variables: TreeView) -> bool:
    """Return whether an act that changes something has failed."""
    return "host_failed" in variables and int(variables.get("gpuprov_act") or 2) > 1
