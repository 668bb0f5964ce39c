"""What a host says of cGPU, read by the probe's own script from folders that look like /proc/cgpu_km."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.gpus.cgpu import CGPU, Cgpu, parse
from gpuprov.host_code.at_boot.cgpu import CgpuGpu
from tests.facts.probes import run_well
from tests.rows import run_each


def tree(root: Path, **gpus: dict[str, str]) -> Path:
    """/proc/cgpu_km with these GPUs (`gpu0`), as the published source of cGPU lays it out."""
    folder = root / "cgpu_km"
    folder.mkdir()
    (folder / "version").write_text("1.5.20\n")
    for name, nodes in gpus.items():
        gpu = folder / name.removeprefix("gpu")
        gpu.mkdir()
        for node, value in nodes.items():
            (gpu / node).write_text(f"{value}\n")
    return folder


def read(root: Path, **programs: str) -> Cgpu:
    script = CGPU.script.replace("/proc/cgpu_km", f"{root}/cgpu_km")
    script = script.replace("/proc/[0-9]*", f"{root}/processes/[0-9]*")
    assert script.count(str(root)) > 1
    named = {name.replace("_", "-"): body for name, body in programs.items()}
    return parse(run_well(script, root, {"modinfo": "exit 1", "nvidia-smi": "exit 9", **named}))


def test_a_host_with_cgpu(tmp_path: Path) -> None:
    folder = tree(
        tmp_path,
        gpu0={"max_inst": "20", "policy": "1", "free_weight": "20", "prio_ratio": "80"},
        gpu1={"max_inst": "5", "policy": "3", "free_weight": "5"},
    )
    (folder / "1" / "012b2edccd7a").mkdir()
    found = read(
        tmp_path,
        modinfo='[ "$2" = cgpu_procfs ]',
        nvidia_smi="printf '00000000:07:00.0, Enabled\\n00000000:08:00.0, [N/A]\\n00000000:09:00.0, Disabled\\n'",
    )
    assert found == Cgpu(
        version="1.5.20",
        installed=("cgpu_procfs",),
        gpus=(
            CgpuGpu(index=0, settings={"max_inst": "20", "policy": "1", "prio_ratio": "80"}),
            CgpuGpu(index=1, settings={"max_inst": "5", "policy": "3"}, instances=("012b2edccd7a",)),
        ),
        mig=("00000000:07:00.0",),
    )


def test_a_host_without(tmp_path: Path) -> None:
    assert read(tmp_path) == Cgpu()


@run_each(
    ("group", "ours"),
    [("/user.slice/session-1.scope", False), ("/system.slice/system-x.slice/gpuprov-mps@host.service", True)],
)
def test_a_daemon_of_mps_is_seen(tmp_path: Path, group: str, ours: bool) -> None:
    (tmp_path / "processes" / "77").mkdir(parents=True)
    (tmp_path / "processes" / "77" / "comm").write_text("nvidia-cuda-mps\n")
    (tmp_path / "processes" / "77" / "cgroup").write_text(f"0::{group}\n")
    found = read(tmp_path)
    assert (found.mps, found.mps_ours) == (True, ours)


def test_a_process_named_alike_is_not(tmp_path: Path) -> None:
    (tmp_path / "processes" / "77").mkdir(parents=True)
    (tmp_path / "processes" / "77" / "comm").write_text("nvidia-cuda-mp\n")
    assert not read(tmp_path).mps
