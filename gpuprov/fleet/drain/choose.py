"""Choice of the adapter for a scheduler's name, with the scheduler's names of hosts."""

from collections.abc import Mapping
from typing import Literal

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain.base import Adapter
from gpuprov.fleet.drain.command import Command
from gpuprov.fleet.drain.kubernetes.adapter import Kubernetes
from gpuprov.fleet.drain.program import require_program
from gpuprov.fleet.drain.slurm.adapter import Slurm

By = Literal["slurm", "kubernetes", "command"]
# Host variables with the name of a node, if it differs from the inventory's.
VARIABLES: dict[By, str] = {"slurm": "host_slurm_node", "kubernetes": "host_kubernetes_node"}

# The client program of each scheduler.
CLIENTS: dict[By, str] = {"slurm": "scontrol", "kubernetes": "kubectl"}


def check_client(by: By) -> None:
    """Raise GpuprovError if this machine cannot ask the scheduler."""
    if by in CLIENTS:
        require_program(CLIENTS[by])


def check_options(by: By | Literal[""], *, command: str = "", context: str = "", empty_dir: bool = False) -> None:
    """Raise GpuprovError for an option that the scheduler does not have. `by`: empty if the hosts' specs name it."""
    if by == "command" and not command:
        raise GpuprovError("--by command needs the site's command", "--by command --command 'COMMAND'")
    if command and by != "command":
        message = f"--by {by} takes no command" if by else "--command goes with --by command"
        raise GpuprovError(message, "leave out --command, or give --by command --command 'COMMAND'")
    if by in ("slurm", "command") and (context or empty_dir):
        raise GpuprovError(
            f"--by {by} does not use kubectl", "--context and --delete-emptydir-data go with --by kubernetes"
        )


def adapter(
    by: By,
    variables: Mapping[str, Mapping[str, object]],
    *,
    command: str = "",
    context: str = "",
    empty_dir: bool = False,
) -> Adapter:
    """Make the adapter. `variables`: those of each host, by its name. Raises GpuprovError for an option that it does
    not have."""
    check_options(by, command=command, context=context, empty_dir=empty_dir)
    nodes = {host: str(known.get(VARIABLES.get(by, "")) or "") for host, known in variables.items()}
    if by == "slurm":
        return Slurm(nodes)
    return Command(command, nodes) if by == "command" else Kubernetes(nodes, context=context, empty_dir=empty_dir)
