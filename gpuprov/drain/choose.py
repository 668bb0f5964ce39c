"""The adapter for a scheduler's name, with the names that hosts have there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpuprov.drain.base import Adapter
from gpuprov.drain.command import Command
from gpuprov.drain.kubernetes.adapter import Kubernetes
from gpuprov.drain.program import needs
from gpuprov.drain.slurm.adapter import Slurm
from gpuprov.errors import GpuprovError

By = Literal["slurm", "kubernetes", "command"]
VARIABLES: dict[By, str] = {"slurm": "host_slurm_node", "kubernetes": "host_kubernetes_node"}
"""Host variables with the name of a node, where it is not the inventory's."""

CLIENTS: dict[By, str] = {"slurm": "scontrol", "kubernetes": "kubectl"}
"""The program by which a scheduler is asked."""


def check_client(by: By) -> None:
    """Raise GpuprovError where this machine cannot ask the scheduler."""
    if by in CLIENTS:
        needs(CLIENTS[by])


def adapter(
    by: By,
    variables: Mapping[str, Mapping[str, object]],
    *,
    command: str = "",
    context: str = "",
    empty_dir: bool = False,
) -> Adapter:
    """The adapter. `variables`: those of each host, by its name. Raises GpuprovError for an option that it does not have."""
    if bool(command) != (by == "command"):
        told = "--by command wants the site's command" if by == "command" else f"{by} takes no command"
        raise GpuprovError(told, "gpuprov drain ... --by command --command 'COMMAND'")
    if by != "kubernetes" and (context or empty_dir):
        raise GpuprovError(
            f"--by {by} does not use kubectl", "--context and --delete-emptydir-data go with --by kubernetes"
        )
    nodes = {host: str(known.get(VARIABLES.get(by, "")) or "") for host, known in variables.items()}
    if by == "slurm":
        return Slurm(nodes)
    return Command(command, nodes) if by == "command" else Kubernetes(nodes, context=context, empty_dir=empty_dir)
