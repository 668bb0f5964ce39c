"""A Kubernetes node whose GPUs are needed free: pods and the GPU operator's own are taken off it, and put back.

Runs where kubectl reaches the cluster. The operator's pods are of DaemonSets and hold the GPUs: they go by the node labels that select
them, as NVIDIA's k8s-driver-manager does it (https://github.com/NVIDIA/k8s-driver-manager). What was changed stands in an annotation
of the node; labels that somebody else has changed stay.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from typing import Sequence

PAUSED = "paused-for-driver-upgrade"
NOTE = "gpuprov/paused"
DEPLOY = "nvidia.com/gpu.deploy."
HOLDING = re.compile(
    r"nvidia-(device-plugin|dcgm|mig-manager|operator-validator|container-toolkit)|gpu-feature-discovery"
)
"""What the operator's pods that hold GPUs are called, at the beginning."""
PATIENCE = 300
"""Seconds in which they have to be gone."""


class Failed(Exception):
    """Why the node was not freed, or not given back; what kubectl said."""


def options_in(command: str) -> list[str] | None:
    """kubectl drain's options in a drain command `kubernetes [OPTION]...`; None where it is a site's own. Raises Failed."""
    if command.split()[:1] != ["kubernetes"]:
        return None
    try:
        return shlex.split(command)[1:]
    except ValueError as error:
        raise Failed(f"the drain command {command!r} cannot be read: {str(error).lower()}") from error


def pause(node: str, options: Sequence[str]) -> str:
    """Cordon and drain the node, with these options of kubectl drain, and take the operator's pods off it. Returns what should be
    known of it. Raises Failed."""
    ours, there = _note(node), _labels(node)
    others = [f"{key}={value}" for key, value in there.items() if key.startswith(DEPLOY) and "paused-for" in value]
    if others and not ours:
        raise Failed(f"another change of driver or MIG is under way on node {node}: {' '.join(others)}")
    operands = [key for key, value in there.items() if key.startswith(DEPLOY) and value == "true"]
    operands = [key for key in operands if key != f"{DEPLOY}driver"]
    if not ours:
        cordoned = _ask("get", "node", node, "-o", "jsonpath={.spec.unschedulable}") == "true"
        words = ["by-gpuprov", *operands, *([] if cordoned else ["cordon"])]
        _ask("annotate", "--overwrite", "node", node, f"{NOTE}={','.join(words)}")
    _ask("cordon", node)
    for key in operands:
        _ask("label", "--overwrite", "node", node, f"{key}={PAUSED}")
    _ask("drain", node, "--ignore-daemonsets", *options)
    left = int(os.environ.get("GPUPROV_PATIENCE", PATIENCE))
    while (pods := _pods(node)) and (operands or ours):
        if left <= 0:
            raise Failed(f"still on node {node}: {' '.join(pods)}")
        time.sleep(2)
        left -= 2
    by = f"node {node} has no labels {DEPLOY}*, by which the GPU operator's pods could be taken off: {' '.join(pods)}"
    return by if pods else ""


def resume(node: str) -> bool:
    """Put back what `pause` has changed. Returns whether there was anything. Raises Failed."""
    ours, there = _note(node), _labels(node)
    for word in ours:
        if word == "cordon":
            _ask("uncordon", node)
        elif word.startswith("nvidia.com/") and there.get(word) == PAUSED:
            _ask("label", "--overwrite", "node", node, f"{word}=true")
    if ours:
        _ask("annotate", "node", node, f"{NOTE}-")
    return bool(ours)


def _note(node: str) -> list[str]:
    text = _ask("get", "node", node, "-o", "jsonpath={.metadata.annotations.gpuprov/paused}")
    return [word for word in text.split(",") if word]


def _labels(node: str) -> dict[str, str]:
    words = _ask("get", "node", node, "--show-labels", "--no-headers").split()
    pairs = [pair.partition("=") for pair in (words[-1] if words else "").split(",")]
    return {key: value for key, _, value in pairs}


def _pods(node: str) -> list[str]:
    text = _ask("get", "pods", "--all-namespaces", "--field-selector", f"spec.nodeName={node}", "--no-headers")
    names = [line.split()[1] for line in text.splitlines() if len(line.split()) > 1]
    return [name for name in names if HOLDING.match(name)]


def _ask(*words: str) -> str:
    try:
        done = subprocess.run(["kubectl", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise Failed(f"kubectl does not run on the machine that runs gpuprov: {error.strerror}") from error
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    if done.returncode:
        lines = said.splitlines()
        raise Failed(f"kubectl {' '.join(words[:2])}: {lines[-1] if lines else f'status {int(done.returncode)}'}")
    return done.stdout.decode(errors="replace").strip()
