"""Kubernetes: nodes are cordoned by a change that names the run, pods leave by the Eviction API, GPU operands by their node labels.

Each change of a node is one patch, made only if nobody has changed the node since it was read: a client that is killed leaves no
half of one. A node that somebody else has cordoned is left as it is. https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gpuprov import reading
from gpuprov.drain.base import State, Step, checked_run, node_of
from gpuprov.drain.kubernetes_cluster import PATH, Cluster, Node, Refused
from gpuprov.drain.kubernetes_pods import leave, operands_there
from gpuprov.drain.program import LIMIT, Unanswered

NOTE = "gpuprov/drain"
"""The annotation by which a node is known to be ours."""
BY_APPLY = "gpuprov/paused"
"""That of `gpuprov apply --drain kubernetes`."""
OPERANDS, DRIVER, PAUSED = "nvidia.com/gpu.deploy.", "nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade"
"""Labels by which the GPU operator's DaemonSets choose nodes, and the value by which NVIDIA's k8s-driver-manager takes them off:
https://github.com/NVIDIA/k8s-driver-manager"""
LAST = "nvidia.com/gpu.deploy.dra-driver"
"""The DRA driver's kubelet plugin: claims of other pods are given back through it, so that it goes after them."""
UPGRADE, UPGRADED = "nvidia.com/gpu-driver-upgrade-state", "upgrade-done"
"""Of the GPU operator's upgrade controller: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-driver-upgrades.html"""
TRIES = 4
"""How often a change is begun anew where somebody else has changed the node in between; kubelet does, too."""
ELSEWHERE = "set host_kubernetes_node for the host, if the cluster calls it otherwise; kubectl get nodes lists them"


class Note(msgspec.Struct, frozen=True):
    """What stands in the annotation: which run has the node, and the labels that it has changed."""

    run: str
    paused: tuple[str, ...] = ()


class Told(msgspec.Struct, frozen=True):
    """What became of a step, of the node as it was read last."""

    state: State
    node: Node
    message: str = ""
    hint: str = ""
    waits: tuple[str, ...] = ()


class Kubernetes:
    """Through kubectl. `nodes`: names of nodes, of hosts that have another one in the inventory; `context`: one of kubectl's.

    `empty_dir`: evict pods that have an emptyDir, whose data is lost then; else they are waited for, as `kubectl drain` does.
    """

    name = "kubernetes"

    def __init__(
        self,
        nodes: Mapping[str, str] | None = None,
        limit: float = LIMIT,
        *,
        context: str = "",
        empty_dir: bool = False,
    ) -> None:
        self._nodes, self._cluster, self._empty_dir = nodes or {}, Cluster(limit, context), empty_dir

    def drain(self, host: str, run: str) -> Step:
        """Cordon the node. Its pods stay for now."""
        return self._step(host, run, self._drain)

    def drained(self, host: str, run: str) -> Step:
        """Ask for the eviction of what is there, then take GPU operands off, and say what is still there."""
        return self._step(host, run, self._drained)

    def returned(self, host: str, run: str, green: bool) -> Step:
        """Put labels back and uncordon, if this run has cordoned the node."""
        return self._step(host, run, lambda node, run: self._returned(node, run, green=green))

    def _step(self, host: str, run: str, do: Callable[[Node, str], Told]) -> Step:
        checked_run(run)
        name = node_of(host, self._nodes)
        if not PATH.fullmatch(name):
            return _step(host, name, "refused", f"{name[:80]!r} is no name of a node", ELSEWHERE)
        try:
            for _ in range(TRIES):
                try:
                    told = do(self._cluster.node(name), run)
                except Refused as problem:
                    if problem.kind != "Conflict":
                        raise
                else:
                    return Step(
                        host=host, node=name, state=told.state, read=shown(told.node), waits_for=told.waits,
                        message=told.message, hint=told.hint,
                    )  # fmt: skip
        except Unanswered as problem:
            return _step(host, name, "unknown", f"Kubernetes was not asked to the end: {problem}")
        except Refused as problem:
            if problem.kind == "NotFound":
                return _step(host, name, "refused", f"Kubernetes knows no node {name}: {problem}", ELSEWHERE)
            if problem.kind in ("Forbidden", "Unauthorized"):
                return _step(host, name, "refused", str(problem), "docs/how-to/drain.md has the rights that it needs")
            return _step(host, name, "unknown", f"{problem.kind}: {problem}")
        return _step(host, name, "unknown", f"somebody else has changed the node {TRIES} times meanwhile")

    def _drain(self, node: Node, run: str) -> Told:
        note = noted(node)
        if note is None:
            if other := others(node):
                return Told("refused", node, other, "it is left as it is")
            after = self._cluster.change(node, _patch(Note(run), {}, cordoned=True))
            return Told("done", after) if after.spec.unschedulable else Told("unknown", after, "it is not cordoned")
        return self._unless_ours(node, note, run) or Told("done", node)

    def _drained(self, node: Node, run: str) -> Told:
        note = noted(node)
        if note is None:
            return Told(
                "refused", node, others(node) or "it is in service: it was not drained, or somebody has given it back"
            )
        if wrong := self._unless_ours(node, note, run):
            return wrong
        pods = self._cluster.pods(node.metadata.name)
        if waits := leave(self._cluster, pods, empty_dir=self._empty_dir):
            return Told("waiting", node, "pods are on it", waits=waits)
        there = sorted(
            key for key, value in node.metadata.labels.items() if key.startswith(OPERANDS) and value == "true"
        )
        for group in ([key for key in there if key not in (DRIVER, LAST)], [key for key in there if key == LAST]):
            if group:
                note = Note(run, (*note.paused, *group))
                node = self._cluster.change(node, _patch(note, dict.fromkeys(group, PAUSED), cordoned=True))
            if waits := operands_there(pods, note.paused):
                return Told("waiting", node, "GPU operands are on it", waits=waits)
        kept = "" if note.paused else f"no label {OPERANDS}*: pods of DaemonSets stay"
        return Told("done", node, kept)

    def _returned(self, node: Node, run: str, *, green: bool) -> Told:
        note = noted(node)
        if note is None:
            other = others(node)
            return Told("refused", node, other, "it is left as it is") if other else Told("done", node)
        if note.run != run:
            return _of_run(node, note)
        if not green:
            return Told("refused", node, "it stays cordoned: it is not known to be as its spec says")
        labels = node.metadata.labels
        back: dict[str, str] = {key: "true" for key in note.paused if labels.get(key) == PAUSED}
        after = self._cluster.change(node, _patch(None, back, cordoned=False))
        return Told("unknown", after, "it is still cordoned") if after.spec.unschedulable else Told("done", after)

    @staticmethod
    def _unless_ours(node: Node, note: Note, run: str) -> Told | None:
        if note.run != run:
            return _of_run(node, note)
        if not node.spec.unschedulable:
            told = f"somebody else has uncordoned it: gpuprov undrain --run {run} takes the run's note off it"
            return Told("refused", node, "it is in service", told)
        return None


def noted(node: Node) -> Note | None:
    """The note of the run that has the node; one of no run where it cannot be read."""
    text = node.metadata.annotations.get(NOTE)
    if text is None:
        return None
    try:
        return reading.typed_json(text, Note)
    except reading.Unreadable:
        return Note(run="?")


def others(node: Node) -> str:
    """What somebody else does with a node that has no note of ours; nothing where nobody does."""
    metadata = node.metadata
    if BY_APPLY in metadata.annotations:
        return f"a gpuprov apply --drain kubernetes has it (annotation {BY_APPLY})"
    if node.spec.unschedulable:
        return "somebody else has cordoned it"
    paused = {
        key: value for key, value in metadata.labels.items() if key.startswith(OPERANDS) and "paused-for" in value
    }
    if paused:
        return (
            f"another change of driver or MIG is under way: {', '.join(f'{k}={v}' for k, v in sorted(paused.items()))}"
        )
    if metadata.labels.get(UPGRADE, UPGRADED) != UPGRADED:
        return f"the GPU operator upgrades its driver: {UPGRADE}={metadata.labels[UPGRADE]}"
    return ""


def shown(node: Node) -> str:
    """What was read of a node, as kubectl would be asked for it."""
    paused = sorted(
        key for key, value in node.metadata.labels.items() if key.startswith(OPERANDS) and "paused-for" in value
    )
    told = [f"unschedulable={str(node.spec.unschedulable).lower()}"]
    told += [f"{NOTE}={node.metadata.annotations[NOTE]}"] if NOTE in node.metadata.annotations else []
    return " ".join([*told, *(f"{key}={node.metadata.labels[key]}" for key in paused)])


def _patch(note: Note | None, labels: dict[str, str], *, cordoned: bool) -> dict[str, Any]:
    """One change of note, labels and cordon; None takes the note off."""
    text = None if note is None else json.dumps(msgspec.to_builtins(note))
    metadata: dict[str, Any] = {"annotations": {NOTE: text}}
    metadata |= {"labels": labels} if labels else {}
    return {"metadata": metadata, "spec": {"unschedulable": True if cordoned else None}}


def _of_run(node: Node, note: Note) -> Told:
    if note.run == "?":
        return Told("refused", node, f"its annotation {NOTE} cannot be read", "it is left as it is")
    return Told("refused", node, f"run {note.run} has it", f"gpuprov undrain --run {note.run} gives it back")


def _step(host: str, node: str, state: State, message: str, hint: str = "") -> Step:
    return Step(host=host, node=node, state=state, message=message, hint=hint)
