"""fabric_manager on each generation of NVSwitches: needed, useless or refused; registration; the subnet manager."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.facts.probes.base import Output
from tests.capabilities.asking import FM, GOOD, H100, NVSWITCH, PODMAN, Row, daemon, fabric_state, judge
from tests.facts.probes import published

VERSION = "535.261.03"
SWITCHLESS: dict[str, Output | str] = {"nvidia_functions": H100}
A100 = "0000:19:00.0 0x10de 0x20b2 0x10de 0x1463 0x030200 nvidia\n0000:07:00.0 0x10de 0x1af1 0x10de 0x1463 0x068000 \n"
PCIE = "0000:19:00.0 0x10de 0x2331 0x10de 0x1626 0x030200 nvidia\n"
GB200 = "0000:19:00.0 0x10de 0x2941 0x10de 0x2046 0x030200 nvidia\n"
B200: dict[str, Output | str] = {
    "nvidia_functions": "0000:19:00.0 0x10de 0x2901 0x10de 0x1999 0x030200 nvidia\n",
    "fabric_bridges": "0000:05:00.0\n0000:06:00.0\n",
}
NVLSM = "/opt/nvidia/nvlsm/sbin/nvlsm -F /usr/share/nvidia/nvlsm/nvlsm.conf"
SUBNET = "".join(f"hi |{name}|1-1|{name}\n" for name in ("nvlsm", "libibumad3", "infiniband-diags"))
B200_PACKAGES = str(GOOD["fabric_packages"]) + SUBNET
MODULES = "mlx5_core 1 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\nib_umad 1 0 - Live 0x0\n"
SHARED, VGPU = FabricManager(fabric_mode="shared-nvswitch"), FabricManager(fabric_mode="vgpu")


def real_state(case: str) -> str:
    """The block of `nvidia-smi -q` that somebody published, of the one GPU here."""
    return "GPU 00000000:19:00.0\n" + published(case, "nvidia-smi-q-block").text


def fm(check: str) -> str:
    return f"fabric_manager.{check}"


ROWS = [
    Row("four generations: 3", fm("hardware"), None, {}, "pass", "1 NVSwitch of generation 3"),
    Row("generation 2", fm("hardware"), None, {"nvidia_functions": A100}, "pass", "generation 2"),
    Row("generation 1", fm("hardware"), None, {"nvidia_functions": NVSWITCH.replace("22a3", "1ac2")}, "pass",
        "generation 1"),
    Row("generation 4", fm("hardware"), None, B200, "pass", "2 bridges to NVSwitches of generation 4"),
    Row("EL 9's kernel, whose number is old and whose modules are there", fm("hardware"), None,
        {**B200, "platform": "Linux 5.14.0-570.12.1.el9_6.x86_64 x86_64\n"}, "pass", "2 bridges"),
    Row("Ubuntu 22.04's own kernel", fm("hardware"), None, {**B200, "platform": "Linux 5.15.0-164-generic x86_64\n"},
        "pass", "2 bridges"),
    Row("a cloud's kernel without the modules", fm("hardware"), None,
        {**B200, "platform": "Linux 6.14.0-1018-aws x86_64\n", "fabric_kernel": "module|mlx5_core\n"}, "fail",
        "6.14.0-1018-aws has no mlx5_ib ib_umad", "linux-modules-extra"),
    Row("boards of generation 3 need none of them", fm("hardware"), None, {"fabric_kernel": ""}, "pass"),
    Row("in a container the kernel is the machine's", fm("hardware"), None, {**B200, **PODMAN, "fabric_kernel": ""},
        "pass"),
    Row("PCIe cards", fm("hardware"), None, {"nvidia_functions": PCIE}, "fail", "H100-PCIE (PCIe) sits on no", "false"),
    Row("a rack", fm("hardware"), None, {"nvidia_functions": GB200}, "fail", "nvidia-imex instead", "false"),
    Row("a board without", fm("hardware"), None, SWITCHLESS, "fail", "H100-SXM5-80GB, and no NVSwitch", "false"),
    Row("nothing at all", fm("hardware"), None, {"nvidia_functions": ""}, "fail", "no GPU, and no NVSwitch"),
    Row("registered", fm("registered"), None, {}, "pass", "1 GPU: Completed, Success"),
    Row("not registered", fm("registered"), None,
        {"fabric_state": fabric_state("0000:19:00.0", state="In Progress", status="N/A")}, "fail",
        "0000:19:00.0 In Progress (N/A)", "gpuprov explain 802"),
    Row("registration failed", fm("registered"), None,
        {"fabric_state": fabric_state("0000:19:00.0", status="Insufficient Resources")}, "fail",
        "Completed (Insufficient Resources)"),
    Row("registered, and unhealthy", fm("registered"), None, {"fabric_state": real_state("h200-fabric-unhealthy")},
        "fail", "0000:19:00.0 Health Unhealthy, Bandwidth: Full", "gpuprov explain 802"),
    Row("insufficient resources on a real host", fm("registered"), None,
        {"fabric_state": real_state("azure-fabric-insufficient")}, "fail",
        "0000:19:00.0 Completed (Insufficient Resources)"),
    Row("in progress on a real host", fm("registered"), None,
        {"fabric_state": real_state("fabric-in-progress-580-159")}, "fail", "0000:19:00.0 In Progress (N/A)"),
    Row("where virtual machines share the NVSwitches it waits for a partition", fm("registered"), SHARED,
        {"fabric_state": real_state("fabric-in-progress-580-159")}, "pass",
        "1 In Progress until a partition with them is activated"),
    Row("the same for vGPUs", fm("registered"), VGPU, {"fabric_state": real_state("fabric-in-progress-580-159")},
        "pass"),
    Row("and a partition that is", fm("registered"), SHARED, {}, "pass", "1 GPU: Completed, Success"),
    Row("but not one that failed", fm("registered"), SHARED, {"fabric_state": real_state("azure-fabric-insufficient")},
        "fail", "Insufficient Resources"),
    Row("nor an unhealthy one", fm("registered"), SHARED, {"fabric_state": real_state("h200-fabric-unhealthy")},
        "fail", "Unhealthy"),
    Row("a GPU that a virtual machine has is not told", fm("registered"), SHARED,
        {"nvidia_functions": H100.replace("nvidia\n", "vfio-pci\n") + NVSWITCH, "fabric_state": ""}, "pass",
        "1 lent to virtual machines"),
    Row("on bare metal nobody lends one", fm("registered"), None,
        {"nvidia_functions": H100.replace("nvidia\n", "vfio-pci\n") + NVSWITCH, "fabric_state": ""}, "fail",
        "no fabric state"),
    Row("one of two GPUs is not told", fm("registered"), None,
        {"nvidia_functions": H100 + H100.replace(":19:", ":3b:") + NVSWITCH}, "fail", "0000:3b:00.0 not told"),
    Row("nvidia-smi is silent", fm("registered"), None, {"fabric_state": ""}, "fail", "no fabric state", "user_space"),
    Row("no driver to ask", fm("registered"), None, {"loaded_driver": ""}, "fail", "no NVIDIA module"),
    Row("nor in a container", fm("registered"), None, {"container": "podman", "loaded_driver": ""}, "skip",
        "podman container"),
    Row("the NVSwitches are gone", fm("registered"), None, SWITCHLESS, "fail", "none", "dmesg"),
    Row("A100 does not register", fm("registered"), None, {"nvidia_functions": A100, "fabric_state": ""}, "n/a",
        "generation 2"),
    Row("generation 3 needs no NVLSM", fm("subnet_manager"), None, {}, "n/a", "need none"),
    Row("no NVSwitch, no NVLSM", fm("subnet_manager"), None, SWITCHLESS, "skip", "no NVSwitch"),
    Row("NVLSM is alive", fm("subnet_manager"), None, {**B200, "fabric_packages": B200_PACKAGES,
        "fabric_manager": daemon(VERSION, FM, NVLSM), "loaded_modules": MODULES}, "pass", "process 701"),
    Row("everything but NVLSM", fm("subnet_manager"), None,
        {**B200, "fabric_packages": B200_PACKAGES, "loaded_modules": MODULES}, "fail", "no nvlsm process", "nvlsm.log"),
    Row("NVLSM is not installed", fm("subnet_manager"), None, {**B200, "loaded_modules": MODULES}, "fail",
        "not installed: nvlsm libibumad3 infiniband-diags", change="package nvlsm:  -> installed"),
    Row("ib_umad is not loaded", fm("subnet_manager"), None,
        {**B200, "fabric_packages": B200_PACKAGES, "loaded_modules": MODULES.replace("ib_umad", "ib_uverbs")}, "fail",
        "not loaded: ib_umad", "modprobe -a ib_umad", change="module ib_umad:  -> loaded"),
    Row("a container sees its machine's modules", fm("subnet_manager"), None, {**B200, **PODMAN,
        "fabric_packages": B200_PACKAGES, "fabric_manager": daemon(VERSION, FM, NVLSM), "loaded_modules": ""}, "pass"),
    Row("nothing at boot", fm("subnet_manager_at_boot"), None, {}, "n/a", "need no module"),
    Row("ib_umad at boot", fm("subnet_manager_at_boot"), None, {**B200, "modules_load": "ib-umad\n"}, "pass"),
    Row("no ib_umad at boot", fm("subnet_manager_at_boot"), None, {**B200, "modules_load": "nvidia-uvm\n"}, "fail",
        "not in modules-load.d: ib_umad", "name the GPUs in the spec"),
    Row("no NVSwitch at boot", fm("subnet_manager_at_boot"), None, SWITCHLESS, "skip", "no NVSwitch"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_fabric_manager(row: Row) -> None:
    judge(row)
