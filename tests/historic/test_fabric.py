"""Bugs of the NVSwitch fabric: Fabric Manager of another version, dead, or without what it needs."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.fleet.specs import with_contributions
from gpuprov.spec.model import GpuSpec
from tests.capabilities import contents_host
from tests.capabilities.asking import H100, OPEN, packages, units
from tests.facts.probes import captured
from tests.historic.listed import caught, failing, judged, spec

VERSION, OTHER, NEWEST = "535.261.03", "535.216.03", "580.95.05"
NAME = "nvidia-fabricmanager-535"
SWITCH = "0000:07:00.0 0x10de 0x22a3 0x10de 0x1796 0x068000 \n"
STATE = "GPU 00000000:19:00.0\n    Fabric\n        State                         : Completed\n"
STATE += "        Status                        : Success\n"
# https://github.com/NVIDIA/gpu-operator/issues/544
COMPLAINT = (
    "log|fabric manager NVIDIA GPU driver interface version {} don't match with driver version {}. Please update\n"
)
UNIT = "\nId=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState={}\nUnitFileState=enabled\n"


def daemon(version: str = VERSION, *processes: str, log: str = "") -> str:
    """What the daemon's probe prints: its program, its configuration, its live processes."""
    stat = " ".join(["S", "1", *["0"] * 17, "5000", "0"])
    lines = [f"process|{4000 + number}|{stat}|{command} \n" for number, command in enumerate(processes)]
    clock, program = "clock|2000000000.0|100000.0|100\n", "program|1999000000.0\nversion|Fabric Manager version is : "
    return f"{clock}{''.join(lines)}{program}{version}\nconfig|1999000000.0\nsetting|FABRIC_MODE=0\n{log}"


def installed(version: str, state: str = "hi ", name: str = NAME) -> str:
    """dpkg-query's line."""
    return f"{state}|{name}|{version}-1|fabricmanager\n"


def offered(name: str, *versions: str) -> str:
    """apt-cache madison's lines."""
    return "".join(f"{name} | {version}-1 | https://site.example/mirror  Packages\n" for version in versions)


ALIVE = "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg"
H100_BOARD: dict[str, Output | str] = {
    "nvidia_functions": H100 + SWITCH,
    "packages": packages() + installed(VERSION),
    "package_index": captured("package_index", "bookworm").text + offered(NAME, "535.309.01", VERSION),
    "units": units() + UNIT.format("active"),
    "fabric_packages": installed(VERSION),
    "fabric_manager": daemon(VERSION, ALIVE),
    "fabric_state": STATE,
}
DEAD: dict[str, Any] = {
    "units": units() + UNIT.format("failed"),
    "contents": contents_host.unit("nvidia-fabricmanager.service", "failed", "enabled"),
}
WITHOUT_NVLSM = (
    installed(NEWEST, name="nvidia-fabricmanager")
    + "ii |libibumad3|44.0-2|rdma-core\nii |infiniband-diags|44.0-2|rdma-core\n"
)
MELLANOX = "mlx5_core 2433024 1 - Live 0x0\nmlx5_ib 552960 0 - Live 0x0\n"
B200_BOARD: dict[str, Output | str] = {
    **H100_BOARD,
    "nvidia_functions": "0000:19:00.0 0x10de 0x2901 0x10de 0x1999 0x030200 nvidia\n",
    "fabric_bridges": "0000:05:00.0\n",
    "packages": packages(OPEN, NEWEST + "-1") + installed(NEWEST, name="nvidia-fabricmanager"),
    "package_index": "".join(offered(name, NEWEST) for name in (*OPEN, "nvidia-fabricmanager")),
    "fabric_subnet_index": offered("nvlsm", "2025.06.11"),
    "kernels": f"6.1.0-47-amd64|1|1|{NEWEST}|1\n",
    "loaded_driver": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {NEWEST}  Release Build  (dvs)  Thu "
    "Oct 10\n",
    "driver_libraries": f"/usr/lib/libcuda.so.{NEWEST}\n/usr/lib/libnvidia-ml.so.{NEWEST}\n",
    "nvidia_smi": f"00000000:19:00.0, NVIDIA B200, GPU-3c1f6d5e, {NEWEST}, Enabled\n",
    "loaded_modules": MELLANOX + "ib_umad 40960 0 - Live 0x0\n",
    "modules_load": "ib_umad\n",
    "fabric_packages": WITHOUT_NVLSM + "hi |nvlsm|2025.06.11-1|nvlsm\n",
    "fabric_manager": daemon(NEWEST, ALIVE, "/opt/nvidia/nvlsm/sbin/nvlsm -F /usr/share/nvidia/nvlsm/nvlsm.conf"),
}


def another(version: str, state: str = "hi ", name: str = NAME) -> dict[str, Any]:
    """Fabric Manager of another version than the driver: installed, refused by itself, dead."""
    text = installed(version, state, name)
    log = COMPLAINT.format(version, VERSION)
    return {"fabric_packages": text, "packages": packages() + text, "fabric_manager": daemon(version, log=log), **DEAD}


def test_01_an_automatic_upgrade_moves_fabric_manager() -> None:
    told = caught(
        "1",
        "fabric_manager.held",
        "fabric_manager.version",
        along=["fabric_manager.active", "fabric_manager.log"],
        base=H100_BOARD,
        **another("535.309.01", "ii "),
    )
    assert told["fabric_manager.held"].found == f"not held: {NAME}"
    caught(
        "1",
        "fabric_manager.held",
        base=H100_BOARD,
        fabric_packages=installed(VERSION, "ii "),
    )


def test_02_fabric_manager_is_of_the_same_branch_only() -> None:
    told = caught(
        "2",
        "fabric_manager.version",
        "fabric_manager.active",
        along=["fabric_manager.log"],
        base=H100_BOARD,
        **another(OTHER),
    )
    assert told["fabric_manager.version"].found == f"{NAME} {OTHER}-1"
    assert f"it is of version {OTHER}, and refuses driver {VERSION}" in told["fabric_manager.active"].found


def test_03_fabric_manager_is_of_another_branch() -> None:
    told = caught(
        "3",
        "fabric_manager.version",
        along=["fabric_manager.active", "fabric_manager.log"],
        base=H100_BOARD,
        **another("590.48.01", name="nvidia-fabricmanager"),
    )
    assert told["fabric_manager.version"].found == "nvidia-fabricmanager 590.48.01-1"


def test_25_a_b200_board_without_subnet_manager_or_ib_umad() -> None:
    host = with_contributions(spec(NvidiaDriver(version="580"), GpuSpec(model="B200", count=1), fabric=True))[0]
    assert failing(judged(host, **B200_BOARD)) == {}
    told = caught("25", "fabric_manager.subnet_manager", base=B200_BOARD, asked=host, fabric_packages=WITHOUT_NVLSM)
    assert told["fabric_manager.subnet_manager"].found == "not installed: nvlsm"
    told = caught(
        "25",
        "fabric_manager.subnet_manager_at_boot",
        along=["fabric_manager.subnet_manager", "kernel.modules_load"],
        base=B200_BOARD,
        asked=host,
        loaded_modules=MELLANOX,
        modules_load="",
    )
    assert told["fabric_manager.subnet_manager"].found == "not loaded: ib_umad"


def test_26_fabric_manager_is_dead_and_the_fabric_state_says_completed() -> None:
    told = caught("26", "fabric_manager.active", base=H100_BOARD, fabric_manager=daemon(), **DEAD)
    assert "the latched fabric state is still Completed on 1 GPU" in told["fabric_manager.active"].found
    caught("26", "fabric_manager.active", base=H100_BOARD, fabric_manager=daemon())  # systemd has not noticed either


def test_27_a_board_needs_fabric_manager_and_a_card_has_no_use_for_it() -> None:
    board = judged(spec(), nvidia_functions=H100 + SWITCH, units=units())
    assert set(failing(board)) == {"host.fabric"}
    card = caught(
        "27",
        "fabric_manager.hardware",
        along=["fabric_manager.registered"],
        base=H100_BOARD,
        nvidia_functions=H100,
        gpu=GpuSpec(model="10de:2330"),
    )
    assert "no NVSwitch" in card["fabric_manager.hardware"].found
    caught("27", "host.fabric", nvidia_functions=H100 + SWITCH, units=units())
