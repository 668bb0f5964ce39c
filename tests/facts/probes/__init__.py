"""Captured outputs of the probes' commands, by probe and case; and their scripts, run where a folder looks like a
host."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuprov.facts.probes.base import Output
from tests.here import program

DATA = Path(__file__).parent / "data"
REAL = Path(__file__).parents[2] / "real"
USUAL = "/usr/bin:/bin"


def published(capture: str, file: str, status: int = 0) -> Output:
    """What a program printed on somebody's host: a file of tests/real, where it is told whose."""
    return Output((REAL / capture / f"{file}.txt").read_text(encoding="utf-8"), status)


def captured(probe: str, case: str, status: int = 0) -> Output:
    """What the probe's command printed on a real host."""
    return Output((DATA / probe / f"{case}.txt").read_text(encoding="utf-8"), status)


def run_script(
    script: str, root: Path, programs: Mapping[str, str], moved: Iterable[str] = (), path: str = USUAL
) -> Output:
    """What a script prints where these programs come first in PATH, and these places are below the folder."""
    (root / "bin").mkdir(exist_ok=True)
    for name, body in programs.items():
        program(root / "bin", name, f"{body}\n")
    for place in moved:
        assert place in script
        script = script.replace(place, f"{root}{place}")
    env = {"PATH": f"{root}/bin:{path}"}
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=120, env=env)
    return Output(done.stdout, done.returncode, done.stderr)


def run_well(script: str, root: Path, programs: Mapping[str, str], moved: Iterable[str] = ()) -> Output:
    """As `run_script`, of a script that ends well."""
    output = run_script(script, root, programs, moved)
    assert output.status == 0, output
    return output
