"""The PCIe probe's own script, run on a sysfs tree with configuration spaces: both capability lists, the path, who is
left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.pcie import PCIE, Pcie, parse
from tests.capabilities.pcie_host import CONTROL, GPU, HCA, LEFT, ON, RIGHT, ROOT_PORT, UPSTREAM, said, space, tree
from tests.facts.probes import run_well

UNIT = "printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n'"


def read(root: Path, **programs: str) -> Pcie:
    places = (
        "/sys/bus/pci",
        "/proc/irq",
        "/etc/gpuprov",
        "/proc/[0-9]*",
        "/etc/default",
        "/proc/cmdline",
        "/sys/kernel",
    )
    commands = {"systemctl": "exit 1", "journalctl": "exit 1", **programs}
    return parse(run_well(PCIE.script, root, commands, (*places, "/usr/sbin")))


def test_a_host_with_a_switch(tmp_path: Path) -> None:
    tree(tmp_path, acs=ON)
    (tmp_path / "etc/gpuprov").mkdir(parents=True)
    (tmp_path / "etc/gpuprov/pcie.conf").write_text("# managed\nacs disabled\nmax_read_request 4096\n")
    (tmp_path / "sys/kernel/security").mkdir(parents=True)
    (tmp_path / "sys/kernel/security/lockdown").write_text("none [integrity] confidentiality\n")
    group = tmp_path / "sys/kernel/iommu_groups/7"
    group.mkdir(parents=True)
    (group / "type").write_text("DMA-FQ\n")
    (tmp_path / "sys/bus/pci/devices" / GPU / "iommu_group").symlink_to(group)
    for pid, owner in {"88": 0, "89": 1000}.items():
        (tmp_path / "proc" / pid).mkdir()
        (tmp_path / "proc" / pid / "comm").write_text("irqbalance\n")
        (tmp_path / "proc" / pid / "status").write_text(f"Name:\tirqbalance\nUid:\t{owner}\t0\t0\t0\n")
    (tmp_path / "proc/89/cmdline").write_bytes(b"irqbalance\0--policyscript=/etc/gpuprov/irq\ntopo_started|")
    (tmp_path / "proc/88/cmdline").write_bytes(b"/usr/sbin/irqbalance\0--foreground\0")
    found = read(tmp_path, systemctl=UNIT)
    assert set(found.functions) == {ROOT_PORT, UPSTREAM, LEFT, RIGHT, HCA, GPU, "0000:18:00.1"}
    assert [one.address for one in found.of("hca")] == [HCA], "neither the virtual function nor the NVLink bridge"
    hca, gpu = found.functions[HCA], found.functions[GPU]
    assert hca.above == (ROOT_PORT, UPSTREAM, LEFT)
    assert found.functions[LEFT].above == (ROOT_PORT, UPSTREAM)
    assert {one.address: one.acs for one in found.path()} == {
        ROOT_PORT: ON, UPSTREAM: None, LEFT: ON, RIGHT: ON, HCA: 0, GPU: None
    }  # fmt: skip
    assert (hca.control, hca.read_request, hca.size) == (CONTROL, 512, 4096)
    assert [(irq.number, len(irq.cpus)) for irq in hca.interrupts] == [(101, 32), (102, 2)]
    assert (gpu.group, gpu.domain, hca.group) == (True, "DMA-FQ", False)
    assert found.config == ("acs disabled", "max_read_request 4096")
    assert (found.load, found.active, found.file) == ("loaded", "active", "enabled")
    assert (found.lockdown, found.irqbalance, found.balancer) == (
        "integrity",
        "/usr/sbin/irqbalance --foreground ",
        True,
    )
    assert found.others == ("15b3:1021", "15b3:101e", "10de:2330")


def test_what_is_installed(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/irqbalance").touch()
    (tmp_path / "usr/sbin/setpci").touch(0o755)
    found = read(tmp_path)
    assert (found.balances, found.balancer, found.setpci) == (True, False, True)


def test_what_cannot_be_read_is_not_taken_for_zero(tmp_path: Path) -> None:
    tree(tmp_path)
    for address, size in ((HCA, 64), (GPU, 256)):
        (tmp_path / "sys/bus/pci/devices" / address / "config").write_bytes(space("15b3:1021", acs=ON, size=size))
    found = read(tmp_path)
    assert (found.functions[HCA].readable, found.functions[HCA].control, found.functions[HCA].acs) == (
        False,
        None,
        None,
    )
    assert (found.functions[GPU].control, found.functions[GPU].acs) == (CONTROL, None)


def test_a_function_that_fell_off_the_bus_is_not_taken_for_one_without_capabilities(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "sys/bus/pci/devices" / GPU / "config").write_bytes(b"\xff" * 4096)
    found = read(tmp_path)
    assert not found.functions[GPU].readable
    assert found.functions[HCA].readable


def test_capabilities_that_run_in_a_circle_end(tmp_path: Path) -> None:
    tree(tmp_path)
    circle = bytearray(space("15b3:1021", acs=ON))
    circle[0x41] = 0x40
    circle[0x102:0x104] = (0x100 << 4 | 1).to_bytes(2, "little")
    (tmp_path / "sys/bus/pci/devices" / HCA / "config").write_bytes(bytes(circle))
    found = read(tmp_path).functions[HCA]
    assert (found.control, found.acs) == (None, None)


TOPO = """case $1 in
check) printf 'OK\\tall\\nFAIL\\tACS for grace_rp 0000:15:01.0 has incorrect values\\n'; exit 100 ;;
write-grub-acs) [ "$2" = --dry-run ] && cat <<'END'
# Generated
GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX pci=config_acs=\\"xx110x1@0000:17:00.0;xx101x1@0000:17:01.0\\""
END
;;
esac"""
GRUB = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX pci=config_acs=\\"xx110x1@0000:17:00.0;xx101x1@0000:17:01.0\\""\n'


@pytest.mark.install
@pytest.mark.parametrize(
    ("written", "state"), [(None, "absent"), (f"# other\n{GRUB}", "same"), ("GRUB_CMDLINE_LINUX=\n", "differs")]
)
def test_rdma_topo(tmp_path: Path, written: str | None, state: str) -> None:
    tree(tmp_path)
    if written:
        (tmp_path / "etc/default/grub.d").mkdir(parents=True)
        (tmp_path / "etc/default/grub.d/config-acs.cfg").write_text(written)
    found = read(tmp_path, rdma_topo=TOPO)
    assert found.topo.endswith("/bin/rdma_topo")
    assert (found.topo_status, found.topo_grub) == (100, state)
    assert found.topo_wrong == ("ACS for grace_rp 0000:15:01.0 has incorrect values",)
    assert not found.topo_started


@pytest.mark.parametrize(("first", "started"), [("xx110x1", True), ("xx111x1", False)])
@pytest.mark.parametrize("quote", ["", '"'])
def test_the_masks_that_the_kernel_was_started_with(tmp_path: Path, first: str, started: bool, quote: str) -> None:
    (tmp_path / "proc").mkdir()
    masks = f"{first}@0000:17:00.0;xx101x1@0000:17:01.0"
    (tmp_path / "proc/cmdline").write_text(f"BOOT_IMAGE=/vmlinuz pci=config_acs={quote}{masks}{quote} quiet\n")
    assert read(tmp_path, rdma_topo=TOPO).topo_started is started


def test_a_host_without_any(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.functions, found.config, found.load, found.topo, found.balancer) == ({}, None, "not-found", "", False)


def test_the_helper_prints_what_the_parser_reads() -> None:
    found = parse(Output(said(acs=ON, request=0x5910)))
    assert (found.functions[LEFT].acs, found.functions[HCA].read_request) == (ON, 4096)
