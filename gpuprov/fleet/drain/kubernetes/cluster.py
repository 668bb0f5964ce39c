"""kubectl: the questions and the few fields of its answers that draining needs."""

import json
import re
from typing import TypeVar

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Tree
from gpuprov.facts.collect.children import Ended
from gpuprov.fleet.drain.program import Unanswered, ask, format_complaint

T = TypeVar("T")

# The annotation of a pod that kubelet made from a file:
# https://kubernetes.io/docs/concepts/workloads/pods/#static-pods
MIRROR = "kubernetes.io/config.mirror"
OVER = ("Succeeded", "Failed")
# A name that can stand in a path: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
PATH = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


# Lines of kubectl's own log, before its complaint: https://github.com/kubernetes/klog
# E1123 18:42:07.447994 1 memcache.go:265] "Unhandled"
LOGGED = re.compile(rb"^[EWI][0-9]{4} [^\n]*\n?", re.MULTILINE)


class Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    deletion_timestamp: str = ""


class NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class Node(msgspec.Struct, frozen=True):
    """A node of the API server."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()


class Volume(msgspec.Struct, frozen=True, rename="camel"):
    empty_dir: Tree | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    volumes: tuple[Volume, ...] = ()
    node_selector: dict[str, str] = {}


class PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod on the node."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def shown(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def owner(self) -> str:
        """Kind of its controller; empty for a pod that nobody would recreate."""
        return next((owner.kind for owner in self.metadata.owner_references if owner.controller), "")

    @property
    def stays(self) -> bool:
        """True if draining leaves the pod: a DaemonSet's, kubelet's own, or one that has ended."""
        return self.owner == "DaemonSet" or MIRROR in self.metadata.annotations or self.status.phase in OVER


class Pods(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class Named(msgspec.Struct, frozen=True):
    name: str = ""


class Groups(msgspec.Struct, frozen=True):
    groups: tuple[Named, ...] = ()


class Event(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class OrderSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    health_event: Event = Event()


class OrderStatus(msgspec.Struct, frozen=True, rename="camel"):
    completion_time: str = ""


class Order(msgspec.Struct, frozen=True):
    """An object that orders an action on a node. A MaintenanceRequest exists for as long as it is to hold."""

    metadata: Metadata
    spec: OrderSpec = OrderSpec()
    status: OrderStatus = OrderStatus()

    @property
    def node(self) -> str:
        """The node that it concerns."""
        return self.spec.node_name or self.spec.health_event.node_name

    @property
    def is_over(self) -> bool:
        """True if it was carried out."""
        return bool(self.status.completion_time)


class Orders(msgspec.Struct, frozen=True):
    items: tuple[Order, ...] = ()


class Refused(Exception):
    """The API server has answered with a refusal. `kind`: its reason, as NotFound, Conflict, Forbidden,
    TooManyRequests."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Cluster:
    """The cluster that kubectl reaches; `context`: of its configuration. `limit`: seconds for one question."""

    def __init__(self, limit: float, context: str = "") -> None:
        self._limit = limit
        self._kubectl = ["kubectl", f"--request-timeout={max(int(limit) - 5, 1)}s"]
        self._kubectl += [f"--context={context}"] if context else []

    def node(self, name: str) -> Node:
        """Read a node. Raises Refused, Unanswered."""
        return self._read(Node, "get", "node", name, "--output=json")

    def pods(self, name: str) -> tuple[Pod, ...]:
        """List all pods on the node. Raises Refused, Unanswered."""
        which = f"--field-selector=spec.nodeName={name}"
        return self._read(Pods, "get", "pods", "--all-namespaces", which, "--output=json").items

    def groups(self) -> frozenset[str]:
        """List the API groups of the cluster, which show what is installed. Raises Refused, Unanswered."""
        return frozenset(group.name for group in self._read(Groups, "get", "--raw=/apis").groups)

    def orders(self, kind: str, group: str) -> tuple[Order, ...]:
        """List objects of a kind; none if the cluster does not have the kind. Raises Refused, Unanswered."""
        try:
            return self._read(Orders, "get", f"{kind}.{group}", "--output=json").items
        except Unanswered as problem:
            if "the server doesn't have a resource type" in str(problem):
                return ()
            raise

    def budgets(self, namespace: str) -> tuple[Tree, ...]:
        """List the PodDisruptionBudgets of a namespace. Raises Refused, Unanswered."""
        document = self._read(Tree, "get", "poddisruptionbudgets", f"--namespace={namespace}", "--output=json")
        items = document.get("items")
        return tuple(item for item in items if isinstance(item, dict)) if isinstance(items, list) else ()

    def change(self, node: Node, patch: Tree) -> Node:
        """Change a node, only if nobody has changed it since it was read, and return it. Raises Refused, Unanswered."""
        metadata = {**patch.get("metadata", {}), "resourceVersion": node.metadata.resource_version}
        text = json.dumps({**patch, "metadata": metadata})
        return self._read(Node, "patch", "node", node.metadata.name, "--type=merge", f"--patch={text}", "--output=json")

    def evict(self, pod: Pod) -> None:
        """Ask for the eviction of this very pod, not of another one with its name. Raises Refused, Unanswered."""
        # https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
        of = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": of,
            "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
        }
        if not all(PATH.fullmatch(part) for part in of.values()):
            raise Unanswered(f"{pod.shown[:80]!r} is not a name of a pod")
        path = f"/api/v1/namespaces/{of['namespace']}/pods/{of['name']}/eviction"
        self._run("create", f"--raw={path}", "--filename=-", stdin=json.dumps(body).encode())

    def _read(self, kind: type[T], *arguments: str) -> T:
        try:
            return safe_parse.parse_typed_json(self._run(*arguments), kind, largest=safe_parse.LARGEST)
        except safe_parse.Unreadable as problem:
            raise Unanswered(f"kubectl {' '.join(arguments[:2])}: {problem}") from None

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        result = ask([*self._kubectl, *arguments], stdin=stdin, limit=self._limit)
        if result.status == 0:
            return result.out
        words = format_complaint(Ended(result.out, LOGGED.sub(b"", result.error), result.status))
        _, separator, rest = words.partition("Error from server (")
        if separator:
            kind, _, message = rest.partition("): ")
            raise Refused(kind, message)
        raise Unanswered(words or f"kubectl ended with {result.status}")
