"""`gpuprov simulate` and `gpuprov test`: what they hand over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import __main__ as program
from gpuprov.simulate.description import Description, Gpus
from tests.rows import run_each


@pytest.mark.parametrize(
    ("line", "handed"),
    [
        ("up --gpu T4:2", "up gpu01 --gpu T4:2"),
        ("up a b --kind machine --inventory h.yaml", "up a b --kind machine --inventory h.yaml"),
        ("down --all", "down --all"),
        ("list", "list"),
        ("logs a", "logs a"),
        ("fault a version-mismatch --heal", "fault a version-mismatch --heal"),
        ("faults --json", "faults --json"),
        ("setup --machines", "setup --machines"),
    ],
)
def test_words_are_handed_over_as_the_program_takes_them(
    line: str, handed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[list[str]] = []

    def main(words: list[str]) -> int:
        taken.append(words)
        return 0

    monkeypatch.setattr(program, "main", main)
    done = CliRunner().invoke(cli, ["simulate", *line.split()], standalone_mode=False)
    assert (done.exception, done.return_value) == (None, 0)
    assert taken == [handed.split()]
    program._parser().parse_args(handed.split())


@run_each(
    ("text", "gpu", "nvswitch"),
    [
        ("H100-SXM5-80GB:8", Gpus(model="H100-SXM5-80GB", count=8), 3),
        ("H100-SXM5-80GB:1", Gpus(model="H100-SXM5-80GB", count=1), 0),
        ("T4", Gpus(model="T4", count=1), 0),
        ("p4d.24xlarge", Gpus(model="A100-SXM4-40GB", count=8), 2),
        ("10de:20b0:2", Gpus(model="A100-SXM4-40GB", count=2), 0),
        ("10de:2330", Gpus(model="H100-SXM5-80GB", count=1), 0),
        ("8x H100-SXM5-80GB", Gpus(model="H100-SXM5-80GB", count=8), 3),
    ],
)
def test_gpus_of_a_word(text: str, gpu: Gpus, nvswitch: int) -> None:
    made = program._with_gpus(Description(), text)
    assert (made.gpu, made.nvswitch) == (gpu, nvswitch)


def test_an_unknown_model_is_refused_in_the_words_of_the_option() -> None:
    with pytest.raises(GpuprovError) as caught:
        program._with_gpus(Description(), "H10:8")
    assert caught.value.message == '--gpu H10:8: "H10" is not in the catalogue'
    assert caught.value.fix == 'did you mean "H100-SXM5-94GB"?'


@run_each("text", ["MI300X:8", "T4:0", "T4:9", "T4:99999999999", "nothing", ":3"])
def test_gpus_that_cannot_be_simulated(text: str) -> None:
    with pytest.raises(GpuprovError):
        program._with_gpus(Description(), text)


@pytest.mark.install
def test_pytest_runs_the_checks_beside_tests_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "i.yaml").write_text("all: {hosts: {h1: {}, h2: {}}, vars: {gpuprov: {nouveau: {}}}}\n")
    (tmp_path / "test_site.py").write_text("def test_spec(spec):\n    assert spec.name == 'h1'\n")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE", "PYTEST"))}
    command = [sys.executable, "-m", "gpuprov", "test", "i.yaml", "--limit", "h2"]
    command += ["--", ".", "-v", "-k", "test_spec or no_such", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_site.py::test_spec[h2] FAILED" in done.stdout
    assert re.search(r"1 failed, [1-9]\d* deselected", done.stdout), "the checks of nouveau"


@pytest.mark.parametrize(("pytests", "ours"), [(0, 0), (1, 1), (2, 130), (3, 70), (4, 2), (5, 1)])
def test_the_result_of_pytest_is_the_exit_code(pytests: int, ours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[str]] = []

    def main(words: list[str]) -> int:
        taken.append(words)
        return pytests

    monkeypatch.setattr(pytest, "main", main)
    line = ["test", "i.yaml", "hosts.yaml", "-l", "h1", "--", "--collect-only", "--", "-l"]
    done = CliRunner().invoke(cli, line, standalone_mode=False)
    assert (done.exception, done.return_value) == (None, ours)
    read = ["--gpuprov", "i.yaml", "--gpuprov", "hosts.yaml", "--gpuprov-limit", "h1"]
    assert taken == [[*read, "--collect-only", "--", "-l"]]
