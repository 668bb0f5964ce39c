"""The judge finds each thing that can be broken, and knows nothing of what it judges."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign import outside
from tests.campaign.__main__ import planned
from tests.campaign.table import text

VERSIONS = ("535.1", "535.2")
SITE = tuple(f"#site {file} abc 644 root" for file in outside.SITE)
WELL = outside.Look(
    lines=("#loaded 535.1", "#module 6.1.0-1-amd64 535.1", "#package nvidia-smi hi 535.1-1 nvidia-graphics-drivers", "#audit ",
           "#smi 0", "#job 77", "#service active", f"#held {outside.HELD}", *SITE),
    boot="12 3400", job="9000",
)  # fmt: skip
UPGRADED = ("#module 6.1.0-1-amd64 535.2", "#package nvidia-smi hi 535.2-1 nvidia-graphics-drivers", "#smi 9")


def seen(*lines: str) -> outside.Look:
    """A host that is well, but for these lines in the place of those that begin alike."""
    heads = {" ".join(line.split()[:2]) if line.startswith("#site") else line.split()[0] for line in lines}
    kept = [line for line in WELL.lines if " ".join(line.split()[:2]) not in heads and line.split()[0] not in heads]
    return replace(
        WELL, lines=(*kept, *(line for line in lines if not line.startswith("#site") or len(line.split()) > 2))
    )


@pytest.mark.parametrize(
    "now", [WELL, seen(*UPGRADED), seen("#audit half configured: x", "#package nvidia-smi iU 535.2-1 n")]
)
def test_what_holds(now: outside.Look) -> None:
    assert outside.judge(WELL, now, VERSIONS, died=False) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (seen("#module 6.1.0-1-amd64 "), "driver: kernel 6.1.0-1-amd64 has no module"),
        (replace(WELL, lines=tuple(line for line in WELL.lines if "#module" not in line)), "driver: no kernel"),
        (
            seen("#package a ii 535.1-1 n", "#package b ii 535.2-1 n"),
            "driver: packages of 535.1, 535.2 are installed together",
        ),
        (seen("#package a ii 470.1-1 n"), "driver: packages of 470.1"),
        (seen("#smi 9"), "driver: nvidia-smi ends with 9"),
        (seen("#loaded"), "driver: loaded was 535.1, and is none"),
        (replace(WELL, boot="12 9999"), "reboot: "),
        (replace(WELL, job=""), "process: 77, which held a GPU, is gone"),
        (replace(WELL, job="9001"), "process: 77, which held a GPU, is gone"),
        (seen("#site /root/notes"), "site: /root/notes was changed"),
        (seen("#site /root/notes abc 600 root"), "site: /root/notes was changed"),
        (seen("#held other"), f"site: {outside.HELD} is on hold no more"),
        (seen("#service failed"), "site: site.service is failed"),
    ],
)
def test_what_is_broken(now: outside.Look, said: str) -> None:
    (found,) = outside.judge(WELL, now, VERSIONS, died=False)
    assert found.startswith(said)


def test_a_secret_is_found_by_its_value(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "run.log").write_bytes(b"\xff sudo: hunter2\n")
    assert outside.secret_in_files("hunter2", tmp_path) == [f"secret: in {tmp_path}/log/run.log"]
    assert outside.secret_in_files("hunter3", tmp_path) == []


def test_a_secret_in_arguments_is_seen() -> None:
    import subprocess
    import time

    with outside.Watch("campaign-hunter2") as watch, subprocess.Popen([sys.executable, "-c", "input()", "campaign-hunter2"],
                                                                      stdin=subprocess.PIPE) as child:  # fmt: skip
        over = time.monotonic() + 20
        while not watch.found and time.monotonic() < over:
            time.sleep(0.05)
        child.kill()
    assert any("cmdline" in one for one in watch.found)


def test_the_judge_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(outside.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_a_seed_draws_the_same_runs_again() -> None:
    def told(runs: int) -> list[tuple[int, str, str]]:
        groups = planned(runs, "7", {"small": 10.0, "upgrade": 40.0})
        return [(run.number, run.spec, run.fault.what) for group, _ in groups for run in group]

    assert told(300) == told(300)
    assert [number for number, _, _ in told(300)] == list(range(300))
    assert told(300)[:42] == told(42)


def test_the_table_counts_runs() -> None:
    rows = [{"seed": "1", "kind": "locks", "spec": "small", "broken": []},
            {"seed": "1", "kind": "locks", "spec": "upgrade", "broken": ["site: a", "site: b", "secret: c"]}]  # fmt: skip
    told = text(rows)
    assert "2 runs (seeds 1), 1 of them broke an invariant." in told
    assert "| locks | 2 | 1 | secret (1), site (1) |" in told
    assert "nothing of the site is lost" in told
