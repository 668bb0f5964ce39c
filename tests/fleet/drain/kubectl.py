"""A stand-in of kubectl over one file of objects, with the API server's answers as 1.31 gave them.

tests/e2e/test_drain_kubernetes.py has the real ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROGRAM = r"""#!{python}
import json, pathlib, re, sys
path = pathlib.Path({folder!r}) / "cluster.json"
state = json.loads(path.read_text())
words = [word for word in sys.argv[1:] if not word.startswith(("--request-timeout", "--context"))]
with open({folder!r} + "/asked", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\n")
def fail(kind, message):
    print("Error from server (" + kind + "): " + message, file=sys.stderr)
    sys.exit(1)
def merge(old, new):
    for key, value in new.items():
        if value is None:
            old.pop(key, None)
        elif isinstance(value, dict):
            merge(old.setdefault(key, {{}}), value)
        else:
            old[key] = value
if state.get("said") is not None:
    sys.stdout.buffer.write(state["said"].encode("latin-1"))
    sys.exit(0)
if state.get("fails") is not None:
    print(state["fails"], file=sys.stderr)
    sys.exit(1)
node = state["node"]
if words[:2] == ["get", "node"] or words[:2] == ["patch", "node"]:
    if words[2] != "gpu1":
        fail("NotFound", 'nodes "' + words[2] + '" not found')
if words[0] == "patch":
    patch = json.loads(words[4].partition("=")[2])
    if state["conflicts"] or patch["metadata"].pop("resourceVersion") != node["metadata"]["resourceVersion"]:
        state["conflicts"] -= 1
        node["metadata"]["resourceVersion"] += "0"
        if state.get("meanwhile"):
            merge(node, state.pop("meanwhile"))
        path.write_text(json.dumps(state))
        fail("Conflict", 'Operation cannot be fulfilled on nodes "gpu1": the object has been modified; please apply your '
             "changes to the latest version and try again")
    merge(node, patch)
    paused = {{key for key, value in node["metadata"].get("labels", {{}}).items() if "paused-for" in str(value)}}
    if state["operator"]:
        state["pods"] = [pod for pod in state["pods"] if not paused & set(pod["spec"].get("nodeSelector", {{}}))]
    node["metadata"]["resourceVersion"] += "1"
    path.write_text(json.dumps(state))
if words[:2] in (["get", "node"], ["patch", "node"]):
    print(json.dumps(node))
    if words[0] == "get" and state.get("after"):
        merge(node, state.pop("after"))
        node["metadata"]["resourceVersion"] += "2"
        path.write_text(json.dumps(state))
elif words[:2] == ["get", "pods"]:
    print(json.dumps({{"items": state["pods"]}}))
elif words[:2] == ["get", "--raw=/apis"]:
    print(json.dumps({{"kind": "APIGroupList", "groups": [{{"name": name}} for name in state["groups"]]}}))
elif words[:2] == ["get", "poddisruptionbudgets"]:
    print(json.dumps({{"items": state["budgets"]}}))
elif words[0] == "get":
    if words[1] not in state["orders"]:
        sys.exit('error: the server doesn\'t have a resource type "' + words[1].split(".")[0] + '"')
    print(json.dumps({{"items": state["orders"][words[1]]}}))
elif words[0] == "create":
    body = json.load(sys.stdin)
    pod = next(one for one in state["pods"] if one["metadata"]["name"] == body["metadata"]["name"])
    if body["deleteOptions"]["preconditions"]["uid"] != pod["metadata"]["uid"]:
        fail("Conflict", "the UID in the precondition does not match")
    if pod["metadata"]["name"] in state["kept"]:
        fail("TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    pod["metadata"]["deletionTimestamp"] = "2026-11-23T18:00:00Z"
    path.write_text(json.dumps(state))
    print("{{}}")
"""


class Kubectl:
    """A node, gpu1, and what is on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "kubectl").write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
        (folder / "kubectl").chmod(0o755)
        (folder / "asked").touch()
        self.put()

    def put(self, **more: Any) -> None:
        """What there is now: `labels`, `annotations`, `unschedulable`, pods, budgets; what is `kept`; `conflicts`;
        groups of the API; `orders` by kind; whether there is an `operator` that takes pods off."""
        metadata = {"name": "gpu1", "resourceVersion": "7"}
        metadata |= {key: more.pop(key) for key in ("labels", "annotations") if key in more}
        node = {"metadata": metadata, "spec": {"unschedulable": True} if more.pop("unschedulable", False) else {}}
        told = {"node": node, "pods": [], "budgets": [], "kept": [], "conflicts": 0}
        told |= {"groups": ["apps"], "orders": {}, "operator": False, **more}
        (self.folder / "cluster.json").write_text(json.dumps(told))

    def change(self, **more: Any) -> None:
        """The same, with the node as it is now."""
        state = json.loads((self.folder / "cluster.json").read_text())
        (self.folder / "cluster.json").write_text(json.dumps({**state, **more}))

    @property
    def node(self) -> dict[str, Any]:
        """The node as it is now."""
        node: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())["node"]
        return node

    @property
    def changes(self) -> list[str]:
        """Verbs of questions that change something."""
        asked = [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]
        return [verb for words in asked for verb in words if verb in ("patch", "create", "delete", "cordon", "drain")]


def pod(name: str, owner: str = "ReplicaSet", **more: Any) -> dict[str, Any]:
    """A running pod."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": f"uid-{name}", **more.pop("metadata", {})}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "controller": True}]
    return {"metadata": metadata, "spec": more, "status": {"phase": "Running"}}
