"""container_toolkit: one version, held; export writes what is there; CDI specifications and device files."""

from __future__ import annotations

from gpuprov.capabilities import container_toolkit
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.catalog import container_toolkit as catalogue
from tests.capabilities.asking import GOOD as OTHERS
from tests.capabilities.asking import NO_GPU, PODMAN, Row, ask, facts, judge
from tests.capabilities.contents_host import Also, unit, with_lines
from tests.capabilities.toolkit_host import (
    CLOCK,
    DAEMON,
    GOOD,
    GPU,
    MIG,
    OLD,
    VERSION,
    cdi,
    docker,
    packages,
    podman,
    toolkit,
)
from tests.capabilities.toolkit_rows import DOCKER, EXACT, engines, row
from tests.rows import run_each

ROWS = [
    row("as asked", "packages", None, {}, "pass", VERSION),
    row("not there", "packages", None, {"packages": ""}, "fail", "not installed: nvidia-container-toolkit nvidia",
        "gpuprov apply"),
    row("one moved alone", "packages", None, {"packages": packages(libnvidia_container1=OLD)}, "fail",
        f"libnvidia-container1 {OLD}-1"),
    row("another version", "packages", EXACT, {}, "fail", f"{VERSION}-1"),
    row("half installed", "packages", None, {"packages": packages(state="iU ")}, "fail", "incomplete",
        "dpkg --configure -a"),
    row("another nvidia-ctk", "packages", None, {"container_toolkit": toolkit(OLD)}, "fail", f"says {OLD}",
        "comes first"),
    row("held", "held", None, {}, "pass", "4 packages held"),
    row("not held", "held", None, {"packages": packages(state="ii ")}, "fail", "not held: libnvidia", "apt-mark hold",
        "hold nvidia-container-toolkit: not held -> held"),
    row("free, as asked", "held", ContainerToolkit(hold=False), {"packages": packages(state="ii ")}, "pass",
        "not held"),
    row("held against the spec", "held", ContainerToolkit(hold=False), {}, "fail", "held:", "apt-mark unhold"),
    row("nothing to hold", "held", None, {"packages": ""}, "fail", "no package"),
]  # fmt: skip


@run_each("question", ROWS)
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
        judge(Row(check.id, check.id, found, changed, "n/a" if check.id == "container_toolkit.cuda" else "pass"))


PATH, SERVICE = "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"
ENVIRONMENT, OUTPUT = catalogue.REFRESH_ENVIRONMENT, catalogue.OUTPUT_VARIABLE


def told(*lines: str) -> dict[str, Also]:
    """What the toolkit's own refresh unit is told."""
    return {"contents": Also(with_lines(ENVIRONMENT, *lines))}


DEVICES = [
    row("as the GPUs", "cdi", None, {}, "pass", "/var/run/cdi/nvidia.yaml: 0"),
    row("after a MIG change", "cdi", None, {"gpu_devices": MIG}, "fail", "not in it: 0:0 0:1",
        "nvidia-ctk cdi generate", "file /var/run/cdi/nvidia.yaml:  -> made anew"),
    row("with the MIG devices", "cdi", None,
        {"gpu_devices": MIG, "cdi_specifications": cdi("0:0", "0:1", "MIG-a", "MIG-b")}, "pass", "0:0 0:1"),
    row("with the MIG devices and, by an old release, their GPU", "cdi", None,
        {"gpu_devices": MIG, "cdi_specifications": cdi("0", "0:0", "0:1", "GPU-3c1f6d5e", "MIG-a", "MIG-b")}, "pass"),
    row("MIG devices are gone", "cdi", None, {"cdi_specifications": cdi("0", "0:0", "GPU-3c1f6d5e", "MIG-a")}, "fail",
        "in it, and gone: 0:0 MIG-a"),
    row("a GPU was exchanged", "cdi", None, {"cdi_specifications": cdi("0", "GPU-other")}, "fail",
        "not in it: GPU-3c1f6d5e; in it, and gone: GPU-other"),
    row("made before unified memory's device file was", "cdi", None, {"cdi_specifications": cdi(uvm=False)}, "fail",
        "not in it: /dev/nvidia-uvm", "nvidia-ctk cdi generate"),
    row("by index alone", "cdi", None, {"cdi_specifications": cdi("0")}, "pass"),
    row("of the driver before", "cdi", None, {"cdi_specifications": cdi(version="535.216.03")}, "fail",
        "driver 535.216.03, installed is 535.261.03"),
    row("none", "cdi", None, {"cdi_specifications": ""}, "fail", "no such file"),
    row("of another directory", "cdi", ContainerToolkit(cdi_directory="/etc/cdi"), {}, "fail", "no such file"),
    row("two", "cdi", None, {"cdi_specifications": cdi() + cdi(path="/etc/cdi/nvidia.yaml")}, "fail",
        "a second specification", "rm /etc/cdi/nvidia.yaml", "file /etc/cdi/nvidia.yaml:  -> removed"),
    row("by UUID alone", "cdi", None, {"cdi_specifications": cdi("GPU-3c1f6d5e")}, "pass"),
    row("by kind and index", "cdi", None, {"cdi_specifications": cdi("gpu0")}, "pass"),
    row("MIG devices by kind and index, one missing", "cdi", None,
        {"gpu_devices": MIG, "cdi_specifications": cdi("mig0:0", "gpu0")}, "fail", "not in it: 0:1"),
    row("MIG mode without instances", "cdi", None, {"gpu_devices": MIG.replace("  MIG", "  x"),
        "cdi_specifications": "@spec /var/run/cdi/nvidia.yaml\nkind: nvidia.com/gpu\n    - name: all\n@uvm\n"}, "pass",
        "no device"),
    row("no GPU", "cdi", None, NO_GPU, "skip", "no NVIDIA GPU"),
    row("a container without its machine's driver", "cdi", None, {**PODMAN, "gpu_devices": "NVIDIA-SMI has failed\n"},
        "skip", "podman container without"),
    row("the driver is not loaded", "cdi", None, {"gpu_devices": "NVIDIA-SMI has failed\n"}, "fail",
        "NVIDIA-SMI has failed", "nvidia_driver.loaded"),
    row("at every boot", "enabled", None, {}, "pass", f"{PATH} enabled, {SERVICE} enabled"),
    row("switched off", "enabled", None, {"contents": unit(SERVICE, "inactive", "disabled")}, "fail",
        f"{SERVICE} is disabled", f"systemctl enable --now {SERVICE}", f"service {SERVICE}: disabled -> enabled"),
    row("gpuprov's beside the toolkit's", "enabled", None,
        {"contents": unit("gpuprov-cdi-refresh.path", "active", "enabled")}, "fail",
        "gpuprov-cdi-refresh.path is enabled", "systemctl disable --now gpuprov-cdi-refresh.path"),
    row("an old release, with gpuprov's units", "enabled", None, {"container_toolkit": toolkit(OLD)}, "pass",
        "gpuprov-cdi-refresh.path"),
    row("an old release, without", "enabled", None,
        {"container_toolkit": toolkit(OLD), "contents": unit("gpuprov-cdi-refresh.path", "inactive", "")}, "fail",
        "gpuprov-cdi-refresh.path is not-found", "gpuprov apply"),
    row("written to the directory", "files", None, {}, "pass", f"{ENVIRONMENT} with {OUTPUT}=/var/run/cdi/nvidia.yaml"),
    row("elsewhere", "files", ContainerToolkit(cdi_directory="/etc/cdi"), told(f"{OUTPUT}=/var/run/cdi/nvidia.yaml"),
        "fail", f"{ENVIRONMENT}: {OUTPUT}=/var/run/cdi/nvidia.yaml",
        change=f"file {ENVIRONMENT}: {OUTPUT}=/var/run/cdi/nvidia.yaml -> {OUTPUT}=/etc/cdi/nvidia.yaml"),
    row("its own default where another place is asked for, on a host to which it was never applied", "files",
        ContainerToolkit(cdi_directory="/etc/cdi"), told(f"# {OUTPUT}=/etc/cdi/nvidia.yaml"), "fail",
        f"{OUTPUT} is not set"),
    row("an old release", "files", None, {"container_toolkit": toolkit(OLD)}, "pass", "3 files as written by gpuprov"),
    row("nothing is lost", "daemon_reload", DOCKER, {}, "pass", "mode cdi, 2 device files linked"),
    row("a device without its link", "daemon_reload", DOCKER,
        {"container_toolkit": toolkit(VERSION, "auto", "unlinked /dev/nvidia1")}, "fail",
        "without a link: /dev/nvidia1", "create-dev-char-symlinks"),
    row("legacy, and systemd has the cgroups", "daemon_reload", ContainerToolkit(runtimes=("docker",), mode="legacy"),
        {}, "fail", "legacy mode, and docker", "mode: cdi"),
    row("an old release, and systemd has them in containerd", "daemon_reload",
        ContainerToolkit(runtimes=("containerd",)), {"container_toolkit": toolkit(OLD)}, "fail",
        "containerd leaves cgroups to systemd"),
    row("an old release, and cri-o", "daemon_reload", ContainerToolkit(runtimes=("crio",)),
        {"container_toolkit": toolkit(OLD)}, "fail", "crio"),
    row("legacy with cgroupfs", "daemon_reload", ContainerToolkit(runtimes=("docker",), mode="legacy"),
        engines(docker(info={"CgroupDriver": "cgroupfs"})), "pass", "mode legacy"),
    row("another rule", "files", None, {"contents": Also(f"sum|0  {catalogue.UDEV_RULE}\n")}, "fail",
        f"{catalogue.UDEV_RULE}: another text"),
]  # fmt: skip


@run_each("question", DEVICES)
def test_devices(question: Row) -> None:
    judge(question)


def test_a_second_specification_of_another_name_is_the_sites_to_remove() -> None:
    both = cdi() + cdi(path="/etc/cdi/nvidia-gpu.yaml")
    outcome = ask("container_toolkit.cdi", cdi_specifications=both, gpu_devices=GPU)
    assert (outcome.status, outcome.changes) == ("fail", ())
    assert "rm /etc/cdi/nvidia-gpu.yaml" in outcome.fix
