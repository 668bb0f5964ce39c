"""The picture of cGPU on a simulated host: found at /proc/cgpu_km by the probe and by the program that sets it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.cgpu.desired import MODULES
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.cgpu import CGPU, parse
from gpuprov.host_code.at_boot.cgpu import CgpuGpu
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.devices import devices, table
from gpuprov.simulate.parts import cgpu
from tests.capabilities import at_boot

TWO = Description(gpu=Gpus(model="T4", count=2), cgpu=True)


def test_only_a_host_that_is_described_so_has_it() -> None:
    assert cgpu.part("h", Description(gpu=TWO.gpu)).files == {}
    assert cgpu.part("h", TWO).units == (cgpu.UNIT,)


@pytest.mark.install
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_probe_and_program_find_the_files_in_proc(tmp_path: Path) -> None:
    run = tmp_path / "run"
    source = (cgpu.FOLDER / "procfs.c").read_text(encoding="utf-8").replace("/run/gpuprov-sim", str(run))
    library = tmp_path / "procfs.so"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-x", "c", "-", "-ldl"]
    subprocess.run(["gcc", "-o", str(library), *flags], input=source, text=True, check=True)
    (tmp_path / "devices").write_text(table(devices("h", TWO)))
    boot = (cgpu.FOLDER / "cgpu").read_text(encoding="utf-8").replace("/run/gpuprov-sim", str(run))
    boot = boot.replace("/etc/gpuprov-sim", str(tmp_path))

    def sh(script: str, *words: str, given: str = "") -> str:
        env = {**os.environ, "LD_PRELOAD": str(library)}
        command = ["sh", "-c", script, "sh", *words]
        return subprocess.run(
            command, input=given, env=env, capture_output=True, text=True, check=True, timeout=20
        ).stdout

    sh(boot)
    found = parse(Output(sh(CGPU.script)))
    start = {"max_inst": "20", "policy": "0", "prio_ratio": "20"}
    assert found.version == "1.5.20"
    assert found.gpus == (CgpuGpu(index=0, settings=start), CgpuGpu(index=1, settings=start))
    assert "stand-in" in sh("cat /proc/cgpu_km/gpuprov-stand-in")
    (tmp_path / "cgpu.conf").write_text("* policy 1\n1 max_inst 5\n")
    done = at_boot.run(
        tmp_path, "cgpu", MODULES, lambda text: text.replace("/etc/gpuprov", str(tmp_path)), "apply",
        env={**os.environ, "LD_PRELOAD": str(library)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [gpu.settings["policy"] for gpu in parse(Output(sh(CGPU.script))).gpus] == ["1", "1"]
    assert sh("cat /proc/cgpu_km/1/max_inst") == "5\n"
    sh(boot)
    assert parse(Output(sh(CGPU.script))).gpus == found.gpus, "a module that is loaded anew has forgotten"
