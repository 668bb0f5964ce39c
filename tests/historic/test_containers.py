"""Bugs of GPUs in containers: configurations overwritten, devices taken away, specifications out of date."""

from __future__ import annotations

import json
from typing import Any

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.catalog.container_toolkit import REFRESH_UNITS, UDEV_RULE
from gpuprov.facts.probes.base import Output
from gpuprov.rules import engine_output, engines
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import H100
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.toolkit_host import (
    CLOCK,
    DAEMON,
    DROP_IN,
    GOOD,
    MAIN,
    MIG,
    OLD,
    VERSION,
    cdi,
    containerd,
    docker,
    toolkit,
)
from tests.historic.listed import caught, judged

HOST: dict[str, Output | str] = {**GOOD, "nvidia_functions": H100}
DOCKER, CONTAINERD = ContainerToolkit(runtimes=("docker",)), ContainerToolkit(runtimes=("containerd",))


def container_caught(identifier: str, fragment: ContainerToolkit, *checks: str, **planted: Any) -> None:
    """Plant the bug on a container host that is right: exactly `checks` fail, with the fixes that bugs.yaml has for
    them."""
    host = HostSpec(name="gpu1", capabilities={"container_toolkit": fragment})
    caught(identifier, *checks, base=HOST, asked=host, **planted)


def test_20_daemon_json_was_overwritten() -> None:
    ours = {"runtimes": DAEMON["runtimes"]}
    assert engines.lost("docker", DAEMON, ours) == [
        'exec-opts = ["native.cgroupdriver=systemd"]',
        "features.buildkit = true",
        'log-opts.max-size = "10m"',
    ]
    assert engines.lost("docker", DAEMON, {**DAEMON, "default-runtime": "nvidia"}) == []
    # The other way round: a site's tool writes its own file again, and the runtime is gone from it.
    theirs = json.dumps({"exec-opts": ["native.cgroupdriver=systemd"]})
    planted = CLOCK + docker(theirs, {"Runtimes": {"runc": {}}})
    container_caught(
        "20", DOCKER, "container_toolkit.configured", "container_toolkit.registered", container_engines=planted
    )


def test_21_containerds_settings_are_wiped() -> None:
    main = MAIN.replace("pause:3.9", "pause:3.10")
    container_caught(
        "21",
        CONTAINERD,
        "container_toolkit.configured",
        "container_toolkit.registered",
        container_engines=CLOCK + containerd(main=main),
    )
    wiped = CLOCK + containerd(main=MAIN.partition("\n")[2], drop_in="")
    container_caught(
        "21", CONTAINERD, "container_toolkit.configured", "container_toolkit.registered", container_engines=wiped
    )
    cgroups = engine_output.parse(CLOCK + containerd(drop_in=DROP_IN.replace("SystemdCgroup = true", "")))["containerd"]
    assert any("SystemdCgroup = true" in told for told in engines.differences("containerd", cgroups, False))


def test_22_daemon_reload_takes_the_gpus() -> None:
    unlinked = toolkit(VERSION, "auto", "unlinked /dev/nvidia0")
    container_caught(
        "22",
        DOCKER,
        "container_toolkit.daemon_reload",
        "container_toolkit.files",
        container_toolkit=unlinked,
        contents=Also(f"sum|0  {UDEV_RULE}\n"),
    )
    legacy = HostSpec(name="gpu1", capabilities={"container_toolkit": ContainerToolkit(version=OLD)})
    found = judged(legacy, **{**HOST, "container_toolkit": toolkit(OLD)})
    assert "legacy mode, and docker" in found["container_toolkit.daemon_reload"].found


def test_23_the_cdi_specification_is_of_yesterday() -> None:
    container_caught("23", DOCKER, "container_toolkit.cdi", gpu_devices=MIG)
    container_caught("23", DOCKER, "container_toolkit.cdi", cdi_specifications=cdi(version="535.216.03"))
    off = unit(REFRESH_UNITS[0], "inactive", "disabled")
    container_caught("23", DOCKER, "container_toolkit.enabled", contents=off)
