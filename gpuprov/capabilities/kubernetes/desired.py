"""What the role brings about: the node's files, and its labels as the cluster still lacks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.kubernetes import documents
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.probe.containers import kubernetes
from gpuprov.resources import Absent, File, Resource, role_values


def desired(ctx: Context[Kubernetes]) -> Iterator[Resource]:
    """The node's files, and none that the spec no longer asks for. kubernetes.files compares them by what they mean: a spec that
    export made says more than the one that was applied."""
    made = documents.documents(ctx.host, ctx.fragment)
    for name in catalogue.FILES:
        path = f"{kubernetes.DIRECTORY}/{name}"
        yield File(path, HEADER + documents.text(made[name]), by_meaning=True) if name in made else Absent(path)


def make(ctx: Context[Kubernetes]) -> dict[str, Any]:
    """What its resources are. `label`: the command that sets the labels."""
    return {**role_values(desired(ctx), "files", "absent"), "label": label(ctx)}


def label(ctx: Context[Kubernetes]) -> list[str]:
    """kubectl's arguments; empty where the labels are right, or the site's."""
    node = ctx.facts.get(kubernetes.NODE)
    if not ctx.fragment.label_node or node.labels is None:
        return []
    has = node.labels
    wanted = documents.labels(ctx.host, ctx.fragment)
    wrong = [f"{key}={value}" for key, value in wanted.items() if has.get(key) != value]
    wrong += [f"{key}-" for key, value in documents.unwanted(ctx.host, ctx.fragment).items() if has.get(key) == value]
    command = [node.kubectl, f"--kubeconfig={node.kubeconfig}", "label", "--overwrite", "node", node.name]
    return [*command, *wrong] if wrong else []


RESOURCES = Resources(
    desired,
    lambda _host, _block: [f"{kubernetes.DIRECTORY}/{name}" for name in catalogue.FILES],
    files_check="contents",
)
DESIRED = Desired(
    (kubernetes.NODE,),
    make,
)
