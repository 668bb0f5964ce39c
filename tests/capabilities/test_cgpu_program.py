"""The program that sets cGPU at boot, run on folders that look like /proc/cgpu_km: what it writes, and what it
refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities.cgpu.desired import MODULES
from tests.capabilities import at_boot
from tests.facts.probes.gpus.test_cgpu import tree

pytestmark = pytest.mark.install  # the program is started again and again

LIKE = {"max_inst": "16", "policy": "0", "prio_ratio": "20"}


def run(root: Path, *words: str, settings: str = "* policy 1\n", **programs: str) -> subprocess.CompletedProcess[str]:
    commands = {"systemd-detect-virt": "exit 1", "modinfo": "exit 1", "nvidia-smi": "exit 9", **programs}
    (root / "cgpu.conf").write_text(settings)
    env = at_boot.stand_in(root / "bin", commands)
    sleep = "import subprocess, time; time.sleep = lambda seconds: subprocess.check_call(['sleep', str(seconds)])"
    return at_boot.run(root, "cgpu", MODULES, lambda text: here(root, text), *words, env=env, before=sleep)


def here(root: Path, text: str) -> str:
    return text.replace("/proc/cgpu_km", f"{root}/cgpu_km").replace("/etc/gpuprov", str(root))


def has(root: Path, gpu: int, node: str) -> str:
    return (root / "cgpu_km" / str(gpu) / node).read_text()


def test_it_writes_what_differs_and_says_so(tmp_path: Path) -> None:
    tree(tmp_path, gpu0=LIKE, gpu1=LIKE)
    settings = "# managed\n* max_inst 20\n* policy 1\n1 max_inst 5\n1 prio_ratio 90\n"
    done = run(tmp_path, "apply", settings=settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "GPU 0 max_inst 16 -> 20",
        "GPU 0 policy 0 -> 1",
        "GPU 1 max_inst 16 -> 5",
        "GPU 1 policy 0 -> 1",
        "GPU 1 prio_ratio 20 -> 90",
    ]
    assert [has(tmp_path, gpu, node) for gpu in (0, 1) for node in LIKE] == [
        "20\n", "1\n", "20\n",
        "5\n", "1\n", "90\n",
    ]  # fmt: skip
    assert run(tmp_path, "apply", settings=settings).stdout == "", "a second run changes nothing"


def test_a_value_that_is_not_taken_is_told_with_who_uses_the_gpu(tmp_path: Path) -> None:
    folder = tree(tmp_path, gpu0={"policy": "0"}, gpu1={"policy": "0"})
    (folder / "0" / "max_inst").mkdir()
    (folder / "0" / "012b2edccd7a").mkdir()
    done = run(tmp_path, "apply", settings="0 max_inst 20\n* policy 1\n")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"cgpu: {folder}/0/max_inst stays empty, expected 20 (Is a directory)" in line
    assert "used by the containers" in line
    assert "012b2edccd7a" in line
    assert [has(tmp_path, gpu, "policy") for gpu in (0, 1)] == ["1\n", "1\n"], "the others are set all the same"


def test_a_value_that_is_swallowed_is_found_by_reading_back(tmp_path: Path) -> None:
    folder = tree(tmp_path, gpu0={})
    (folder / "0" / "policy").symlink_to("/dev/null")
    done = run(tmp_path, "apply")
    assert done.returncode == 1
    assert "policy stays empty, expected 1" in done.stderr


@pytest.mark.install
@pytest.mark.parametrize(
    ("settings", "gpus", "said"),
    [
        ("* policy 1\n", None, "/version is missing: cGPU is not installed, or is loaded later than this unit runs"),
        ("* policy 1\n", {}, "cGPU 1.5.20 has no GPU"),
        ("* policy 1\n3 policy 2\n", {"gpu0": LIKE}, "/3, which"),
        ("# nothing\n", {"gpu0": LIKE}, "has no settings"),
    ],
)
def test_refusals(tmp_path: Path, settings: str, gpus: dict[str, dict[str, str]] | None, said: str) -> None:
    if gpus is not None:
        tree(tmp_path, **gpus)
    done = run(tmp_path, "apply", settings=settings)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("cgpu: ")
    assert said in line


@pytest.mark.install
def test_usage(tmp_path: Path) -> None:
    for words in ((), ("state",)):
        done = run(tmp_path, *words)
        assert (done.returncode, done.stderr) == (1, "cgpu: usage: cgpu apply [SECONDS]\n")


MODPROBE = (
    'mkdir -p {0}/cgpu_km/0; echo 1.5.20 > {0}/cgpu_km/version; echo 0 > {0}/cgpu_km/0/policy; echo "$*" > {0}/loaded'
)


def test_the_module_that_is_installed_is_loaded(tmp_path: Path) -> None:
    done = run(tmp_path, "apply", modinfo='[ "$2" = cgpu_km ]', modprobe=MODPROBE.format(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "loaded").read_text() == "cgpu_km\n"
    assert has(tmp_path, 0, "policy") == "1\n"


def test_in_a_container_no_module_is_loaded(tmp_path: Path) -> None:
    programs = {"systemd-detect-virt": "exit 0", "modinfo": "exit 0", "modprobe": MODPROBE.format(tmp_path)}
    assert run(tmp_path, "apply", **programs).returncode == 1
    assert not (tmp_path / "loaded").exists()


def test_it_waits_for_a_module_that_something_else_loads(tmp_path: Path) -> None:
    done = run(tmp_path, "apply", "2", sleep=MODPROBE.format(tmp_path))
    assert done.returncode == 0, done.stderr
    assert has(tmp_path, 0, "policy") == "1\n"
