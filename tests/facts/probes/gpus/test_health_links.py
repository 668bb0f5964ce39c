"""Errors that links count, and what a host is made of, as real hosts tell them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.health_links import PORT_ERRORS, parse_nvlinks, parse_ports
from gpuprov.facts.probes.host.hardware import FILES, HARDWARE, parse, parse_files

H100 = {"link_downed": 255, "port_rcv_errors": 14, "excessive_buffer_overrun_errors": 15, "symbol_error": 0}
"""mlx5_1 of an H100 host:
https://github.com/leptonai/gpud/tree/4a8de33a3f02e207f39e9023d67125592d599731/components/accelerator/nvidia
/infiniband/class/testdata/sys-class-infiniband-h100.0; link_downed is full there."""


def test_ports_of_a_real_host(tmp_path: Path) -> None:
    """The script over a sysfs tree with its values; a device without counters says nothing."""
    for device, counters in (("mlx5_1", H100), ("rxe0", {})):
        folder = tmp_path / "class/infiniband" / device / "ports/1"
        folder.mkdir(parents=True)
        if counters:
            (folder / "counters").mkdir()
        for name, value in counters.items():
            (folder / "counters" / name).write_text(f"{value}\n")
    script = PORT_ERRORS.script.replace("/sys/class", f"{tmp_path}/class")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=30)
    (port,) = parse_ports(Output(done.stdout))
    assert (port.device, port.port, port.downed) == ("mlx5_1", 1, 255)
    assert port.errors == {"port_rcv_errors": 14, "excessive_buffer_overrun_errors": 15}


def test_a_counter_that_cannot_be_read_is_not_zero() -> None:
    (port,) = parse_ports(Output("counter|mlx5_0|1|link_downed|\ncounter|mlx5_0|1|symbol_error|0\n"))
    assert port.downed is None


def test_nvlinks_of_several_gpus() -> None:
    text = "GPU 0: A (UUID: x)\n\t Link 0: Replay Errors: 2\n\t Link 1: Replay Errors: 3\nGPU 1: A (UUID: y)\n"
    first, second = parse_nvlinks(Output(text)).gpus
    assert (first.links, first.replays, first.recoveries) == (2, 5, None)
    assert (second.links, second.replays) == (0, None)
    assert "not installed" in parse_nvlinks(Output("", 127)).complaint
    assert parse_nvlinks(Output("Unable to find NVLinks")).complaint == "Unable to find NVLinks"
    timed_out, silent = parse_nvlinks(Output("@status 124\n")), parse_nvlinks(Output("@status 0\n"))
    assert timed_out.complaint == silent.complaint == "nvidia-smi nvlink -e said nothing"
    assert (timed_out.nameless, silent.nameless) == (False, True)


def test_this_machines_own_hardware() -> None:
    done = subprocess.run(["sh", "-c", HARDWARE.script], capture_output=True, text=True, check=True, timeout=30)
    found = parse(Output(done.stdout))
    told = subprocess.run(["nproc", "--all"], capture_output=True, text=True, check=True, timeout=30)
    assert 0 <= found.cores <= int(told.stdout)
    assert found.memory == int(Path("/proc/meminfo").read_text().split()[1]) // 1024


def test_this_machines_own_file_systems(tmp_path: Path) -> None:
    strange = tmp_path / "a |b"
    strange.mkdir()
    paths = "\n".join(("/", "/proc", str(strange), f"{tmp_path}/none"))
    script = f"paths={shlex.quote(paths)}\n{FILES.script}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    found = parse_files(Output(done.stdout))
    assert found.handles is not None
    assert 0 < found.handles[0] < found.handles[1]
    root, proc, folder, none = found.systems
    told = subprocess.run(["df", "--output=pcent", "/"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert root.space is not None
    assert abs(100 - root.space - int(told.rstrip("%"))) < 2
    assert (root.mounted != "", proc.mounted, proc.answers, proc.space) == (True, "proc", True, None)
    assert (folder.path, folder.mounted, folder.answers) == (str(strange), "", True)
    assert (none.mounted, none.answers) == ("", False)


def test_a_capture_says_that_no_file_systems_were_asked_for() -> None:
    """It is read without a spec, which names them: that nothing is told of a folder is not a finding then."""
    done = subprocess.run(["sh", "-c", FILES.script], capture_output=True, text=True, check=True, timeout=60)
    found = parse_files(Output(done.stdout))
    assert (found.specified, found.systems) == (False, ())
    done = subprocess.run(
        ["sh", "-c", f"paths=''\n{FILES.script}"], capture_output=True, text=True, check=True, timeout=60
    )
    assert parse_files(Output(done.stdout)).specified


def test_hyper_threads_are_no_cores() -> None:
    rows = [f"core|{socket}|{core}" for socket in (0, 1) for core in range(8)] * 2
    found = parse(Output("\n".join([*rows, "memory|16777216", "swap|0", "nvme|2", "interface|eth0|up"])))
    assert (found.sockets, found.cores, found.memory, found.nvme) == (2, 16, 16384, 2)
