"""Every probe's snippet is sound shell: it parses, ends by itself, survives missing tools, and its output is
understood."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import gpuprov.facts.probes
from gpuprov.facts.probes.base import Facts, Output, Probe, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software import packages

pytestmark = pytest.mark.install

ROOMS = tuple(
    import_module(room.name) for room in walk_packages(gpuprov.facts.probes.__path__, "gpuprov.facts.probes.")
)
HEAVY = {packages.INDEX.name}
"""Builds apt's cache on a machine that has none: half a minute."""


def probes() -> Iterable[Probe[Any]]:
    found = (value for room in ROOMS for value in vars(room).values() if isinstance(value, Probe))
    return {id(probe): probe for probe in found}.values()


@cache
def shell() -> str:
    path = shutil.which("dash") or shutil.which("sh")
    assert path
    return path


def run(probe: Probe[Any], path: str = "/usr/sbin:/usr/bin:/sbin:/bin") -> Output:
    done = subprocess.run(
        [shell(), "-c", probe.script],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        env={"PATH": path, "LC_ALL": "C"},
    )
    return Output(done.stdout, done.returncode, done.stderr)


ALL = pytest.mark.parametrize("probe", [pytest.param(probe, id=probe.name) for probe in probes()])


def test_no_snippet_has_a_control_character() -> None:
    """An escape of sed becomes one where a text is not raw: the snippet runs, and prints something else."""
    assert not [probe.name for probe in probes() if re.search(r"[\x00-\x08\x0b-\x1f]", probe.script)]


def test_names_are_unique() -> None:
    names = [probe.name for probe in probes()]
    assert len(names) == len(set(names))


@ALL
def test_the_snippet_is_posix_shell(probe: Probe[Any]) -> None:
    done = subprocess.run(
        [shell(), "-n", "-c", probe.script], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_person_can_see_the_same() -> None:
    for probe in probes():
        assert probe.evidence, probe.name
        assert "\n" not in probe.evidence, probe.name


BY_PATH = (
    "bootloader",
    "container",
    "gds_check",
    "hardware",
    "login",
    "python",
    "scratch",
    "slurm",
    "slurm_containers",
)
"""What these look for has its path, and the shell finds it without a program of the PATH."""


@ALL
def test_it_runs_here_and_its_output_is_understood(probe: Probe[Any]) -> None:
    if probe.name in HEAVY:
        pytest.skip("builds apt's cache; read on real hosts in tests/e2e")
    output = run(probe)
    assert "not found" not in output.error.replace("command not found", "not found") or output.status, output.error
    assert "syntax error" not in output.error.lower()
    if output.status == 127 and "|| exit 127" in probe.script:
        pytest.skip("the program that it asks is not installed on this machine")
    if probe is modules.LOADED and not Path("/proc/modules").exists():
        pytest.skip("this machine's kernel shows no modules")
    if not Path("/run/systemd/system").exists() and (probe.speaks or "systemctl" in probe.script):
        pytest.skip("this machine was not booted with systemd")
    Facts({probe.name: output}).get(probe)


@ALL
def test_without_its_tools_a_snippet_prints_nothing_that_could_pass_for_a_fact(
    probe: Probe[Any], tmp_path: Path
) -> None:
    if probe.name in BY_PATH:
        pytest.skip("it looks for files by their paths, and needs no program of the PATH")
    output = run(probe, path=str(tmp_path))
    try:
        fact = Facts({probe.name: output}).get(probe)
    except ProbeFailed:
        return
    assert fact == probe.parse(Output("", output.status, output.error))


def test_smi_that_is_not_installed_is_told_by_the_status(tmp_path: Path) -> None:
    answer = nvidia.parse_smi(run(nvidia.SMI, path=str(tmp_path)))
    assert not answer.installed
    assert answer.complaint == "nvidia-smi is not installed"
