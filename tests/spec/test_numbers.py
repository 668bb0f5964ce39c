"""Numbers that YAML reads in another base than they seem to be written in."""

from __future__ import annotations

from pathlib import Path

from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.numbers import find_misread
from gpuprov.spec.problem import Origin
from gpuprov.spec.problem import Path as Path_
from tests.rows import run_each

SPEC = "all:\n  hosts:\n    gpu1:\n      gpuprov:\n        kernel: {{sysctl: {{vm.swappiness: {}}}}}\n"


@run_each(
    ("written", "value"), [("0010", 8), ("1:30", 90), ("010 ", 8), ("10", 0), ("0", 0), ("0x10", 0), ("'0010'", 0)]
)
def test_what_yaml_reads_in_another_base_is_told(written: str, value: int, tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(SPEC.format(written))
    told = [str(problem) for problem in load_fleet([str(file)]).warnings]
    word = written.strip()
    assert told == [
        f'{file}:5:42: warning: kernel.sysctl.vm.swappiness is written {word}, which YAML reads as {value}; '
        f'write {value}, or quote it: "{word}"'
    ] * bool(value)  # fmt: skip


def test_without_a_place_nothing_is_known_to_be_misread() -> None:
    origins: dict[Path_, Origin] = {("vm",): Origin("script"), ("fs",): Origin("/nonexistent", 3, 1)}
    assert not list(find_misread({"vm": 8, "fs": 8, "net": 8}, origins))
