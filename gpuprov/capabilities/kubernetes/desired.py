"""Desired state of the role: the node's files, and the labels that it still lacks in the cluster."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.kubernetes import documents
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.facts.probes.containers import kubernetes
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Resource, role_values


def desired(ctx: Context[Kubernetes]) -> Iterator[Resource]:
    """Yield the node's files, and the removal of those that the spec no longer asks for. kubernetes.files compares them
    by meaning: a spec made by export is more explicit than the one that was applied."""
    made = documents.documents(ctx.host, ctx.fragment)
    for name in catalogue.FILES:
        path = f"{kubernetes.DIRECTORY}/{name}"
        yield File(path, HEADER + documents.text(made[name]), by_meaning=True) if name in made else Absent(path)


def make(ctx: Context[Kubernetes]) -> dict[str, Json]:
    """Return the values of its resources, and the command that sets the labels."""
    argv = label(ctx)
    return {**role_values(desired(ctx), "files", "absent"), "tasks": {"label": {"argv": argv}} if argv else {}}


def label(ctx: Context[Kubernetes]) -> list[str]:
    """Return kubectl's arguments; empty if the labels are right, or set by the site."""
    node = ctx.facts.get(kubernetes.NODE)
    if not ctx.fragment.label_node or node.labels is None:
        return []
    has = node.labels
    labels = documents.labels(ctx.host, ctx.fragment)
    wrong = [f"{key}={value}" for key, value in labels.items() if has.get(key) != value]
    wrong += [f"{key}-" for key, value in documents.unwanted(ctx.host, ctx.fragment).items() if has.get(key) == value]
    command = [node.kubectl, f"--kubeconfig={node.kubeconfig}", "label", "--overwrite", "node", node.name]
    return [*command, *wrong] if wrong else []


RESOURCES = Resources(
    desired,
    lambda _host, _block: [f"{kubernetes.DIRECTORY}/{name}" for name in catalogue.FILES],
    files_check="contents",
)
DESIRED = Desired((kubernetes.NODE,), make)
