"""The published figures of explain do not fall, and the corpus is what it says it is."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuprov.catalog.symptoms import list_symptoms
from tests.explain.corpus import Line, lines, may_be_held_out
from tests.explain.measure import PARTS, judge

WRITTEN, ASIDE, FRESH = PARTS.values()


def verdicts(those: list[Line], *, piped: bool = False) -> Counter[str]:
    return Counter(judge(line, piped=piped)[0] for line in those)


def test_the_corpus_is_large_and_half_of_it_is_set_aside_by_the_rule() -> None:
    assert len(lines()) >= 900
    assert len(ASIDE) >= 200
    assert all(may_be_held_out(line.line) for line in ASIDE)
    assert {line.layer for line in lines()} == {
        "driver_kernel", "packages_builds", "containers", "kubernetes", "nccl_mpi", "cuda_pytorch", "rdma_fabric", "efa", "erdma",
        "mnnvl_imex", "vgpu", "mig_mps", "slurm", "dcgm",
    }  # fmt: skip


def test_each_line_stands_once_with_its_address() -> None:
    assert [line for line, count in Counter(one.line for one in lines()).items() if count > 1] == []
    assert [one.line for one in lines() if not one.source.startswith("https://") or " " in one.source] == []


def test_lines_by_which_the_catalogue_is_written_have_answers_that_it_has() -> None:
    known = {symptom.key for symptom in list_symptoms()}
    assert [(line.line, line.answer) for line in WRITTEN if not known & set(line.answer)] == []


@pytest.mark.parametrize("piped", [False, True])
def test_the_figure_of_those_set_aside(piped: bool) -> None:
    found = verdicts(ASIDE, piped=piped)
    assert found["right"] / len(ASIDE) >= 0.94
    assert found["wrong"] / len(ASIDE) <= 0.01


def test_the_figure_of_those_that_nobody_who_wrote_had_read() -> None:
    found = verdicts(FRESH)
    assert found["right"] / len(FRESH) >= 0.73
    assert found["wrong"] / len(FRESH) <= 0.07
