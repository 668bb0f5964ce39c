"""fabric_manager: the version of the driver, held, enabled, alive, its settings in force; each generation of
NVSwitches, registration, the subnet manager."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.facts.probes.base import Output
from tests.capabilities.asking import (
    BARE,
    FM,
    GOOD,
    H100,
    NVSWITCH,
    PODMAN,
    Row,
    ask,
    daemon,
    fabric_state,
    judge,
    older,
    units,
)
from tests.capabilities.contents_host import Also, unit, with_lines
from tests.facts.probes import published
from tests.rows import run_each

NAME, VERSION = "nvidia-fabricmanager-535", "535.261.03"
NVLSM = "/opt/nvidia/nvlsm/sbin/nvlsm -F /usr/share/nvidia/nvlsm/nvlsm.conf"
SUBNET = "".join(f"hi |{name}|1-1|{name}\n" for name in ("nvlsm", "libibumad3", "infiniband-diags"))
B200_PACKAGES = str(GOOD["fabric_packages"]) + SUBNET
# https://github.com/NVIDIA/gpu-operator/issues/544
# https://github.com/leptonai/gpud components/accelerator/nvidia/fabric-manager/log_matcher_test.go
FATAL_ERROR = (
    "[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id "
    "00000000:86:00.0 physical id 3 port 33"
)
NON_FATAL_ERROR = (
    "[Jul 09 2024 18:14:07] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus "
    "id 00000000:86:00.0 physical id 3 port 61"
)
MULTICAST = (
    "[Sep 17 2024 06:01:46] [ERROR] [tid 1230079] failed to find the GPU handle 5410063385821516767 in the "
    "multicast team request setup 6130285411925746235."
)
MISMATCH = (
    "fabric manager NVIDIA GPU driver interface version 535.309.01 don't match with driver version 535.261.03. "
    "Please update with matching NVIDIA driver package."
)
DEAD = daemon(VERSION, "")


def installed(version: str = VERSION, name: str = NAME, state: str = "hi ") -> str:
    return f"{state}|{name}|{version}-1|fabricmanager\n"


def driver(version: str) -> str:
    return f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Oct 10\n"


def systemd(active: str, file: str = "enabled") -> dict[str, str]:
    """How systemd has the unit, by both probes that read it."""
    return {"units": units(fabric=(active, file)), "contents": unit("nvidia-fabricmanager.service", active, file)}


def fm(check: str) -> str:
    return f"fabric_manager.{check}"


CONFIG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
OLD_PROGRAM = older("nvidia-fabricmanager.service", "/usr/bin/nv-fabricmanager")
OLD_SETTINGS = older("nvidia-fabricmanager.service", CONFIG)
SHARED = FabricManager(fabric_mode="shared-nvswitch", settings={"LOG_LEVEL": 3})
ROWS = [
    Row("of the driver's version", fm("version"), None, {}, "pass", f"{NAME} {VERSION}-1"),
    Row("not installed", fm("version"), None, {"fabric_packages": "", "fabric_manager": BARE["fabric_manager"]},
        "fail", "no Fabric Manager"),
    Row("from a runfile", fm("version"), None, {"fabric_packages": ""}, "fail", "no Fabric", "belongs to no package"),
    Row("half installed", fm("version"), None, {"fabric_packages": installed(state="iU ")}, "fail", "incomplete",
        "dpkg"),
    Row("another program", fm("version"), None, {"fabric_manager": daemon("535.183.06")}, "fail", "says 535.183.06",
        "dpkg -S"),
    Row("the old driver is still loaded", fm("version"), None, {"loaded_driver": driver("535.216.03")}, "fail",
        "the loaded driver is 535.216.03", reboot="the loaded driver is 535.216.03"),
    Row("no driver", fm("version"), None, {"packages": "", "loaded_driver": ""}, "fail", "no driver", "nvidia_driver"),
    Row("held", fm("held"), None, {}, "pass", "1 package held"),
    Row("not held", fm("held"), None, {"fabric_packages": installed(state="ii ")}, "fail", f"not held: {NAME}",
        f"apt-mark hold {NAME}", change=f"hold {NAME}: not held -> held"),
    Row("nvlsm is not held", fm("held"), None, {"fabric_packages": B200_PACKAGES.replace("hi |nvlsm", "ii |nvlsm")},
        "fail", "nvlsm"),
    Row("nothing to hold", fm("held"), None, {"fabric_packages": ""}, "fail", "no package of Fabric Manager"),
    Row("enabled", fm("enabled"), None, {}, "pass"),
    Row("the package does not enable it", fm("enabled"), None, systemd("active", "disabled"), "fail", "is disabled",
        "systemctl enable --now", change="service nvidia-fabricmanager.service: disabled -> enabled"),
    Row("no unit", fm("enabled"), None, systemd("inactive", ""), "fail", "not-found", "gpuprov apply"),
    Row("alive", fm("active"), None, {}, "pass", "nvidia-fabricmanager.service active"),
    Row("dead for days, and the state says Completed", fm("active"), None,
        {**systemd("failed"), "fabric_manager": DEAD}, "fail",
        "is failed; the latched fabric state is still Completed on 1 GPU",
        "journalctl -u nvidia-fabricmanager.service", change="service nvidia-fabricmanager.service: failed -> active"),
    Row("a oneshot unit keeps its face", fm("active"), None, {"fabric_manager": DEAD}, "fail",
        "is active without a process",
        change="service nvidia-fabricmanager.service: active without a process -> started anew"),
    Row("a container whose machine has no driver loaded", fm("active"), None,
        {**PODMAN, "loaded_driver": "", "fabric_manager": DEAD}, "skip", "none is loaded there"),
    Row("a container whose machine has one", fm("active"), None, {**PODMAN, "fabric_manager": DEAD}, "fail",
        "without a process"),
    Row("a zombie", fm("active"), None, {"fabric_manager": daemon(state="Z")}, "fail", "without a process"),
    Row("a process that systemd has lost", fm("active"), None, systemd("failed"), "fail",
        "process 700 lives on without it"),
    Row("only NVLSM lives", fm("active"), None, {"fabric_manager": daemon(VERSION, NVLSM)}, "fail",
        "without a process"),
    Row("older than its program", fm("active"), None, {"unit_reads": OLD_PROGRAM}, "fail",
        "is older than /usr/bin/nv-fabricmanager", "gpuprov apply"),
    Row("older than its program, which waits for the driver", fm("active"), None,
        {"fabric_manager": daemon("535.309.01"), "unit_reads": OLD_PROGRAM}, "fail",
        "older than /usr/bin/nv-fabricmanager", "then a reboot", reboot="535.261.03 is loaded"),
    Row("dead, and its program waits for the driver", fm("active"), None,
        {**systemd("failed"), "fabric_manager": daemon("535.309.01", "")}, "fail", "is failed", "then a reboot",
        reboot="535.261.03 is loaded"),
    Row("it refused the driver", fm("active"), None,
        {**systemd("failed"), "fabric_manager": daemon(VERSION, "", log=MISMATCH)}, "fail",
        "its log: it is of version 535.309.01, and refuses driver 535.261.03", "gpuprov apply"),
    Row("its settings changed after it had read them", fm("active"), None, {"unit_reads": OLD_SETTINGS}, "fail",
        f"is older than {CONFIG}", change=f"service nvidia-fabricmanager.service: older than {CONFIG} -> started anew"),
    Row("changed, and the program waits for the driver", fm("active"), None,
        {"fabric_manager": daemon("535.309.01"), "unit_reads": OLD_SETTINGS}, "fail", f"older than {CONFIG}",
        reboot="535.261.03 is loaded"),
    Row("its log is clean", fm("log"), None, {}, "pass", "no complaint"),
    Row("it complained", fm("log"), None, {"fabric_manager": daemon(log=MISMATCH)}, "fail", "refuses driver",
        "gpuprov explain"),
    Row(
        "an NVSwitch has a fatal error",
        fm("log"),
        None,
        {"fabric_manager": daemon(errors=[NON_FATAL_ERROR, FATAL_ERROR, FATAL_ERROR.partition("] [tid 841] ")[2]])},
        "fail",
        "its log: detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id "
        "3 port 33",
        "nvidia-smi -r",
    ),
    Row("errors that are not fatal are told", fm("log"), None,
        {"fabric_manager": daemon(errors=[NON_FATAL_ERROR, MULTICAST])}, "pass",
        "in the multicast team request setup 6130285411925746235. (and 1 more)"),
    Row("no journal", fm("log"), None, {"fabric_manager": daemon(log="")}, "skip", "nothing"),
    Row("the mode is set", fm("files"), None, {}, "pass", f"{CONFIG} with FABRIC_MODE=0"),
    Row("another mode and level", fm("files"), SHARED,
        {"contents": Also(with_lines(CONFIG, "FABRIC_MODE=0", "LOG_LEVEL=4"))}, "fail",
        f"{CONFIG}: FABRIC_MODE=0, LOG_LEVEL=4", "gpuprov apply",
        change=f"file {CONFIG}: FABRIC_MODE=0, LOG_LEVEL=4 -> FABRIC_MODE=1, LOG_LEVEL=3"),
    Row("as asked", fm("files"), SHARED, {}, "pass", "FABRIC_MODE=1 LOG_LEVEL=3"),
    Row("no file", fm("files"), None, {"contents": f"@contents\nnone|{CONFIG}\n"}, "fail", f"{CONFIG}: absent"),
    Row("its own file is read", fm("settings"), None, {}, "pass", CONFIG),
    Row("another file is read", fm("settings"), None,
        {"fabric_manager": daemon(VERSION, "/usr/bin/nv-fabricmanager --config /etc/site.cfg")}, "fail",
        "started with /etc/site.cfg", "systemctl cat"),
    Row("the daemon is dead", fm("settings"), None, {"fabric_manager": DEAD}, "n/a", "no daemon runs"),
]  # fmt: skip


def test_truth_values_are_written_as_numbers() -> None:
    block = FabricManager(settings={"LOG_APPEND_TO_LOG": True})
    assert "LOG_APPEND_TO_LOG=1" in ask(fm("files"), block).found


SWITCHLESS: dict[str, Output | str] = {"nvidia_functions": H100}
A100 = "0000:19:00.0 0x10de 0x20b2 0x10de 0x1463 0x030200 nvidia\n0000:07:00.0 0x10de 0x1af1 0x10de 0x1463 0x068000 \n"
PCIE = "0000:19:00.0 0x10de 0x2331 0x10de 0x1626 0x030200 nvidia\n"
B200: dict[str, Output | str] = {
    "nvidia_functions": "0000:19:00.0 0x10de 0x2901 0x10de 0x1999 0x030200 nvidia\n",
    "fabric_bridges": "0000:05:00.0\n0000:06:00.0\n",
}
MODULES = "mlx5_core 1 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\nib_umad 1 0 - Live 0x0\n"
PARTITIONED, VGPU = FabricManager(fabric_mode="shared-nvswitch"), FabricManager(fabric_mode="vgpu")


def real_state(case: str) -> str:
    """The block of `nvidia-smi -q` that somebody published, of the one GPU here."""
    return "GPU 00000000:19:00.0\n" + published(case, "nvidia-smi-q-block").text


HARDWARE = [
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
    Row("a board without", fm("hardware"), None, SWITCHLESS, "fail", "H100-SXM5-80GB, and no NVSwitch", "false"),
    Row("nothing at all", fm("hardware"), None, {"nvidia_functions": ""}, "fail", "no GPU, and no NVSwitch"),
    Row("registered", fm("registered"), None, {}, "pass", "1 GPU: Completed, Success"),
    Row("not registered", fm("registered"), None,
        {"fabric_state": fabric_state("0000:19:00.0", state="In Progress", status="N/A")}, "fail",
        "0000:19:00.0 In Progress (N/A)", "gpuprov explain 802"),
    Row("registered, and unhealthy", fm("registered"), None, {"fabric_state": real_state("h200-fabric-unhealthy")},
        "fail", "0000:19:00.0 Health Unhealthy, Bandwidth: Full", "gpuprov explain 802"),
    Row("insufficient resources on a real host", fm("registered"), None,
        {"fabric_state": real_state("azure-fabric-insufficient")}, "fail",
        "0000:19:00.0 Completed (Insufficient Resources)"),
    Row("in progress on a real host", fm("registered"), None,
        {"fabric_state": real_state("fabric-in-progress-580-159")}, "fail", "0000:19:00.0 In Progress (N/A)"),
    Row("where virtual machines share the NVSwitches it waits for a partition", fm("registered"), PARTITIONED,
        {"fabric_state": real_state("fabric-in-progress-580-159")}, "pass",
        "1 In Progress until a partition with them is activated"),
    Row("the same for vGPUs", fm("registered"), VGPU, {"fabric_state": real_state("fabric-in-progress-580-159")},
        "pass"),
    Row("but not one that failed", fm("registered"), PARTITIONED,
        {"fabric_state": real_state("azure-fabric-insufficient")},
        "fail", "Insufficient Resources"),
    Row("nor an unhealthy one", fm("registered"), PARTITIONED, {"fabric_state": real_state("h200-fabric-unhealthy")},
        "fail", "Unhealthy"),
    Row("a GPU that a virtual machine has is not told", fm("registered"), PARTITIONED,
        {"nvidia_functions": H100.replace("nvidia\n", "vfio-pci\n") + NVSWITCH, "fabric_state": ""}, "pass",
        "1 lent to virtual machines"),
    Row("on bare metal nobody lends one", fm("registered"), None,
        {"nvidia_functions": H100.replace("nvidia\n", "vfio-pci\n") + NVSWITCH, "fabric_state": ""}, "fail",
        "no fabric state"),
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


@run_each("row", [pytest.param(row, id=row.name) for row in (*ROWS, *HARDWARE)])
def test_fabric_manager(row: Row) -> None:
    judge(row)
