"""Checks that the host is as rendered: the files, the GPUs that the strategy is for, and the node's state in the
cluster."""

from collections.abc import Collection
from typing import Any

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.kubernetes import documents, fit, layout
from gpuprov.capabilities.kubernetes.fragment import Kubernetes, get_plugin, get_strategy
from gpuprov.catalog import kubernetes as catalogue
from gpuprov.core import safe_parse
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.containers import kubernetes
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci, system
from gpuprov.resources import Setting

Ctx = Context[Kubernetes]
COUNTS = "allocatable"
GPUS = (mig.STATE, pci.NVIDIA_FUNCTIONS, system.CONTAINER)


@check(
    "kubernetes.files",
    kubernetes.FILES,
    fields=(
        "plugin",
        "node",
        "labels",
        "device_plugin",
        "configs",
        "gpu_operator",
        "hami",
        "gpushare",
        "allocation",
        "dra",
    ),
    moment="next-boot",
)
def files(ctx: Ctx) -> Outcome:
    """Every file of the node matches the spec, and no file that it no longer asks for is left."""
    present = ctx.facts.get(kubernetes.FILES)
    try:
        desired = documents.documents(ctx.host, ctx.fragment)
    except layout.NotExpressible as error:
        return fail("the layout of mig as a mig-parted file", str(error), "gpu_operator.mig_manager: false")
    problems: list[str] = []
    changes: list[Change] = []
    for name in catalogue.FILES:
        place = f"{kubernetes.DIRECTORY}/{name}"
        wrong = difference(present.get(name), desired.get(name))
        if wrong:
            problems.append(f"{place}: {wrong}")
            after = "written" if name in desired else "removed"
            changes.append(Change(kind="file", name=place, before=wrong, after=after))
    expected = f"{kubernetes.DIRECTORY}: {', '.join(desired)}"
    return fail(expected, "; ".join(problems), APPLY, changes=changes) if problems else ok(expected)


def difference(text: str | None, expected: dict[str, Any] | None) -> str:
    """Return how a file differs in its meaning; empty if it does not."""
    if text is None or expected is None:
        return "is absent" if expected is not None else "is left over" if text is not None else ""
    try:
        read = safe_parse.parse_yaml(text)
    except safe_parse.Unreadable:
        return "is not YAML"
    if not isinstance(read, dict):
        return "is not a mapping"
    # A spec that an export made says how many GPUs there are, and the one that it was applied by did not.
    if COUNTS not in read:
        expected = {key: value for key, value in expected.items() if key != COUNTS}
    keys = [key for key in {**expected, **read} if read.get(key) != expected.get(key)]
    return f"differs in {', '.join(map(str, keys))}" if keys else ""


def gpus_of(ctx: Ctx) -> tuple[list[fit.Seen], Outcome | None]:
    """Return the GPUs that NVML lists; or the outcome if that cannot be determined."""
    state, container = ctx.facts.get(mig.STATE), ctx.facts.get(system.CONTAINER)
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return [], skip("no NVIDIA GPU on the PCI bus")
    if state.complaint and container:
        return [], skip(f"{container} container without a loaded driver of its machine's: {state.complaint}")
    if state.complaint or state.unread:
        return [], fail("GPUs that answer", state.complaint or "; ".join(state.unread), "see nvidia_driver.loaded")
    return fit.seen(state), None


@check("kubernetes.mig_strategy", *GPUS, fields=("device_plugin", "hami"), evidence="nvidia-smi -L")
def mig_strategy(ctx: Ctx) -> Outcome:
    """The GPUs are in the MIG mode, and partitioned in the way, that the node's strategy is for."""
    gpus, unknown = gpus_of(ctx)
    if unknown:
        return unknown
    own = {"nvidia": get_plugin(ctx.fragment).mig_strategy, "hami": ctx.fragment.hami.mig_strategy}
    plugin = get_strategy(ctx.fragment)
    expected = f"GPUs for {'DRA' if plugin == 'dra' else f'plugin {plugin}'}, strategy {own.get(plugin, 'none')}"
    problem, fix = fit.misfit(ctx.fragment, gpus)
    if problem:
        return fail(expected, problem, fix)
    return ok(f"{counted(len(gpus), 'GPU')}, {sum(on for on, _ in gpus)} in MIG mode", expected)


def offered(block: Kubernetes, gpus: list[fit.Seen]) -> dict[str, int]:
    """Return the resources that the node's plugin offers for the GPUs, with counts."""
    if get_strategy(block) == "nvidia":
        return documents.allocatable(block, gpus)
    if get_strategy(block) == "gpushare":
        return {"aliyun.com/gpu-count": len(gpus)}
    return {documents.GPU: len(gpus) * block.hami.split_count}


def _make_label_setting(key: str, value: str, present: Collection[str]) -> Setting:
    words = "{values}" if key in present else f"no {key}"
    return Setting(kind=f"label {key}", key=key, value=value, missing="", words=words)


@check(
    "kubernetes.allocatable",
    *(*GPUS, kubernetes.NODE),
    fields=("device_plugin", "hami"),
    evidence="kubectl get nodes -o custom-columns=NAME:.metadata.name,ALLOCATABLE:.status.allocatable; nvidia-smi -L",
)
def allocatable(ctx: Ctx) -> Outcome:
    """The cluster can allocate as many GPUs, MIG devices and shares as follow from the host's GPUs and the spec."""
    gpus, unknown = gpus_of(ctx)
    if unknown:
        return unknown
    block, node = ctx.fragment, ctx.facts.get(kubernetes.NODE)
    if get_strategy(block) == "dra":
        return not_asked("GPUs are in ResourceSlices: kubernetes.resource_slices")
    made = offered(block, gpus)
    plan = documents.summary(ctx.host, block).get(COUNTS) if get_strategy(block) == "nvidia" else None
    if plan is not None and plan != made:
        fix = f"{catalogue.SUMMARY} is of the spec's GPUs and mig: see host.gpu and the checks of mig"
        return fail(shown(plan), f"the host's GPUs amount to {shown(made)}", fix)
    if node.unasked:
        return skip(f"the GPUs amount to {shown(made)}; the cluster was not queried: {node.unasked}")
    if node.allocatable is None:
        return fail(shown(made), f"kubectl: {node.complaint}", "is the API server reachable, has the node joined?")
    if get_strategy(block) == "hami" and (block.hami.mode == "mig" or any(on for on, _ in gpus)):
        made = {}
    wrong = [
        f"{name}: {node.allocatable.get(name, '0')}"
        for name, count in made.items()
        if node.allocatable.get(name, "0") != str(count)
    ]
    if get_strategy(block) == "nvidia":
        wrong += [
            f"{name}: {count}"
            for name, count in node.allocatable.items()
            if name.startswith((documents.GPU, "nvidia.com/mig-")) and name not in made and count != "0"
        ]
    if wrong:
        fix = (
            "is the plugin's pod on this node ready, and its configuration the one of node-labels.yaml? Then see "
            "its log"
        )
        return fail(shown(made), f"node {node.name} has {', '.join(wrong)}", fix)
    return ok(shown(made))


def shown(resources: dict[str, int]) -> str:
    """Return `nvidia.com/gpu: 8`."""
    return ", ".join(f"{name}: {count}" for name, count in sorted(resources.items())) or "no GPU resources"


@compared(
    "kubernetes.labels",
    kubernetes.NODE,
    fields=("labels", "label_node", "node"),
    evidence="kubectl get nodes --show-labels",
)
def labels(ctx: Ctx) -> Group | Outcome:
    """The node in the cluster is this host, and has the labels by which the charts' pods find it, and none of another
    strategy's."""
    desired, node = documents.labels(ctx.host, ctx.fragment), ctx.facts.get(kubernetes.NODE)
    expected = ", ".join(f"{key}={value}" for key, value in desired.items())
    if node.unasked:
        return skip(f"the cluster was not queried for {expected}: {node.unasked}")
    if ctx.fragment.node and node.name != ctx.fragment.node:
        fix = "name it so in kubernetes.node, or leave node out"
        return fail(f"node {ctx.fragment.node}", f"the kubelet calls it {node.name}", fix)
    if node.labels is None:
        return fail(expected, f"kubectl: {node.complaint}", "is the API server reachable, has the node joined?")
    own = ctx.fragment.label_node
    by_hand = f"kubectl patch node {node.name} --patch-file {kubernetes.DIRECTORY}/{catalogue.NODE_LABELS}"
    group = Group(
        tuple(_make_label_setting(key, value, node.labels) for key, value in desired.items()),
        {("", key): value for key, value in node.labels.items()},
        expected=expected,
        right=expected,
        fix=APPLY if own else f"as an administrator: {by_hand}",
        changed=None if own else "",
    )
    others = [key for key, value in documents.unwanted(ctx.host, ctx.fragment).items() if node.labels.get(key) == value]
    if group.compare() or not others:
        return group
    by_hand = f"as an administrator: kubectl label node {node.name} {' '.join(f'{key}-' for key in others)}"
    return msgspec.structs.replace(
        group,
        resources=tuple(Setting(kind=f"label {key}", key=key, value="", shown="removed") for key in others),
        expected=f"no {', '.join(others)}",
        fix=APPLY if own else by_hand,
    )


CHECKS = (files, mig_strategy, allocatable, labels)
