"""The health of a simulated host with two H100: well, then with each fault, then well again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.gpu_processes import PROCESSES, Held
from gpuprov.simulate import container, engine, faults, hosts, inventory
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import GPUPROV, loaded

pytestmark = pytest.mark.e2e
GPU = Gpus(model="H100-SXM5-80GB", count=2)
NAME = "e2e-health"
BLOCK = {"program_errors": "fail", "mounts": ["/srv"], "interfaces": ["work0"], "pcie_replays": 10}
SPEC = {"gpu": {"model": GPU.model, "count": GPU.count}, "health": BLOCK}
PLANTED = {  # fault -> the action, and words of what its check found
    "gpu-row-pending=1": ("reset", "0001:11:00.0 has one pending"),
    "gpu-ecc-errors=0": ("reset", "0001:10:00.0 has 3"),
    "gpu-hot=1": ("drain", "0001:11:00.0 is -1 C below it"),
    "gpu-power-brake=0": ("drain", "0001:10:00.0 is slow: HW Slowdown, HW Power Brake Slowdown"),
    "gpu-ecc-off=1": ("", "0001:11:00.0 has it off"),
    "gpu-power-held=1": ("", "0001:11:00.0 is held at 350 W of 700 W"),
    "gpu-pcie-replays=0": ("drain", "0001:10:00.0 has 67"),
    "interface-down=work0": ("", "work0 is down"),
    "xid-program=0": ("restart", "Xid 31 on 0001:10:00"),
    "xid-reset=1": ("reset", "Xid 154 on 0001:11:00"),
    "nvlink-errors=0": ("reset", "GPU 0 has 5 replays and 5 recoveries"),
    "vbios-differs=1": ("", "96.00.89.00.01 on 0001:11:00.0"),
    "pcie-uncorrected=0": ("drain", "severity=Uncorrected (Fatal)"),
    "hca-hot": ("drain", "High temperature"),
    "hca-dead": ("drain", "reached miss count"),
    "nccl-crash": ("restart", "in libnccl"),
    "mount-full": ("", "/srv has 0 % of its space free"),
    "filesystem-read-only": ("drain", "read-only"),
    "sxid-fatal": ("reset", "SXid 20034 on nvidia-nvswitch1"),
}


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": SPEC}}}))

    def health(self, *options: str) -> tuple[int, dict[str, Any]]:
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder)}
        command = [
            GPUPROV,
            "health",
            str(self.folder / "hosts.yaml"),
            str(self.folder / "spec.yaml"),
            "--json",
            *options,
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode in (0, 1), done.stderr
        (host,) = json.loads(done.stdout)["hosts"]
        return done.returncode, host


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(NAME)
    description = Description(gpu=GPU)
    with loaded(NAME, description) as machine:
        machine.sh("mount -t tmpfs -o size=16m scratch /srv")
        machine.sh("ip link add work0 type veth peer name work1; ip link set work0 up; ip link set work1 up")
        inventory.write([hosts.up(NAME, description)], folder / "hosts.yaml")
        yield Site(folder)


def test_faults_are_found_with_what_is_to_be_done_and_healed_ones_are_gone(site: Site) -> None:
    code, before = site.health()
    assert (code, before["fit"], before["causes"], before["unproven"]) == (0, "yes", [], []), before
    assert {"health.xid", "health.sxid", "health.gpus", "health.ecc_errors", "health.remapped_rows"} <= {
        *before["passed"]
    }
    for item in PLANTED:
        faults.plant(NAME, item, hosts.run)
    code, after = site.health()
    assert (code, after["fit"], after["action"]) == (1, "no", "drain")
    causes = {cause["check"]: cause for cause in after["causes"]}
    for item, (action, found) in PLANTED.items():
        cause = causes[faults.find(item.partition("=")[0]).caught_by]
        if not item.startswith("gpu-power"):
            assert cause["action"] == action, (item, cause)
        assert found in cause["found"], (item, cause)
    assert after["causes"][0]["action"] == "drain", "the most severe first"
    for item in PLANTED:
        faults.heal(NAME, item.partition("=")[0], hosts.run)
    assert site.health() == (0, before)


def test_a_reset_that_somebody_else_has_done_ends_an_xid(site: Site) -> None:
    faults.plant(NAME, "xid-reset=1", hosts.run)
    try:
        code, before = site.health()
        assert (code, before["action"]) == (1, "reset"), before
        code, after = site.health("--limit", NAME, "--reset-done", "now")
        assert (code, after["fit"], after["causes"]) == (0, "yes", []), after
        assert site.health()[1]["fit"] == "yes", "the record stays"
    finally:
        faults.heal(NAME, "xid-reset", hosts.run)
        container.run(NAME, "rm -f /var/lib/gpuprov/repairs.jsonl")


def test_cuda_is_run_on_each_gpu_as_an_ordinary_user(site: Site) -> None:
    """By a stand-in libcuda, before the driver's own, which finds no silicon."""
    source = (Path(__file__).parents[1] / "facts/probes/gpus/libcuda.c").read_text()
    build = "gcc -shared -fPIC -DSAY='\"/run/say\"' -o /usr/local/lib/libcuda.so.1 /run/libcuda.c; ldconfig"
    container.run(NAME, f"cat > /run/libcuda.c <<'END'\n{source}END\n{build}")
    try:
        ran = check_cuda(site)
        assert (ran["status"], ran["found"]) == ("pass", "CUDA runs on 2 devices as nobody"), ran
        uuid = container.run(NAME, "nvidia-smi --query-gpu=uuid --format=csv,noheader -i 1").strip()
        container.run(NAME, f"echo '{uuid} cuInit 802' > /run/say")
        ran = check_cuda(site)
        assert ran["found"] == "0001:11:00.0: cuInit: 802 CUDA_ERROR_SYSTEM_NOT_READY", ran
        container.run(NAME, "rm /run/say; stat -c %a /dev/nvidiactl > /run/mode; chmod 0600 /dev/nvidiactl")
        ran = check_cuda(site)
        assert "0001:10:00.0: may not open /dev/nvidiactl" in ran["found"], ran
        container.run(NAME, "chmod $(cat /run/mode) /dev/nvidiactl; mv /dev/nvidia-uvm /dev/away")
        ran = check_cuda(site)
        assert "there is no /dev/nvidia-uvm" in ran["found"], ran
        container.run(NAME, "test ! -e /dev/nvidia-uvm; mv /dev/away /dev/nvidia-uvm")
    finally:
        container.run(NAME, "rm -f /usr/local/lib/libcuda.so.1; ldconfig")


def check_cuda(site: Site) -> dict[str, Any]:
    """The result of health.cuda by `verify`."""
    spec = site.folder / "cuda.yaml"
    spec.write_text(json.dumps({"all": {"vars": {"gpuprov": {**SPEC, "health": {"cuda_user": "nobody"}}}}}))
    words = ["verify", str(site.folder / "hosts.yaml"), str(spec), "--only", "health", "--json"]
    told = json.loads(subprocess.run([GPUPROV, *words], capture_output=True, text=True, check=False).stdout)
    (row,) = (row for row in told["results"] if row["check"] == "health.cuda")
    return dict(row)


def test_a_card_to_be_returned_comes_before_all_else(site: Site) -> None:
    for item in ("gpu-row-failed=0", "xid-off-the-bus=1"):
        faults.plant(NAME, item, hosts.run)
    _, host = site.health()
    assert [(cause["check"], cause["action"]) for cause in host["causes"]] == [
        ("health.remapped_rows", "return"),
        ("health.xid", "reboot"),
    ]
    assert host["words"] == "no: drain it, and return the card"
    for name in ("gpu-row-failed", "xid-off-the-bus"):
        faults.heal(NAME, name, hosts.run)


def test_a_gpu_that_is_slow_without_a_reason(site: Site) -> None:
    """Beside one whose power brake holds it: that is a reason, and slowdown's."""
    for item in ("gpu-slow-clock=0", "gpu-power-brake=1"):
        faults.plant(NAME, item, hosts.run)
    _, host = site.health()
    causes = {cause["check"]: (cause["action"], cause["found"]) for cause in host["causes"]}
    assert causes["health.clocks"] == (
        "drain",
        "0001:10:00.0 computes at 345 of 1980 MHz, and nothing is said to lower it",
    )
    assert causes["health.slowdown"][1].startswith("0001:11:00.0 is slow")
    for name in ("gpu-slow-clock", "gpu-power-brake"):
        faults.heal(NAME, name, hosts.run)


def test_a_gpu_that_the_driver_wants_reset(site: Site) -> None:
    faults.plant(NAME, "gpu-reset-required=0", hosts.run)
    code, host = site.health()
    assert (code, host["fit"], host["action"]) == (1, "until", "reset"), host
    assert [(cause["check"], cause["found"]) for cause in host["causes"]] == [
        ("health.recovery", "0001:10:00.0 needs a reset")
    ]
    faults.heal(NAME, "gpu-reset-required", hosts.run)


def test_a_process_is_left_when_its_containers_monitor_is_gone(site: Site, tmp_path: Path) -> None:
    """With the engine's own monitor, conmon or containerd-shim, of a container that runs beside the host."""
    name, limits = f"{container.PREFIX}{NAME}-left", ("--ulimit=nofile=20000:20000", "--ulimit=nproc=10000:10000")
    image = engine.inspect(container.PREFIX + NAME)[0].image
    (tmp_path / "nvidia-smi").write_text(
        f"#!/bin/sh\ncase $1 in *memory.used) ;; *) echo 00000000:19:00.0, $(cat {tmp_path}/pid), 9 MiB;; esac\n"
    )
    (tmp_path / "nvidia-smi").chmod(0o755)

    def look() -> Held:
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said = subprocess.run(
            ["sh", "-c", PROCESSES.script], env=environment, capture_output=True, text=True, check=True
        )
        (one,) = PROCESSES.parse(Output(said.stdout)).held
        return one

    engine.engine(
        *(
            "run",
            "--detach",
            "--name",
            name,
            "--privileged",
            "--network=none",
            *limits,
            "--entrypoint=sleep",
            image,
            "600",
        )
    )
    pid = 0
    try:
        pid = engine.inspect(name)[0].state.pid
        (tmp_path / "pid").write_text(str(pid))
        assert (look().name, look().container, look().orphan) == ("sleep", True, False)
        (monitor,) = re.findall(r"PPid:\t(\d+)", Path(f"/proc/{pid}/status").read_text())
        assert Path(f"/proc/{monitor}/comm").read_text().startswith(("conmon", "containerd-shim"))
        os.kill(int(monitor), signal.SIGKILL)
        until = time.monotonic() + 10
        while not look().orphan and time.monotonic() < until:
            time.sleep(0.2)
        assert (look().state, look().orphan) == ("S", True)
    finally:
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)
        with suppress(GpuprovError):  # podman waits in vain for what the monitor would have noted, once
            engine.remove(name)
        engine.remove(name)


def test_a_lost_gpu_is_not_called_well(site: Site) -> None:
    faults.plant(NAME, "gpu-lost=1", hosts.run)
    code, host = site.health()
    assert (code, host["fit"], host["action"]) == (1, "until", "reboot"), host
    assert host["causes"][0]["check"] == "health.gpus"
    faults.heal(NAME, "gpu-lost", hosts.run)
