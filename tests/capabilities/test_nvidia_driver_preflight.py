"""nvidia_driver, before anything is changed: what would be installed, and what stands in the way."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import B200, CHECKS, NEWER, OPEN, VERSION, Row, ask, facts, good, judge, packages
from tests.facts.probes import captured

EXACT = NvidiaDriver(version="535.261.03")
NEWEST = NvidiaDriver(version="535.309.01")
OPEN_WANTED = NvidiaDriver(kernel_modules="open")
FRESH = {"packages": ""}
V100 = "0000:19:00.0 0x10de 0x1db1 0x10de 0x1212 0x030200 \n"
CLIENTS = captured("gpu_clients", "mixed")
DAEMON_ONLY = "812|nvidia-persiste|nvidia-persistenced.service\nlooked\n"
CUDA = "ii |cuda|12.9.1-1|cuda\nii |cuda-drivers|580.95.05-1|cuda-drivers\n"

RESOLVABLE, LEFTOVERS = "nvidia_driver.resolvable", "nvidia_driver.leftovers"
SPACE, HOLDERS = "nvidia_driver.space", "nvidia_driver.clients"
ROWS = [
    Row("a fresh host gets the newest whole set", RESOLVABLE, None, FRESH, "pass",
        "535.309.01 (proprietary: NVIDIA's default below branch 560 is proprietary)",
        change=f"package nvidia-kernel-dkms:  -> {NEWER}"),
    Row("what is installed is kept", RESOLVABLE, None, {}, "pass", "535.261.03"),
    Row("an upgrade", RESOLVABLE, NEWEST, {}, "pass", "535.309.01", change=f"package libcuda1: {VERSION} -> {NEWER}"),
    Row("packages outside the set move along", RESOLVABLE, NEWEST,
        {"packages": packages(nvidia_driver=("ii ", VERSION))}, "pass",
        change=f"package nvidia-driver: {VERSION} -> {NEWER}"),
    Row("the other flavour, in one version that has it", RESOLVABLE, OPEN_WANTED,
        {"packages": packages(version=NEWER)}, "pass", "535.261.03 (open",
        change=f"package nvidia-kernel-dkms: {NEWER} -> removed"),
    Row("a version that is not whole", RESOLVABLE, NvidiaDriver(version="535.309.01", kernel_modules="open"), FRESH,
        "fail", "no nvidia-open-kernel-dkms", "nearest version with the whole set is 535.261.03"),
    Row("a branch that nobody offers", RESOLVABLE, NvidiaDriver(version="550"), FRESH, "fail", '"550"', "535.309.01"),
    Row("no package lists", RESOLVABLE, None, {**FRESH, "package_index": ""}, "skip", "no driver yet", ""),
    Row("the GPU on the bus wants the other flavour", RESOLVABLE, OPEN_WANTED, {**FRESH, "nvidia_functions": V100},
        "fail", "GPU 10de:1db1 has no GSP", "kernel_modules at auto"),
    Row("the GPU on the bus is newer than every branch that is offered", RESOLVABLE, None,
        {**FRESH, "nvidia_functions": B200}, "fail",
        "B200 (Blackwell) is not known to branch 535: it needs 570 or newer", "gpuprov catalog gpus"),
    Row("nothing in the way", LEFTOVERS, None, {}, "pass", "no other driver"),
    Row("the open set is this distribution's too", LEFTOVERS, None, {"packages": packages(OPEN)}, "pass"),
    Row("a runfile was installed", LEFTOVERS, None, {"runfile_leftovers": "/usr/bin/nvidia-uninstall\n"}, "fail",
        "a runfile installation: /usr/bin/nvidia-uninstall", "/usr/bin/nvidia-uninstall --uninstall"),
    Row("the cuda metapackage drags its own driver in", LEFTOVERS, None, {"packages": packages() + CUDA}, "fail",
        "cuda=12.9.1-1 cuda-drivers=580.95.05-1", "apt-get purge cuda cuda-drivers"),
    Row("nothing to install needs no space", SPACE, None, {"space": "512000 /boot\n10 /var\n"}, "skip",
        "nothing to install"),
    Row("no space for the packages", SPACE, None, {**FRESH, "space": "512000 /boot\n102400 /var\n"}, "fail", "100 MiB",
        "apt-get clean"),
    Row("no space for a build", SPACE, None, {"kernels": "6.1.0-47-amd64|1|1||1\n", "space": "1 /var\n"}, "fail",
        "0 MiB"),
    Row("space enough", SPACE, None, FRESH, "pass", "10240 MiB free in /var"),
    Row("the driver stays, whoever uses it", HOLDERS, None, {"gpu_clients": CLIENTS}, "pass", "stays"),
    Row("no driver is loaded", HOLDERS, NEWEST, {"loaded_driver": "", "gpu_clients": CLIENTS}, "pass", "stays"),
    Row("another version, of which no package list says anything yet", HOLDERS, NvidiaDriver(version="550.90.07"),
        {"package_index": "", "gpu_clients": CLIENTS}, "fail", "python3 pid 4211"),
    Row("an upgrade that nobody is in the way of", HOLDERS, NEWEST, {}, "pass", "0 services"),
    Row("an upgrade with services only", HOLDERS, NEWEST, {"gpu_clients": DAEMON_ONLY}, "pass", "1 service",
        change="client nvidia-persiste (nvidia-persistenced.service 812):  -> stopped"),
    Row(
        "services of laptops, of DGX, of virtual machines' topology, and a display manager",
        HOLDERS,
        NEWEST,
        {
            "gpu_clients": "5|nvidia-powerd|nvidia-powerd.service\n6|nvsm_core|nvsm-core.service\n"
            "7|nvidia-topology|nvidia-topologyd.service\n8|Xorg|lightdm.service\nlooked\n"
        },
        "pass",
        "4 services",
        change="client nvsm_core (nvsm-core.service 6):  -> stopped",
    ),
    Row("an upgrade under a training job", HOLDERS, NEWEST, {"gpu_clients": CLIENTS}, "fail",
        "python3 pid 4211 session-7", "--drain"),
    Row("another flavour of the same version", HOLDERS, OPEN_WANTED, {"gpu_clients": CLIENTS}, "fail",
        "python3 pid 4211"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_preflight(row: Row) -> None:
    judge(row)


def test_what_is_kept_changes_nothing() -> None:
    changes = ask("nvidia_driver.resolvable", EXACT).changes
    assert [change.name for change in changes] == ["nvidia-modprobe"], "only what is not there yet"


@pytest.mark.parametrize(
    ("site", "unit", "status"),
    [
        ({}, "slurm-exporter.service", "fail"),
        ({"host_gpu_services": ["slurm-exporter.service"]}, "slurm-exporter.service", "pass"),
        ({"host_gpu_services": "slurm-exporter.service,my-*.service"}, "my-agent.service", "pass"),
        ({"host_gpu_services": ["slurm-exporter.service"]}, "nvidia-dcgm.service", "fail"),
        ({"host_gpu_services": []}, "gpuprov-persistence.service", "pass"),
        ({"host_gpu_services": ""}, "", "fail"),
        ({"host_gpu_services": "slurm-exporter.service, "}, "", "fail"),
    ],
)
def test_services_are_those_that_the_site_names(site: dict[str, object], unit: str, status: str) -> None:
    """As the module that stops them has it from the role: also names with commas between, and gpuprov's own unit."""
    check, spec = CHECKS[HOLDERS], HostSpec(name="gpu1", capabilities={"nvidia_driver": NEWEST}, site=site)
    names = {probe.name for probe in check.probes}
    known = {**good(), "gpu_clients": f"5|daemon|{unit}\nlooked\n"}
    outcome = check.run(Context(spec, NEWEST, facts(**{name: known[name] for name in names & set(known)})))
    assert outcome.status == status, outcome
