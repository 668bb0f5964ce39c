"""container_toolkit: one version, held; export writes what is there."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import container_toolkit
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from tests.capabilities.asking import GOOD as OTHERS
from tests.capabilities.asking import Row, facts, judge
from tests.capabilities.toolkit_host import CLOCK, DAEMON, GOOD, OLD, VERSION, docker, packages, podman, toolkit
from tests.capabilities.toolkit_rows import EXACT, row

ROWS = [
    row("as asked", "packages", None, {}, "pass", VERSION),
    row("not there", "packages", None, {"packages": ""}, "fail", "not installed: nvidia-container-toolkit nvidia",
        "gpuprov apply"),
    row("one moved alone", "packages", None, {"packages": packages(libnvidia_container1=OLD)}, "fail",
        f"libnvidia-container1 {OLD}-1"),
    row("another version", "packages", EXACT, {}, "fail", f"{VERSION}-1"),
    row("half installed", "packages", None, {"packages": packages(state="iU ")}, "fail", "not whole",
        "dpkg --configure -a"),
    row("another nvidia-ctk", "packages", None, {"container_toolkit": toolkit(OLD)}, "fail", f"says {OLD}",
        "comes first"),
    row("held", "held", None, {}, "pass", "4 packages held"),
    row("not held", "held", None, {"packages": packages(state="ii ")}, "fail", "not held: libnvidia", "apt-mark hold",
        "setting apt-mark hold nvidia-container-toolkit:  -> "),
    row("free, as asked", "held", ContainerToolkit(hold=False), {"packages": packages(state="ii ")}, "pass",
        "not held"),
    row("held against the spec", "held", ContainerToolkit(hold=False), {}, "fail", "held:", "apt-mark unhold"),
    row("nothing to hold", "held", None, {"packages": ""}, "fail", "no package"),
]  # fmt: skip


@pytest.mark.parametrize("question", ROWS)
def test_packages(question: Row) -> None:
    judge(question)


def test_export() -> None:
    texts = {**OTHERS, **GOOD}
    assert container_toolkit.export(facts(**texts)) == ContainerToolkit(
        version=VERSION, runtimes=("docker", "containerd", "crio", "podman"), rootless=("gpuuser",)
    )
    legacy = {
        **texts,
        "container_engines": CLOCK + docker({**DAEMON, "default-runtime": "nvidia"}) + podman(),
        "container_toolkit": toolkit(mode="legacy"),
        "cdi_specifications": "",
        "packages": packages(OLD, "ii "),
        "rootless_users": "",
    }
    wanted = ContainerToolkit(version=OLD, hold=False, runtimes=("docker",), default_runtime=True, mode="legacy")
    assert container_toolkit.export(facts(**legacy)) == wanted
    assert container_toolkit.export(facts(**{**texts, "packages": ""})) is None


def test_an_exported_host_is_as_its_export_says() -> None:
    found = container_toolkit.export(facts(**{**OTHERS, **GOOD}))
    assert isinstance(found, ContainerToolkit)
    for check in container_toolkit.CAPABILITY.checks:
        changed = {probe.name: GOOD[probe.name] for probe in check.probes if probe.name in GOOD}
        judge(Row(check.id, check.id, found, changed, "pass"))
