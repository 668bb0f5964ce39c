"""Pods that leave a node, their eviction, and what holds those that stay."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuprov.core.safe_parse import Tree
from gpuprov.fleet.drain.base import Holds
from gpuprov.fleet.drain.kubernetes.cluster import Cluster, Pod, Refused

# Number of pods that a step names.
NAMED = 20
# The pod in question no longer exists.
GONE = ("NotFound", "Conflict")


def evict_pods(
    cluster: Cluster, pods: Sequence[Pod], *, empty_dir: bool, all_or_none: bool
) -> tuple[tuple[str, ...], Holds]:
    """Ask for the eviction of each pod that can be recreated elsewhere; return why the others stay, and what they wait
    for.

    all_or_none: ask for none while there is one that only a person can remove. Raises Refused, Unanswered.
    """
    present = [pod for pod in pods if not pod.stays]
    kept = {pod.shown: why for pod in present if (why := _explain_kept(pod, empty_dir=empty_dir))}
    if kept and all_or_none:
        return limit_names([f"pod {name} {why}" for name, why in kept.items()]), "a person"
    waits: list[str] = []
    for pod in present:
        if pod.metadata.deletion_timestamp:
            waits.append(f"pod {pod.shown} is ending")
        elif pod.shown in kept:
            waits.append(f"pod {pod.shown} {kept[pod.shown]}")
        else:
            waits += _evict(cluster, pod)
    return limit_names(waits), "a person" if kept else "jobs"


def _explain_kept(pod: Pod, *, empty_dir: bool) -> str:
    """Explain why only a person may remove the pod; empty if it may be evicted, or is ending."""
    if pod.metadata.deletion_timestamp:
        return ""
    if not pod.owner:
        return "has no controller that would make it again"
    if not empty_dir and any(volume.empty_dir is not None for volume in pod.spec.volumes):
        return "has an emptyDir, whose data would be lost (allow it: --delete-emptydir-data)"
    return ""


def list_pods(pods: Iterable[Pod]) -> tuple[str, ...]:
    """List pods that leave a node that is drained."""
    return limit_names([f"pod {pod.shown}" for pod in pods if not pod.stays])


def list_operands(pods: Iterable[Pod], paused: Sequence[str]) -> tuple[str, ...]:
    """List pods of DaemonSets that choose their nodes by these labels."""
    return limit_names(
        [f"pod {pod.shown}" for pod in pods if pod.owner == "DaemonSet" and set(pod.spec.node_selector) & set(paused)]
    )


def limit_names(waits: Sequence[str]) -> tuple[str, ...]:
    """List the first ones, and the number of the others."""
    more = [f"and {len(waits) - NAMED} more"] if len(waits) > NAMED else []
    return (*waits[:NAMED], *more)


def _evict(cluster: Cluster, pod: Pod) -> list[str]:
    try:
        cluster.evict(pod)
    except Refused as problem:
        if problem.kind in GONE:
            return []
        if problem.kind == "TooManyRequests":
            return [f"pod {pod.shown}: {_find_budget(cluster, pod) or problem}"]
        if problem.kind == "InternalError":  # more than one budget has this pod
            return [f"pod {pod.shown}: {problem}"]
        raise
    return [f"pod {pod.shown} is ending"]


def _find_budget(cluster: Cluster, pod: Pod) -> str:
    """Name the PodDisruptionBudget that keeps the pod, with its numbers."""
    for budget in cluster.budgets(pod.metadata.namespace):
        metadata, spec, status = (budget.get(key) or {} for key in ("metadata", "spec", "status"))
        if not all(isinstance(part, dict) for part in (metadata, spec, status)) or status.get("disruptionsAllowed"):
            continue
        if _is_selected(spec.get("selector"), pod.metadata.labels):
            numbers = f"needs {status.get('desiredHealthy')} healthy pods, has {status.get('currentHealthy')}"
            if status.get("observedGeneration") != metadata.get("generation"):
                numbers = "its controller has not counted its pods yet"
            return f"PodDisruptionBudget {metadata.get('name')} lets none go ({numbers})"
    return ""


def _is_selected(selector: Any, labels: dict[str, str]) -> bool:
    """Return True if a label selector matches."""
    # https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    if not isinstance(selector, dict):
        return False
    exact, rules = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not (isinstance(exact, dict) and isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules)):
        return False
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _meets_rule(rule, labels) for rule in rules
    )


def _meets_rule(rule: Tree, labels: dict[str, str]) -> bool:
    value, values = labels.get(str(rule.get("key"))), rule.get("values") or []
    if not isinstance(values, list):
        return False
    match rule.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
