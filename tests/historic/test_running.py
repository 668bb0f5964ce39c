"""Bugs of hosts that run: versions in memory, programs that hold a GPU, changes that are stuck half-way."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.host import House
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.explain import explain
from gpuprov.spec.model import GpuSpec
from tests.capabilities.asking import H100, NEWER, VERSION, packages
from tests.facts.probes import captured
from tests.historic.listed import caught, judged, spec

MOVED: dict[str, Any] = {
    "packages": packages(version=NEWER),
    "kernels": "6.1.0-47-amd64|1|1|535.309.01|1\n",
    "driver_libraries": "/usr/lib/libcuda.so.535.309.01\n/usr/lib/libnvidia-ml.so.535.309.01\n",
    "nvidia_smi": captured("nvidia_smi", "mismatch", 18),
}
UNANSWERED = ("nvidia_driver.user_space", "persistence.mode_on")


def test_06_user_space_moved_under_the_loaded_module() -> None:
    told = caught("6", "nvidia_driver.loaded", "nvidia_driver.user_space", along=["persistence.mode_on"], **MOVED)
    assert told["nvidia_driver.loaded"].reboot == "the loaded module is 535.261.03, its package is 535.309.01"
    complaint = told["nvidia_driver.user_space"].found
    meanings = [line for answer in explain(complaint) for line in answer.lines]
    assert any("User space was upgraded" in text for _, text in meanings), meanings


def test_18_a_client_holds_the_gpu() -> None:
    told = caught(
        "18",
        "nvidia_driver.clients",
        along=["nvidia_driver.packages"],
        driver=NvidiaDriver(version="535.309.01"),
        gpu_clients=captured("gpu_clients", "mixed"),
    )
    assert "python3 pid 4211" in told["nvidia_driver.clients"].found
    dcgm = judged(
        spec(NvidiaDriver(version="535.309.01")), gpu_clients="900|nv-hostengine|nvidia-dcgm.service\nlooked\n"
    )["nvidia_driver.clients"]
    assert dcgm.status == "pass", "a service that is stopped and started again is in nobody's way"
    assert "nv-hostengine (nvidia-dcgm.service 900)" in [change.name for change in dcgm.changes]


def test_27_checks_know_the_platform() -> None:
    with_switch = captured("nvidia_functions", "hgx_h100").text
    smi = "".join(
        f"00000000:{bus}:00.0, NVIDIA H100 80GB HBM3, GPU-{bus}, 535.261.03, Enabled\n" for bus in ("19", "3b")
    )
    right = judged(spec(gpu=GpuSpec(model="H100-SXM5-80GB", count=2)), nvidia_functions=with_switch, nvidia_smi=smi)
    for check in ("host.gpu", "nvidia_driver.user_space"):
        assert right[check].status == "pass", f"an NVSwitch is not a GPU that is missing: {right[check]}"
    told = caught(
        "27", "host.gpu", gpu=GpuSpec(model="H100-SXM5-80GB"), nvidia_functions=H100.replace("0x2330", "0x2331")
    )
    assert "H100-PCIE" in told["host.gpu"].found


def test_29_an_upgrade_is_stuck_half_way() -> None:
    caught(
        "29",
        "nvidia_driver.packages",
        "host.packages",
        packages=packages(nvidia_kernel_dkms=("hF ", VERSION)),
        package_audit=captured("package_audit", "half_configured"),
    )
    caught(
        "29",
        "host.reboot_pending",
        along=["nvidia_driver.loaded", *UNANSWERED],
        reboot_reasons="nvidia_driver|the loaded driver is 535.261.03 (proprietary) and in use\n",
        **MOVED,
    )


def test_30_a_reboot_needs_permission() -> None:
    assert House().reboot == spec().reboot == "never"
    told = caught(
        "30",
        "host.reboot_pending",
        "nvidia_driver.loaded",
        along=UNANSWERED,
        reboot_reasons="nvidia_driver|the loaded driver is 535.261.03 (proprietary) and in use\n",
        **MOVED,
    )
    assert "nvidia_driver: the loaded driver is 535.261.03" in told["host.reboot_pending"].found
