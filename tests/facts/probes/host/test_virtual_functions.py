"""SR-IOV functions of GPUs, which NVIDIA's vGPU manager makes, are not GPUs of the host."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.host.pci import NVIDIA_FUNCTIONS, gpus, parse
from tests.facts.probes import run_script


def test_functions_of_a_gpu_are_not_counted_as_gpus(tmp_path: Path) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    for number in range(17):
        function = bus / f"0000:41:{number // 8:02x}.{number % 8}"
        function.mkdir(parents=True)
        for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2235")):
            (function / name).write_text(f"{value}\n")
        for name in ("subsystem_vendor", "subsystem_device"):
            (function / name).write_text("0x10de\n")
        if number:
            (function / "physfn").symlink_to(bus / "0000:41:00.0")
    listed, counted = (
        run_script(probe.script.replace("/sys/bus", f"{tmp_path}/sys/bus"), tmp_path, {}).text
        for probe in (NVIDIA_FUNCTIONS, GPU_HEALTH)
    )
    assert [function.address for function in gpus(parse(Output(listed)))] == ["0000:41:00.0"]
    assert counted.splitlines()[0] == "@present 1"
