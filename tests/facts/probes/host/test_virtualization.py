"""What a machine gives of its GPUs, read from files such as sysfs has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.host import virtualization
from gpuprov.facts.probes.host.virtualization import GpuFunction, Machine
from tests.rows import run_each

VENDOR_CAPABILITY = 0x09


def configuration(*capabilities: bytes, length: int = 256) -> bytes:
    """Configuration space with these capabilities, each from its third byte on, chained in order."""
    space = bytearray(256)
    space[6] = 0x10
    at, place = 0x40, 0x34
    for body in capabilities:
        space[place] = at
        space[at : at + 2 + len(body)] = bytes([VENDOR_CAPABILITY if body[1:3] in (b"VF", b"xx") else 0x05, 0]) + body
        place, at = at + 1, at + 2 + len(body)
    return bytes(space[:length])


def vgpu(version: bytes = b"580.95.02", branch: bytes = b"r580_95", before: bytes = b"") -> bytes:
    """The vendor-specific capability of a vGPU: signature, then records of number, length, content."""
    record = bytes([0, 22]) + version.ljust(10, b"\0") + branch.ljust(10, b"\0")
    body = b"VF" + before + record
    return bytes([3 + len(body)]) + body


MESSAGES = b"\x00\x01\x02\x03\x04\x05"
OTHER_VENDOR = bytes([8]) + b"xxgpu"
PASSED_BARS = (
    "0x00000000fc000000 0x00000000fcffffff 0x0000000000040200\n0x0000380000000000 0x0000380fffffffff "
    "0x000000000014220c\n"
)


def read(folder: Path, shell: str = "sh") -> tuple[GpuFunction, ...]:
    script = virtualization.FUNCTIONS.script.replace("/sys/bus/pci/devices", str(folder))
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=False, timeout=20)
    assert done.stderr == ""
    return virtualization.parse_functions(Output(done.stdout, done.returncode))


def function(folder: Path, config: bytes, address: str = "0000:06:00.0", **files: str) -> Path:
    place = folder / address
    place.mkdir()
    given = {"vendor": "0x10de\n", "class": "0x030200\n", "resource": PASSED_BARS} | files
    for name, text in given.items():
        (place / name).write_text(text, encoding="utf-8")
    (place / "config").write_bytes(config)
    return folder


@run_each(
    ("config", "kind", "version", "branch"),
    [
        (configuration(MESSAGES, vgpu()), "vgpu", "580.95.02", "580"),
        (configuration(vgpu(b"550.163.10", b"r550_00")), "vgpu", "550.163.10", "550"),
        (configuration(vgpu(b"460.16", b"")), "vgpu", "460.16", "460"),
        (configuration(vgpu(before=bytes([7, 4, 1, 1]))), "vgpu", "580.95.02", "580"),
        (configuration(vgpu(b"", b"")), "vgpu", "", ""),
        (configuration(MESSAGES, OTHER_VENDOR, vgpu()), "vgpu", "580.95.02", "580"),
        (configuration(MESSAGES, OTHER_VENDOR), "physical", "", ""),
        (configuration(), "physical", "", ""),
        (configuration(vgpu(), length=64), "unknown", "", ""),
        (b"", "unknown", "", ""),
    ],
)
def test_a_vgpu_by_its_configuration_space(tmp_path: Path, config: bytes, kind: str, version: str, branch: str) -> None:
    found = read(function(tmp_path, config))
    assert [(one.kind, one.host_driver, one.host_branch) for one in found] == [(kind, version, branch)]


def test_a_chain_that_bites_its_tail_ends(tmp_path: Path) -> None:
    space = bytearray(configuration(MESSAGES))
    space[0x41] = 0x40
    assert [one.kind for one in read(function(tmp_path, bytes(space)))] == ["physical"]


@run_each("shell", [name for name in ("dash", "bash", "busybox") if shutil.which(name)])
def test_every_shell_reads_the_same(tmp_path: Path, shell: str) -> None:
    function(tmp_path, configuration(vgpu()), reset_method="flr bus\n")
    function(tmp_path, configuration(), address="0000:07:00.0", reset="")
    function(tmp_path, configuration(), address="0000:08:00.0", **{"class": "0x068000\n"})
    function(tmp_path, configuration(), address="0000:09:00.0", vendor="0x8086\n")
    script = shell if shell != "busybox" else "sh"
    found = read(tmp_path, script)
    assert [(one.address, one.kind, one.reset) for one in found] == [
        ("0000:06:00.0", "vgpu", "flr bus"),
        ("0000:07:00.0", "physical", "yes"),
    ]
    assert [(region.number, region.size) for region in found[0].regions] == [(0, 1 << 24), (1, 1 << 36)]
    assert found[0].without_address() == ()


def test_machines() -> None:
    text = "kind|kvm\nvendor|Amazon EC2\nproduct|g6.xlarge\ntag|Amazon EC2\nefi|1\nflag|1\n"
    assert virtualization.parse_machine(Output(text)) == Machine(
        kind="kvm", vendor="Amazon EC2", product="g6.xlarge", tag="Amazon EC2", efi=True
    )
    assert virtualization.parse_machine(Output("kind|none\nflag|0\n")) == Machine(kind="")
    assert virtualization.parse_machine(Output("kind|vmware\nflag|0\n")).hidden
    assert not virtualization.parse_machine(Output("kind|kvm\n")).hidden, "no such flag on arm64"
    with pytest.raises(ProbeFailed, match="whether this is a virtual machine"):
        virtualization.parse_machine(Output("kind|\n"))


def test_the_probes_have_evidence() -> None:
    probes: tuple[Probe[object], ...] = (virtualization.MACHINE, virtualization.FUNCTIONS)
    assert all(probe.evidence for probe in probes)
