"""Other operators that take nodes out of a cluster by themselves: NVSentinel and NodeWright, if they are installed.

NVSentinel cordons, drains and reboots nodes whose GPUs report faults, as they do while a driver changes; it leaves
alone a node that is labelled for planned maintenance. It regards a node that somebody uncordons as decided by an admin:
https://docs.nvidia.com/nvsentinel/components/cancelling-breakfix,
https://docs.nvidia.com/nvsentinel/tutorials/requesting-node-maintenance

NodeWright (before: Skyhook) installs packages, cordons and reboots for them, and uncordons what it has cordoned, even
if somebody else wants it cordoned by then: https://github.com/NVIDIA/nodewright/blob/main/docs/interrupt_flow.md,
docs/cli.md (node ignore)
"""

from collections.abc import Collection

from gpuprov.fleet.drain.kubernetes.cluster import Cluster, Node

NODEWRIGHT = "skyhook.nvidia.com"
# API groups that show that they are installed.
NVSENTINEL = ("nvsentinel.dgxc.nvidia.com", "janitor.dgxc.nvidia.com")
# Label and annotation of a node that NVSentinel has quarantined; both go when it gives the node back.
STATE, EVENT = "dgxc.nvidia.com/nvsentinel-state", "quarantineHealthEvent"
# States of NodeWright's packages on a node, in which it goes on by itself.
WORKING = ("in_progress", "erroring")
# Labels that keep them off a node. Older releases of NVSentinel know only the second one.
HANDS_OFF = {
    NVSENTINEL: {"nvsentinel.dgxc.nvidia.com/managed": "false", "k8saas.nvidia.com/ManagedByNVSentinel": "false"},
    (NODEWRIGHT,): {f"{NODEWRIGHT}/ignore": "true"},
}
# Objects that order an action on a node.
ORDERS = {
    "nvsentinel.dgxc.nvidia.com": ("maintenancerequests",),
    "janitor.dgxc.nvidia.com": ("rebootnodes", "terminatenodes", "gpuresets"),
}


def describe_work(node: Node) -> str:
    """Describe what one of them does with the node; empty if it leaves the node alone."""
    labels, notes = node.metadata.labels, node.metadata.annotations
    if STATE in labels or notes.get(EVENT, "[]") not in ("", "[]"):
        return f"NVSentinel has quarantined it ({STATE}={labels.get(STATE, '')})"
    for key, value in sorted(notes.items()):
        group, _, word = key.partition("/")
        if group == NODEWRIGHT and (word.startswith("cordon_") or (word.startswith("status_") and value in WORKING)):
            return f"NodeWright is at work on it ({key}={value})"
    return ""


def describe_order(cluster: Cluster, groups: Collection[str], node: str) -> str:
    """Describe what has been ordered for the node and not been done yet. Raises Refused, Unanswered."""
    for group, kinds in ORDERS.items():
        for kind in kinds if group in groups else ():
            for order in cluster.orders(kind, group):
                if order.node == node and not order.is_over:
                    return f"NVSentinel has an order to take it: {kind}.{group} {order.metadata.name}"
    return ""


def hands_off_labels(groups: Collection[str], node: Node) -> dict[str, str]:
    """Return the labels, not yet on the node, that keep the installed ones off it."""
    expected: dict[str, str] = {}
    for installed, labels in HANDS_OFF.items():
        if not set(installed).isdisjoint(groups):
            expected |= labels
    return {key: value for key, value in expected.items() if node.metadata.labels.get(key) != value}
