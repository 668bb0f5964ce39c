"""What the role brings about: the node's files, and its labels as the cluster still lacks them."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.kubernetes import documents
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.probe.containers import kubernetes
from gpuprov.resources import from_values
from gpuprov.spec.model import HostSpec


def texts(host: HostSpec, block: Kubernetes) -> dict[str, str]:
    """The text of each file, by its name in gpuprov's folder."""
    made = documents.documents(host, block)
    return {name: HEADER + documents.text(document) for name, document in made.items()}


def written(ctx: Context[Kubernetes]) -> dict[str, Any]:
    """`files`: text by path. `absent`: files of ours that the spec no longer asks for."""
    made = texts(ctx.host, ctx.fragment)
    return {
        "files": {f"{kubernetes.DIRECTORY}/{name}": text for name, text in made.items()},
        "absent": [f"{kubernetes.DIRECTORY}/{name}" for name in catalogue.FILES if name not in made],
    }


def make(ctx: Context[Kubernetes]) -> dict[str, Any]:
    """What is `written`. `label`: the command that sets the labels."""
    return {
        **written(ctx),
        "label": label(ctx),
    }


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


def judged(ctx: Context[Kubernetes]) -> dict[str, Any]:
    """The files that kubernetes.files compares by what they mean: a spec that export made says more than the one that was applied."""
    made = written(ctx)
    return {"judged": list(made["files"]), "absent": made["absent"]}


RESOURCES = Resources(
    from_values(judged),
    lambda _host, _block: [f"{kubernetes.DIRECTORY}/{name}" for name in catalogue.FILES],
    files_check="contents",
)
DESIRED = Desired(
    (kubernetes.NODE,),
    make,
)
