"""A word gets its own answer, or none."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.catalog.terms import read_terms_file
from gpuprov.core.errors import GpuprovError
from gpuprov.explain import explain
from tests.rows import run_each


@run_each("name", list(BY_NAME))
def test_a_capability_is_known_in_any_case(name: str) -> None:
    for word in (name.upper(), name.title()):
        assert ("capability", name) in [(one.kind, one.name) for one in explain(word)]


@run_each("word", ["cGPU", "MIG", "MPS"])
def test_a_capability_as_people_write_it(word: str) -> None:
    assert explain(word)[0].kind == "capability"


@run_each("term", read_terms_file().terms, ids=lambda term: term.key)
def test_a_term_is_known_in_any_case_and_is_nothing_else(term) -> None:  # type: ignore[no-untyped-def]
    for word in (term.key, term.key.lower(), *term.also):
        answer = explain(word)[0]
        assert (answer.kind, answer.name) == ("term", term.key)
        assert dict(answer.lines)["means"] == term.means
        assert dict(answer.lines)["source"].startswith("https://")
        assert not [one for one in explain(word) if one.kind == "symptom"], word


@run_each(
    "word",
    [
        *("on", "failed", "open", "error", "device", "transport", "nvidia-smi pci -gCnt"),
        *("nvidia-smi -pm 1", "nvidia-uvm", "libcuda1", "datacenter-gpu-manager"),
        *("Not Active", "[N/A]", "connection refused", "permission denied", "Unknown Error"),
    ],
)
def test_a_word_and_a_command_that_are_no_message_are_unknown(word: str) -> None:
    with pytest.raises(GpuprovError, match="nothing is known of"):
        explain(word)
