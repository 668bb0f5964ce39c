"""Bad specs, each with the exact list of what is told: place, value, what is allowed, the way out.

The rows stand in bad/*.txt: `# name`, the host's `gpuprov` variable, and one `=> LINE:COLUMN: message` per problem. The
variable is put below four lines of a real inventory, indented by six.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.problem import SpecError
from tests.rows import run_each

HEAD = "all:\n  hosts: {gpu1: {}}\n  vars:\n    gpuprov:\n"


ROWS = sorted((Path(__file__).parent / "bad").glob("*.txt"))


def rows(*files: Path) -> Iterator[tuple[str, str, list[str]]]:
    for file in files or ROWS:
        for block in file.read_text(encoding="utf-8").split("# ")[1:]:
            name, *lines = block.strip().splitlines()
            spec = "".join(f"{line}\n" for line in lines if not line.startswith("=> "))
            yield name, spec, [line.removeprefix("=> ") for line in lines if line.startswith("=> ")]


def inventory(folder: Path, spec: str) -> Path:
    path = folder / "inventory.yaml"
    path.write_text(HEAD + textwrap.indent(spec, "      "), encoding="utf-8")
    return path


@run_each("file", ROWS, ids=lambda file: str(file.stem))
def test_every_problem_is_told_exactly(file: Path, tmp_path: Path) -> None:
    expected, found = {}, {}
    for name, spec, told in rows(file):
        path = inventory(tmp_path, spec)
        expected[name] = (2, told)
        try:
            load_fleet([str(path)], cache=False)
        except SpecError as error:
            found[name] = (error.exit_code, [str(problem).replace(f"{path}:", "") for problem in error.problems])
    assert found == expected


def test_there_are_enough_of_them() -> None:
    names = [name for name, _, _ in rows()]
    assert len(names) == len(set(names)) >= 100
    assert all(told for _, _, told in rows())


def test_messages_are_clean() -> None:
    for message in {message for _, _, told in rows() for message in told}:
        words = message.replace('"', " ").split()
        assert not [a for a, b in pairwise(words) if a == b and a.isalpha()], f"a doubled word: {message}"
        assert "Expected `" not in message, f"a library's words reach the user: {message}"
        assert "^" not in message, f"a pattern reaches the user: {message}"
        assert ";" in message, f"no fix: {message}"
