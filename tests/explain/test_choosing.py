"""A log is read as it comes: of any size, in little memory, with the answers that its lines have by themselves."""

from __future__ import annotations

import io
import tracemalloc

import pytest

from gpuprov.catalog.context import fold
from gpuprov.catalog.signatures import find_held, list_signatures
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.explain import in_stream
from gpuprov.explain.choosing import BLOCK, chosen
from gpuprov.explain.messages import symptoms_in
from tests.explain.corpus import lines
from tests.rows import run_each

FILLER = b"Nov 28 10:00:00 node1 systemd[1]: Started Session 17 of user root.\n"
LOST = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.\n"


def test_a_log_is_read_in_little_memory_and_to_its_end() -> None:
    class Endless(io.RawIOBase):
        left = 1 << 20

        def read(self, size: int = -1) -> bytes:
            if self.left <= 0:
                return b""
            self.left -= size
            return LOST if self.left <= 0 else (FILLER * (size // len(FILLER) + 1))[:size]

        def readline(self, size: int | None = -1) -> bytes:
            return b"\n"

    symptoms_in("warm")
    tracemalloc.start()
    seen = in_stream(Endless())  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "fallen off the bus" in dict(seen[0].lines)["seen"]
    assert peak < 1 << 19


@run_each("before", [0, 1, BLOCK // len(FILLER) - 1, BLOCK // len(FILLER), 3 * BLOCK // len(FILLER)])
def test_each_message_is_counted_once_wherever_it_stands(before: int) -> None:
    log = (FILLER * before + LOST) * 3 + FILLER * 100
    (xid, *_) = symptoms_in(io.BytesIO(log))
    assert (xid.symptom.xids, xid.count) == ((79,), 3)


def test_a_line_longer_than_a_block_is_one_line_of_which_the_beginning_is_read() -> None:
    giant = b"x" * (3 * BLOCK) + b" CUDA out of memory\n"
    assert symptoms_in(io.BytesIO(giant)) == []
    assert [one.symptom.key for one in symptoms_in(io.BytesIO(b"CUDA out of memory " + giant + LOST))][
        -1
    ] == "cuda-out-of-memory"


def test_lines_around_one_that_may_hold_a_message_are_kept() -> None:
    device = b"41:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev a1)\n\tSubsystem: NVIDIA\n"
    log = FILLER * 1000 + device + b"\tKernel driver in use: nouveau\n" + FILLER * 1000
    assert [one.symptom.key for one in symptoms_in(io.BytesIO(log))] == ["nouveau-bound"]
    kept = list(chosen(io.BytesIO(log), lambda line: None))
    assert len(kept) < 100


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.install)])
def test_no_signature_is_passed_by(step: int) -> None:
    """Every signature is chosen from a log, and is held in a line of its own words."""
    missed = []
    for symptom in list_symptoms()[::step]:
        for one in list_signatures(symptom):
            line = one.text.replace("*", "x1")
            if line not in "\n".join(chosen(io.BytesIO(FILLER * 5 + line.encode() + b"\n"), lambda line: None)):
                missed.append(one.text)
            if not symptom.needs and not symptom.unless and not symptom.xids and not find_held(fold(line)):
                missed.append(one.text)
    assert missed == []


def test_a_word_begins_and_ends_where_the_message_does() -> None:
    for line in (fold(one.line) for one in lines() if not one.held_out):
        for text in (held.signature.text for held in find_held(line)):
            if text[-1].isalpha() and "*" not in text:
                longer = line.replace(text, f"{text}zz")
                assert text not in [other.signature.text for other in find_held(longer)], line
