"""The PCI tree and the NVLinks of a host: read by the probes' own scripts, and from what hosts print."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus.nvlink import NVLINKS, LinkedGpu, NvLinks
from gpuprov.facts.probes.gpus.nvlink import parse as parse_nvlinks
from gpuprov.facts.probes.gpus.topology import PCI, Function, Link, PciTree, parse
from tests.facts.probes import run_script
from tests.hardware.topology.machines import Machine, hgx_h100, port, rail
from tests.hardware.topology.others import hgx_b200
from tests.rows import run_each


def read(probe: Probe[object], root: Path, **programs: str) -> Output:
    """Run the probe's script with sysfs in this folder and these programs."""
    named = {name.replace("_", "-"): body for name, body in programs.items()}
    return run_script(probe.script.replace("/sys/", f"{root}/sys/"), root, named)


@pytest.mark.install
@pytest.mark.parametrize("machine", [hgx_h100(misplaced=True), hgx_b200()])
def test_the_script_reads_what_sysfs_shows(machine: Machine, tmp_path: Path) -> None:
    machine.sysfs(tmp_path)
    output = read(PCI, tmp_path)
    assert (output.status, output.error) == (0, "")
    assert parse(output) == parse(Output(machine.texts["topology_pci"].text.replace("/sys/", f"{tmp_path}/sys/")))


def test_what_is_not_drawn_is_not_read(tmp_path: Path) -> None:
    """Disks, audio functions, other makers' network cards; what has no attributes is borne."""
    machine = Machine()
    machine.gpu(port(rail("15"), 3), "2330", 0)
    machine.sysfs(tmp_path)
    bus = tmp_path / "sys/bus/pci/devices"
    others = {
        "0000:01:00.0": ("0x8086", "0x010802"),
        "0000:1a:00.1": ("0x10de", "0x040300"),
        "0000:02:00.0": ("0x14e4", "0x020000"),
    }
    for address, (vendor, pci_class) in others.items():
        folder = tmp_path / "sys/devices/pci0000:00" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{pci_class}\n")
        (bus / address).symlink_to(folder)
    (bus / "0000:03:00.0").symlink_to(tmp_path / "gone")
    bare = tmp_path / "sys/devices/pci0000:00/0000:04:00.0"
    bare.mkdir()
    for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        (bare / name).write_text(f"{value}\n")
    (bus / "0000:04:00.0").symlink_to(bare)
    output = read(PCI, tmp_path)
    assert (output.status, output.error) == (0, "")
    functions = parse(output).functions
    assert "0000:1a:00.0" in functions
    assert not set(others) & set(functions)
    assert functions["0000:04:00.0"].link == Link()
    assert functions["0000:04:00.0"].numa_node == -1


@run_each(
    ("vpd", "shown"), [(b"\x82\x20\0NVIDIA ConnectX-7\0SW_MNG\0", False), (b"\x82\x20\0NVIDIA ConnectX-7\0", True)]
)
def test_an_nvlink_bridge_without_an_rdma_device_is_no_hca(vpd: bytes, shown: bool, tmp_path: Path) -> None:
    machine = Machine()
    machine.hca("pci0000:00/0000:00:1c.0/0000:05:00.0", "mlx5_0", 0)
    machine.functions["pci0000:00/0000:00:1c.0/0000:05:00.0"][11] = ""
    machine.sysfs(tmp_path)
    (tmp_path / "sys/devices/pci0000:00/0000:00:1c.0/0000:05:00.0/vpd").write_bytes(vpd)
    assert ("0000:05:00.0" in parse(read(PCI, tmp_path)).functions) == shown


@run_each(
    ("header", "width", "virtual", "gone"),
    [
        (b"\xff" * 64, "63", False, True),
        (b"\xff" * 64, "255", False, True),
        (b"\x15\xb3\x21\x10" + b"\0" * 60, "63", False, False),
        (b"\xff" * 64, "63", True, False),
    ],
)
def test_a_function_whose_configuration_reads_as_ones_is_gone(
    header: bytes, width: str, virtual: bool, gone: bool, tmp_path: Path
) -> None:
    machine, way = Machine(), "pci0000:00/0000:00:1c.0/0000:05:00.0"
    machine.hca(way, "mlx5_0", 0, now=f"Unknown x{width}")
    machine.sysfs(tmp_path)
    function = tmp_path / "sys/devices" / way
    (function / "config").write_bytes(header)
    if virtual:
        (function / "physfn").symlink_to(tmp_path)
    output = read(PCI, tmp_path)
    assert (output.status, output.error) == (0, "")
    assert parse(output).functions["0000:05:00.0"].gone is gone


def test_a_machine_without_pci(tmp_path: Path) -> None:
    output = read(PCI, tmp_path)
    assert (output.status, output.error) == (0, "")
    assert parse(output) == PciTree()


def line(path: str, *values: str, numa: str = "0") -> str:
    cells = [*values, *[""] * (4 - len(values))]
    return "|".join(["function", path, "0x10de", "0x2330", "0x030200", numa, *cells, "", ""])


@run_each(
    ("values", "link"),
    [
        (("32.0 GT/s PCIe", "16", "64.0 GT/s PCIe", "16"), Link(width=16, speed=32, max_width=16, max_speed=64)),
        (("8 GT/s", "8", "16 GT/s", "16"), Link(width=8, speed=8, max_width=16, max_speed=16)),
        (("2.5 GT/s PCIe", "1", "2.5 GT/s", "32"), Link(width=1, speed=2.5, max_width=32, max_speed=2.5)),
        (("Unknown", "0", "Unknown speed", "255"), Link()),
        (("Unknown", "63", "", ""), Link()),
        ((), Link()),
    ],
)
def test_links(values: tuple[str, ...], link: Link) -> None:
    (function,) = parse(Output(line("/sys/devices/pci0000:00/0000:00:05.0", *values))).functions.values()
    assert function.link == link


@run_each(
    ("path", "root", "bridges"),
    [
        ("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0", "/sys/devices/pci0000:16", ("0000:16:01.0",)),
        ("/sys/devices/pci0008:00/0008:00:00.0/0008:01:00.0", "/sys/devices/pci0008:00", ("0008:00:00.0",)),
        (
            "/sys/devices/platform/NVDA0015:00/pci0018:00/0018:00:00.0",
            "/sys/devices/platform/NVDA0015:00/pci0018:00",
            (),
        ),
        (
            "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0",
            "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00",
            (),
        ),
        (
            "/sys/devices/pci0000:16/0000:16:00.5/pci10000:00/10000:00:02.0/10000:01:00.0",
            "/sys/devices/pci0000:16",
            ("0000:16:00.5", "10000:00:02.0"),
        ),
    ],
)
def test_the_way_to_a_function(path: str, root: str, bridges: tuple[str, ...]) -> None:
    (function,) = parse(Output(line(path))).functions.values()
    assert function == Function(
        address=path.rpartition("/")[2],
        root=root,
        bridges=bridges,
        identifier="10de:2330",
        pci_class="030200",
        numa_node=0,
    )


def test_sockets() -> None:
    text = "node|0|0-55,112-167|0\nnode|1|56-111|1\nnode|2||\nnode|3|200|\n"
    assert parse(Output(text)) == PciTree(sockets={0: 0, 1: 1, 3: -1})


QUERY = """printf '0, 00000000:1B:00.0, P0, Disabled, Enabled\\n'
printf '1, 00000000:43:00.0, P8, Enabled, Disabled\\n2, 00000008:01:00.0, P0, [N/A], [N/A]\\n'"""
STATUS = """printf 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\\n\\t Link 0: 26.562 GB/s\\n\\t Link 1: <inactive>\\n'
printf 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\\n\\t Link 0: 26.562 GB/s\\n\\t Link 1: 26.562 GB/s\\nGPU 2: x (UUID: GPU-3)\\n'"""
TOPO = r"""printf '\t\033[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n'
printf 'GPU0\t X \tNV12\tSYS\tPIX\t0-47\t0\t\tN/A\nGPU1\tNV12\t X \tNODE\tSYS\nGPU2\tSYS\tNODE\t X \tSYS\n'
printf 'NIC0\tPIX\tSYS\tSYS\t X \n\nLegend:\n'
printf '  NV#  = Connection traversing a bonded set of # NVLinks\n'"""


def test_nvlinks(tmp_path: Path) -> None:
    smi = f"case $1 in --query*) {QUERY} ;; nvlink) {STATUS} ;; topo) {TOPO} ;; esac"
    assert parse_nvlinks(read(NVLINKS, tmp_path, nvidia_smi=smi)) == NvLinks(
        gpus=(
            LinkedGpu(index=0, bus="0000:1b:00.0", pstate="P0", links=2, active=1),
            LinkedGpu(index=1, bus="0000:43:00.0", pstate="P8", persistent=False, mig=True, links=2, active=2),
            LinkedGpu(index=2, bus="0008:01:00.0", pstate="P0"),
        ),
        pairs={(0, 1): 12},
    )


def test_no_nvidia_smi(tmp_path: Path) -> None:
    assert parse_nvlinks(read(NVLINKS, tmp_path)) == NvLinks(complaint="nvidia-smi is not installed")


@run_each(
    ("smi", "complaint"),
    [
        (
            '[ "$1" = topo ] || echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA '
            'driver."; exit 9',
            "has failed",
        ),
        ("exit 1", "it said nothing"),
        (f"case $1 in --query*) {QUERY} ;; *) exit 2 ;; esac", "nvidia-smi nvlink -s said nothing"),
    ],
)
def test_a_driver_that_does_not_answer(smi: str, complaint: str, tmp_path: Path) -> None:
    found = parse_nvlinks(read(NVLINKS, tmp_path, nvidia_smi=smi))
    assert complaint in found.complaint
    assert found.pairs is None
