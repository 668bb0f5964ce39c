"""Messages of check and catalog on a terminal."""

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.report.specs import ALIKE, fold_alike, show_catalog
from gpuprov.spec.problem import Origin, Problem
from tests.rows import run_each


def test_one_mistake_at_many_places_is_folded() -> None:
    port = [Problem(message="ansible_port is x", origin=Origin("a.yaml", line, 9)) for line in range(1, 3001)]
    other = Problem(message="gpu.count is 99", origin=Origin("a.yaml", 3001, 9))
    lines = list(fold_alike([*port, other]))
    assert len(lines) == ALIKE + 2
    assert lines[ALIKE] == "a.yaml:3001:9: gpu.count is 99"
    assert lines[-1] == "ansible_port is x: at 2,990 more places; --json has all"
    assert list(fold_alike(port[:ALIKE])) == [str(problem) for problem in port[:ALIKE]]


@run_each(
    ("table", "word", "fix"),
    [
        ("gpus", "H200x", 'did you mean "H200-SXM"'),
        ("mig", "L40S", "L40S has no MIG"),
        ("drivers", "999", "gpuprov catalog drivers lists all"),
    ],
)
def test_a_word_that_no_row_has(table: str, word: str, fix: str) -> None:
    with pytest.raises(GpuprovError) as caught:
        show_catalog(table, word, as_json=False)
    assert fix in caught.value.fix
