"""The program where it lies on a host: before the driver is there, at boot, with no module but its own and Python 3.8's."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.render.carried import role_files
from tests.mig_host.on_host import FILES, USUAL, Given, Machine, program
from tests.simulate.nvml_host import ROOT

SHARED = ("shared/mig_fit.py", "shared/mig_layout.py")


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
    monkeypatch.setattr(program, "bound_gpus", lambda: next(seen))
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


def test_as_it_lies_on_a_host(h100: Machine, tmp_path: Path) -> None:
    """Without the test's own modules: the files of the rendered role, and NVML found by its name."""
    folder, library = tmp_path / "installed", tmp_path / "lib"
    for path, file in role_files("mig").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file.read_bytes())
    library.mkdir()
    (library / "libnvidia-ml.so.1").symlink_to(h100.host.library)
    h100.run("apply", USUAL)
    (folder / "files/models.json").write_text("{}")
    command = [sys.executable, "-B", str(folder / "files/program.py"), "plan", f"--wanted={tmp_path / 'mig.json'}"]
    environment = {"LD_LIBRARY_PATH": str(library), ROOT: str(h100.host.root)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert (answer["driver"], answer["steps"], answer["problem"]) == (True, [], "")


def test_run_aside_leaves_nothing_and_hands_on_what_the_program_says(tmp_path: Path) -> None:
    files = {
        "program.py": "import sys, other; print(other.__file__, sys.argv[1:]); sys.exit(3)",
        "other.py": "",
        "mig.json": "{}",
    }
    request = json.dumps({"files": files, "arguments": ["plan", "--wanted={folder}/mig.json"]})
    command = [sys.executable, str(FILES / "run_aside.py")]
    done = subprocess.run(
        command, input=request, capture_output=True, text=True, check=False, env={"TMPDIR": str(tmp_path)}
    )
    folder = Path(done.stdout.split()[0]).parent
    assert done.returncode == 3
    assert f"'--wanted={folder}/mig.json'" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", sorted([*FILES.glob("*.py"), *(FILES.parents[2] / "gpuprov" / n for n in SHARED)]))
def test_python_3_8_and_its_standard_library_are_enough(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {path.stem for path in FILES.glob("*.py")} | {"mig_fit", "mig_layout"}
    assert {name.partition(".")[0] for name in named} <= set(sys.stdlib_module_names) | own
    assert len(file.read_text().splitlines()) <= (200 if file.parent == FILES else 300)
