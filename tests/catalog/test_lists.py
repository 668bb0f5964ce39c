"""Whole lists of errors: they come after what people wrote of a message."""

from __future__ import annotations

import pytest

from gpuprov.catalog.context import fold
from gpuprov.catalog.lists import index_lists
from gpuprov.catalog.signatures import find_held
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.catalog.verdicts import judge_line
from gpuprov.explain import explain


def test_each_list_has_a_key_of_its_own() -> None:
    keys = [symptom.key for symptom in list_symptoms()]
    assert [key for key in index_lists() if keys.count(key) != 1] == []


def test_no_message_is_of_two_lists() -> None:
    texts = [fold(text) for one in index_lists().values() for text in one.signatures]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ("slurm_load_jobs error: Invalid job id specified", "slurm-errno-request", "ended"),
        ("[n1:12] PMIX ERROR: PMIX_ERR_OUT_OF_RESOURCE in file server.c at line 2", "pmix-status", "shared memory"),
        ("[n1:12] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168", "pmix-status", "PMIx"),
        ("NVRM: memmgr failed: [NV_ERR_INSUFFICIENT_RESOURCES]", "nv-status", "An error of the driver"),
        ("CUDNN_STATUS_EXECUTION_FAILED_CUBLAS", "cudnn-status", "cuDNN"),
        ("dcgmi: Error: DCGM_ST_NOT_WATCHED", "dcgm-status", "not being updated"),
        ("CUPTI_ERROR_HARDWARE_BUSY", "cupti-status", "hardware"),
    ],
)
def test_an_error_is_told_by_its_name_or_text(line: str, key: str, words: str) -> None:
    assert find_held(fold(line))[0].symptom.key == key
    assert words in dict(explain(line)[0].lines)["cause"]


def test_what_a_person_wrote_comes_before_a_list() -> None:
    line = "scontrol: error: _fetch_child: failed to fetch remote configs: Unable to contact slurm controller"
    assert find_held(fold(line))[0].symptom.key not in index_lists()


def test_a_shared_text_counts_beside_a_word_of_its_program() -> None:
    assert find_held(fold("app: Job is not running on this host")) == []
    assert find_held(fold("scontrol: error: Job is not running"))[0].symptom.key == "slurm-errno-state"


def test_a_line_of_a_list_asks_nothing_of_a_host() -> None:
    """Health reports what people wrote down only: a list says what a message is, not how grave."""
    assert judge_line("NVRM: memmgr failed: [NV_ERR_INSUFFICIENT_RESOURCES]") is None
