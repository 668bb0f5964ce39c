"""GPUs that virtual machines have: by vfio-pci, or by a variant of it for single devices."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.facts.captures import adapt
from gpuprov.facts.captures.model import Pieces
from gpuprov.facts.captures.plain import SMI
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.host.pci import NVIDIA_FUNCTIONS, driven, is_lent, parse
from tests.capabilities.asking import GIVEN, H100, NVSWITCH, Row, judge
from tests.rows import run_each

LENDERS = ("vfio-pci", "vfio_pci", "nvgrace_gpu_vfio_pci", "nvgrace-gpu-vfio-pci", "mlx5_vfio_pci", "hisi-acc-vfio-pci")
OTHERS = ("nvidia", "nouveau", "nova_core", "mlx5_core", "vfio", "vfio-platform", "pcieport", "")


@run_each(("driver", "lent"), [*((name, True) for name in LENDERS), *((name, False) for name in OTHERS)])
def test_who_lends_by_python_and_by_the_shell(tmp_path: Path, driver: str, lent: bool) -> None:
    assert is_lent(driver) is lent
    functions = parse(Output(H100 + GIVEN.replace("vfio-pci", driver)))
    assert len(driven(functions)) == (1 if lent else 2)

    function = tmp_path / "0009:01:00.0"
    function.mkdir()
    for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2342")):
        (function / name).write_text(f"{value}\n")
    for name in ("subsystem_vendor", "subsystem_device"):
        (function / name).write_text("0x10de\n")
    if driver:
        (tmp_path / "drivers" / driver).mkdir(parents=True)
        (function / "driver").symlink_to(tmp_path / "drivers" / driver)
    counted, listed = (
        subprocess.run(
            ["sh", "-c", probe.script.replace("/sys/bus/pci/devices/*", f"{tmp_path}/0*")],
            capture_output=True, text=True, check=False, timeout=30,
        ).stdout
        for probe in (GPU_HEALTH, NVIDIA_FUNCTIONS)
    )  # fmt: skip
    assert counted.splitlines()[:2] == [f"@present {int(not lent)}", f"@given {int(lent)}"]
    assert len(driven(parse(Output(listed)))) == int(not lent)


@run_each("driver", LENDERS)
@run_each(
    "row",
    [
        Row("persistence mode", "persistence.mode_on", None, {}, "pass", "Enabled on 1 GPU"),
        Row("user space", "nvidia_driver.user_space", None, {}, "pass"),
        Row("DCGM", "dcgm.gpus", None, {}, "pass", "1 GPU"),
        Row("the fabric of virtual machines", "fabric_manager.registered", FabricManager(fabric_mode="shared-nvswitch"),
            {"nvidia_functions": H100 + GIVEN + NVSWITCH}, "pass", "1 lent to virtual machines"),
    ],
    ids=lambda row: row.name,
)  # fmt: skip
def test_a_lent_gpu_is_nobodys_defect(row: Row, driver: str) -> None:
    functions = str(row.changed.get("nvidia_functions", H100 + GIVEN))
    judge(row._replace(changed={**row.changed, "nvidia_functions": functions.replace("vfio-pci", driver)}))


@run_each("driver", LENDERS)
def test_a_lent_gpu_in_a_report_is_told_as_on_the_host(driver: str) -> None:
    shown = f"09:01.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2342]\n\tKernel driver in use: {driver}\n"
    pieces = Pieces(commands={"lspci -nnk": shown, SMI: "Driver Version : 580.1\n"})
    assert str(adapt.PROBES["gpu_health"](pieces)).splitlines()[:2] == ["@present 0", "@given 1"]


@run_each("driver", LENDERS)
def test_without_a_gpu_of_its_own_the_host_needs_no_driver(driver: str) -> None:
    """But for NVSwitches, which it runs for virtual machines that share them."""
    lent = GIVEN.replace("vfio-pci", driver)
    judge(
        Row(
            "",
            "nvidia_driver.loaded",
            None,
            {"nvidia_functions": lent},
            "skip",
            "all GPUs are lent to virtual machines",
        )
    )
    judge(Row("", "nvidia_driver.loaded", None, {"nvidia_functions": lent + NVSWITCH}, "pass"))
