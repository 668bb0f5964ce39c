"""The program where it lies on a host: before the driver is there, at boot, with no module but its own and Python
3.8's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.capabilities.mig.desired import PROGRAM
from gpuprov.render.carried import role_files
from tests.mig_host.on_host import USUAL, Given, Machine, program
from tests.simulate.nvml_host import ROOT


def test_without_a_driver(h100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with h100.binding() as nvml:

        def fails() -> None:
            raise nvml.NVMLError(nvml.NVML_ERROR_DRIVER_NOT_LOADED)

        monkeypatch.setattr(program, "POLL", 0.01)
        monkeypatch.setattr("tests.mig_host.on_host.Machine.binding", lambda _: Given(nvml))
        monkeypatch.setattr(nvml, "nvmlInit", fails)
        answer = h100.run("plan", USUAL, "--wait=0.05")
    assert (answer["driver"], answer["changed"]) == (False, False)
    assert answer["problem"].startswith("NVML does not answer: Driver Not Loaded; nvidia-smi")


def test_a_boot_waits_for_all_gpus_that_the_driver_has(h100: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([["a", "b"], ["a", "b"], ["a"]])
    monkeypatch.setattr(program, "list_bound_gpus", lambda: next(seen))
    monkeypatch.setattr(program, "POLL", 0.01)
    h100.run("boot", USUAL, "--wait=5")
    assert "create 3g.40gb" in h100.said
    monkeypatch.undo()
    monkeypatch.setattr(program, "LOCK", str(h100.folder / "lock"))
    for address, excluded in (("0001:10:00.0", "No"), ("0001:11:00.0", "Yes")):
        text = f"Model:           NVIDIA H100\nGPU Excluded:    {excluded}\n"
        h100.host.write(f"/proc/driver/nvidia/gpus/{address}/information", text)
    h100.run("boot", USUAL)
    assert not h100.problem
    h100.host.write("/proc/driver/nvidia/gpus/0001:12:00.0/information", "GPU Excluded:    No\n")
    h100.run("boot", USUAL)
    assert h100.problem.startswith("NVML sees 1 of the 2 GPUs")
    assert h100.said == ""


@pytest.mark.install
def test_as_it_lies_on_a_host(h100: Machine, tmp_path: Path) -> None:
    """Without the test's own modules: the files of the rendered role, and NVML found by its name."""
    folder, library = tmp_path / "installed/mig", tmp_path / "lib"
    folder.mkdir(parents=True)
    for name in PROGRAM:
        (folder / name).write_bytes(role_files("mig")[f"files/{name}"].read_bytes())
    library.mkdir()
    (library / "libnvidia-ml.so.1").symlink_to(h100.host.library)
    h100.run("apply", USUAL)
    (folder / "models.json").write_text("{}")
    command = [sys.executable, "-B", "-m", "mig", "plan", f"--wanted={tmp_path / 'mig.json'}"]
    environment = {"LD_LIBRARY_PATH": str(library), ROOT: str(h100.host.root), "PYTHONPATH": str(folder.parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert (answer["driver"], answer["steps"], answer["problem"]) == (True, [], "")
