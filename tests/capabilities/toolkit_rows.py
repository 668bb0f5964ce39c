"""Rows about the good container host: one question, what differs, what is answered."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.facts.probes.base import Output
from tests.capabilities.asking import CHECKS, Row
from tests.capabilities.toolkit_host import CLOCK, DAEMON, GOOD, OLD

ALL = ContainerToolkit(runtimes=("docker", "containerd", "crio", "podman"))
DOCKER, POD = ContainerToolkit(runtimes=("docker",)), ContainerToolkit(runtimes=("podman",))
DEFAULT = ContainerToolkit(runtimes=("docker",), default_runtime=True)
K3S, K3S_DEFAULT = (ContainerToolkit(runtimes=("k3s",), default_runtime=default) for default in (False, True))
BARE_DOCKER = {key: value for key, value in DAEMON.items() if key != "runtimes"}


def engines(*texts: str) -> dict[str, Output | str]:
    return {"container_engines": CLOCK + "".join(texts)}


def row(
    name: str,
    check: str,
    fragment: ContainerToolkit | None,
    changed: dict[str, Any],
    status: str,
    *told: str,
    change: str = "",
) -> Any:
    """A row about the good container host; `told`: found, fix, change."""
    identifier = f"container_toolkit.{check}"
    base = {probe.name: GOOD[probe.name] for probe in CHECKS[identifier].probes if probe.name in GOOD}
    found, fix, third = (*told, "", "", "")[:3]
    asked = Row(name, identifier, fragment, {**base, **changed}, status, found, fix, change=change or third)
    return pytest.param(asked, id=f"{check}: {name}")


EXACT = ContainerToolkit(version=OLD)
