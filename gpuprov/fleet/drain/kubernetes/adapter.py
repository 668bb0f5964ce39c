"""Kubernetes: nodes are cordoned by a change that names the run, pods leave by the Eviction API, GPU operands by their
node labels.

Each change of a node is one patch, made only if nobody has changed the node since it was read: a client that is killed
leaves no half of one. A node that somebody else has cordoned is left as it is, and operators that would take ours are
kept off it. https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/
"""

import json
from collections.abc import Callable, Mapping

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.fill import fill
from gpuprov.fleet.drain.base import RUN, State, Step, Told, checked_run, find_node_name, format_undrain
from gpuprov.fleet.drain.kubernetes.cluster import PATH, Cluster, Node, Refused
from gpuprov.fleet.drain.kubernetes.operators import HANDS_OFF, describe_order, describe_work, hands_off_labels
from gpuprov.fleet.drain.kubernetes.pods import evict_pods, list_operands, list_pods
from gpuprov.fleet.drain.program import LIMIT, Unanswered
from gpuprov.host_code.json_members import Json

# The annotation that marks a node as ours.
NOTE = "gpuprov/drain"
# Labels by which the GPU operator's DaemonSets choose nodes, and the value by which NVIDIA's k8s-driver-manager takes
# them off: https://github.com/NVIDIA/k8s-driver-manager
OPERANDS, DRIVER, PAUSED = "nvidia.com/gpu.deploy.", "nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade"
# The DRA driver's kubelet plugin: claims of other pods are given back through it, so that it goes after them.
LAST = "nvidia.com/gpu.deploy.dra-driver"
# Of the GPU operator's upgrade controller:
# https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-driver-upgrades.html
UPGRADE, UPGRADED = "nvidia.com/gpu-driver-upgrade-state", "upgrade-done"
CORDONED = "somebody else has cordoned it"
NOT_OURS = "no apply of this run has drained it"
AWAY = {key: value for labels in HANDS_OFF.values() for key, value in labels.items()}
# Number of attempts of a change if somebody else changes the node in between; kubelet does, too.
TRIES = 4
RIGHTS = "needed: nodes get, patch; pods list; pods/eviction create; poddisruptionbudgets list"
ELSEWHERE = "set host_kubernetes_node for the host, if the cluster calls it otherwise; kubectl get nodes lists them"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of the annotation: the run that has the node, and the labels that it has changed.

    apply: an apply has it, for as long as it has the host's lock. paused: operands' labels that were "true". hands_off:
    labels that keep other operators away, with their values before (None: absent).
    """

    run: str
    apply: bool = False
    paused: tuple[str, ...] = ()
    hands_off: dict[str, str | None] = {}


class Kubernetes:
    """The adapter, through kubectl. `nodes`: names of nodes that differ from the inventory's; `context`: one of
    kubectl's.

    `empty_dir`: evict pods that have an emptyDir, whose data is then lost; otherwise they are waited for. `apply`: for
    an apply, which has the host's lock: a node that an earlier apply has left is its own, one that was not drained by
    an apply is not given back, and no pod is evicted while there is one that cannot be, as in `kubectl drain`.
    """

    name = "kubernetes"

    def __init__(
        self,
        nodes: Mapping[str, str] | None = None,
        limit: float = LIMIT,
        *,
        context: str = "",
        empty_dir: bool = False,
        apply: bool = False,
    ) -> None:
        self._nodes, self._cluster = nodes or {}, Cluster(limit, context)
        self._empty_dir, self._apply, self._context = empty_dir, apply, context

    def drain(self, host: str, run: str) -> Step:
        """Cordon the node. Its pods stay for now."""
        return self._step(host, run, self._drain)

    def drained(self, host: str, run: str) -> Step:
        """Ask for the eviction of pods on the node, then take GPU operands off, and report what is still on it."""
        return self._step(host, run, self._drained)

    def returned(self, host: str, run: str, green: bool) -> Step:
        """Restore labels and uncordon, if this run has cordoned the node."""
        return self._step(host, run, lambda node, run: self._returned(node, run, green=green))

    def left(self, host: str, run: str) -> Step:
        """Report the apply that has the node out, as the message; empty if no apply has."""
        return self._step(host, run, self._left)

    def _step(self, host: str, run: str, do: Callable[[Node, str], Told[Node]]) -> Step:
        checked_run(run)
        name = find_node_name(host, self._nodes)
        if not PATH.fullmatch(name):
            return _step(host, name, "refused", f"{name[:80]!r} is not a name of a node", ELSEWHERE)
        try:
            for _ in range(TRIES):
                try:
                    result = do(self._cluster.node(name), run)
                except Refused as problem:
                    if problem.kind != "Conflict":
                        raise
                else:
                    return fill(Step, result, host=host, node=name, read=shown(result.node))
        except Unanswered as problem:
            return _step(host, name, "unknown", f"Kubernetes was not asked to the end: {problem}")
        except Refused as problem:
            if problem.kind == "NotFound":
                return _step(host, name, "refused", f"Kubernetes knows no node {name}: {problem}", ELSEWHERE)
            if problem.kind in ("Forbidden", "Unauthorized"):
                return _step(host, name, "refused", str(problem), RIGHTS)
            return _step(host, name, "unknown", f"{problem.kind}: {problem}")
        return _step(host, name, "unknown", f"somebody else has changed the node {TRIES} times meanwhile")

    def _drain(self, node: Node, run: str) -> Told[Node]:
        note = noted(node)
        if note is None:
            groups = self._cluster.groups()
            if other := others(node) or describe_order(self._cluster, groups, node.metadata.name):
                return self._refuse_for_others(node, other)
            away = hands_off_labels(groups, node)
            before = {key: node.metadata.labels.get(key) for key in away}
            return self._cordoned(node, Note(run, apply=self._apply, hands_off=before), away)
        if self._apply and note.apply and note.run != run and node.spec.unschedulable:
            return self._cordoned(node, msgspec.structs.replace(note, run=run), {})
        return self._unless_ours(node, note, run) or Told("done", node)

    def _cordoned(self, node: Node, note: Note, labels: Mapping[str, str]) -> Told[Node]:
        after = self._cluster.change(node, _patch(note, labels, cordoned=True))
        return Told("done", after) if after.spec.unschedulable else Told("unknown", after, "it is not cordoned")

    def _drained(self, node: Node, run: str) -> Told[Node]:
        note = noted(node)
        if note is None:
            if other := others(node):
                return self._refuse_for_others(node, other)
            return Told("refused", node, "it is in service: it was not drained, or somebody has given it back")
        if wrong := self._unless_ours(node, note, run):
            return wrong
        pods = self._cluster.pods(node.metadata.name)
        waits, holds = evict_pods(self._cluster, pods, empty_dir=self._empty_dir, all_or_none=self._apply)
        if waits:
            return Told("waiting", node, "pods are on it", waits_for=waits, holds=holds)
        deployed = sorted(
            key for key, value in node.metadata.labels.items() if key.startswith(OPERANDS) and value == "true"
        )
        for group in ([key for key in deployed if key not in (DRIVER, LAST)], [key for key in deployed if key == LAST]):
            if group:
                note = msgspec.structs.replace(note, paused=(*note.paused, *group))
                node = self._cluster.change(node, _patch(note, dict.fromkeys(group, PAUSED), cordoned=True))
            if waits := list_operands(pods, note.paused):
                return Told("waiting", node, "GPU operands are on it", waits_for=waits)
        kept = "" if note.paused else f"no label {OPERANDS}*: pods of DaemonSets stay"
        return Told("done", node, kept)

    def _returned(self, node: Node, run: str, *, green: bool) -> Told[Node]:
        note = noted(node)
        if self._apply and not (note and note.apply and note.run == run):
            return Told("done", node, NOT_OURS)
        if note is None:
            other = others(node)
            return Told("refused", node, other, "it is left as it is") if other else Told("done", node)
        if note.run != run:
            return self._refuse_for_run(node, note)
        if not green:
            return Told("refused", node, "it stays cordoned: it is not known to be as its spec says")
        if other := describe_work(node):
            fix = "when that has ended, give it back again: to uncordon it now would stop that"
            return Told("refused", node, f"{other} meanwhile; it stays cordoned", fix)
        labels = node.metadata.labels
        back: dict[str, str | None] = {key: "true" for key in note.paused if labels.get(key) == PAUSED}
        back |= {key: before for key, before in note.hands_off.items() if labels.get(key) == AWAY.get(key)}
        after = self._cluster.change(node, _patch(None, back, cordoned=False))
        return Told("unknown", after, "it is still cordoned") if after.spec.unschedulable else Told("done", after)

    @staticmethod
    def _left(node: Node, _run: str) -> Told[Node]:
        note = noted(node)
        return Told("done", node, note.run if note and note.apply else "")

    def _unless_ours(self, node: Node, note: Note, run: str) -> Told[Node] | None:
        if note.run != run:
            return self._refuse_for_run(node, note)
        if not node.spec.unschedulable:
            fix = f"somebody else has uncordoned it: {self._format_undrain(run)} takes the run's note off it"
            return Told("refused", node, "it is in service", fix)
        if other := describe_work(node):
            return Told("refused", node, f"{other} meanwhile", "it is left as it is")
        return None

    def _refuse_for_others(self, node: Node, other: str) -> Told[Node]:
        refused = Told("refused", node, other, "it is left as it is")
        return self._leave(refused) if other == CORDONED else refused

    def _refuse_for_run(self, node: Node, note: Note) -> Told[Node]:
        if note.run == "?":
            return Told("refused", node, f"its annotation {NOTE} cannot be read", "it is left as it is")
        refused = Told("refused", node, f"run {note.run} has it", f"{self._format_undrain(note.run)} gives it back")
        is_out = node.spec.unschedulable and not describe_work(node)
        return self._leave(refused) if is_out else refused

    def _leave(self, refused: Told[Node]) -> Told[Node]:
        """Refuse a node that somebody else has out, with the pods that are still on it. None is evicted."""
        pods = list_pods(self._cluster.pods(refused.node.metadata.name))
        return msgspec.structs.replace(refused, waits_for=pods, others=True)

    def _format_undrain(self, run: str) -> str:
        return format_undrain(self.name, run, context=self._context)


def noted(node: Node) -> Note | None:
    """Return the note of the run that has the node; one of no run if it cannot be read."""
    text = node.metadata.annotations.get(NOTE)
    if text is None:
        return None
    try:
        note = safe_parse.parse_typed_json(text, Note)
    except safe_parse.Unreadable:
        return Note(run="?")
    return note if RUN.fullmatch(note.run) else Note(run="?")


def others(node: Node) -> str:
    """Describe what somebody else does with a node that has no note of ours; empty if nobody does anything."""
    metadata = node.metadata
    if other := describe_work(node):
        return other
    if node.spec.unschedulable:
        return CORDONED
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
    """Format the fields of a node that were read, as kubectl shows them."""
    paused = sorted(
        key for key, value in node.metadata.labels.items() if key.startswith(OPERANDS) and "paused-for" in value
    )
    fields = [f"unschedulable={str(node.spec.unschedulable).lower()}"]
    fields += [f"{NOTE}={node.metadata.annotations[NOTE]}"] if NOTE in node.metadata.annotations else []
    return " ".join([*fields, *(f"{key}={node.metadata.labels[key]}" for key in paused)])


def _patch(note: Note | None, labels: Mapping[str, str | None], *, cordoned: bool) -> dict[str, Json]:
    """Make one patch of note, labels and cordon; None removes the note."""
    text = None if note is None else json.dumps(msgspec.to_builtins(note))
    metadata: dict[str, Json] = {"annotations": {NOTE: text}}
    metadata |= {"labels": dict(labels)} if labels else {}
    return {"metadata": metadata, "spec": {"unschedulable": True if cordoned else None}}


def _step(host: str, node: str, state: State, message: str, fix: str = "") -> Step:
    return Step(host=host, node=node, state=state, message=message, fix=fix)
