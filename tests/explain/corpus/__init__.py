"""Messages of public trackers and forums, one file a layer: the line, its address, and the answers that a person's
reading allows.

A line that is held out is used to measure only, never to write the catalogue. Which ones are is no choice: it is the
first digit of the line's SHA-256 in hexadecimal, up to 9; so for 10 of 16. Lines that the catalogue had been written by
before there was this rule are not held out, whatever their digit. Lines that are `fresh` were gathered after the
catalogue had been written, and are all held out: nobody who wrote had read them.

Lines `gathered` in 2026-11 are of three batches. All of the first may be used to write the catalogue. Of the second,
those whose source's SHA-256 begins with 8 to f are set aside, by source, as lines of one thread are alike; the others
may be used. All of the third are set aside. What is set aside of these is `fresh`. Those gathered on 2026-11-29 are of
layers that had few lines, and are divided by source as those of the second, but for one by which a row was written; who
wrote had seen all of them when gathering. So it is with those of "all layers", of threads of which the corpus had no
line: their answers were written down before the rows that were added then.

Those gathered "by kind" are of two gatherings. By all of the first, rows were written that hold whole families of
messages of a program. The second was gathered when these rows were done, of threads that neither the corpus nor a row
has, and is divided by source as above; rows were then written by those that are not set aside.

Those gathered "by source", of threads that the corpus had no line of, are divided by source too. Meanwhile rows were
written from the messages in the programs' own sources. Who wrote had seen all lines when gathering; a line whose very
message was then written into a row is held out no more.

Those "measured first" are of threads, too, that the corpus had no line of; their answers were written down, and all of
them measured, before a row was written by those that are not set aside. So it is with those gathered on 2026-11-30, 61
in all: at first 30 of them were right, 23 silent and 8 wrong. On that day the wrong answers to lines that had been
set aside before were read, to mend what chose them: one of the lines, whose very message was then written into a row,
is held out no more, and the figures of the others are since then no measure of lines that nobody has read. Of those
set aside on that day, who wrote had seen the lines when gathering, and none when writing.

Then rows were written for families of messages, from the programs' sources and from threads found by searching for
them. Among these threads were those of 18 lines that had been set aside, which are held out no more: they are most of
what these rows gained. Those gathered "after families" are of threads that neither the corpus nor a row had; their
answers were written down, and all 65 measured, before a row was written by them: 34 were right, 20 silent and 11 wrong.
Of these 11, read then, 6 were answered with the right cause by a row other than the ones written down, whose keys were
added: 40 right and 5 wrong. They are divided by source as the others; one line and one older one, whose very messages
were then written into rows, are held out no more. No row was written after the others' wrong answers had been read.

Those gathered "before rows" are of the layers that were weakest, most of 2025 and 2026, and of threads that the corpus
had no line of. Their causes were written down, and all 55 measured: 25 were right, 26 silent and 4 wrong. Rows were
then written by lines of either half, so that none is held out, and their figure now says nothing: 52 are right, and the
three that have no answer yet are not here. Six more of other threads were added afterwards, with their rows. One older
line that had been set aside, whose very message was then written into a row, is held out no more.

Then rows were written from publishers' documentation and sources, for families that no row had: frameworks, launchers,
builds, drivers of adapters. One line that had been set aside was seen in a failing test meanwhile, and is held out no
more. Those gathered "of forums", 66 of pastebins, forums and trackers that the corpus had no line of, had their answers
written down when most of these rows were done, and none had been written by them: 43 were right, 20 silent and 3 wrong
(41, 22 and 3 before these rows). Of these 3, read then, all were answered with the right cause by a row other than the
one written down, whose key was added: 46 right. They are divided by source as the others; rows were then written by
those that are not set aside.

Then 7,800 messages were read from programs' sources, of several releases, file by file. They were not kept: they
answered 4 of the 78 lines that had no answer, and one of these wrongly. Lists of errors by name and text were. Those
gathered "of uncommon threads" are of threads that neither the corpus nor a row had, most of older programs. Their
causes were written down, and all 67 measured once: 25 were right, 33 silent and 9 wrong. The 9 were read, and what
chose or worded them mended. They are divided by source as the others; rows were then written by those that are not set
aside, of which five that have no answer yet, and one of a module that is no GPU's, are not here.

Those gathered on 2026-12-01 are of drivers, containers, Kubernetes, RDMA, vGPU, MIG and DCGM. First 139 messages were
gathered, and their causes written down before they were measured: of the 67 of threads that neither the corpus nor a
row had, 33 were right, 29 silent and 5 wrong. Rows were then written by all of them, and from lists of what programs
print; the four lines set aside before whose very messages these rows have are held out no more. Those "set aside" are
of other threads, gathered when the rows were done: of 33, 20 were right, 11 silent and 2 wrong. No row was written by
them; one of the two was answered with a row's second cause, which was put first then.

Those of 2026-12-01 are of packages, builds, frameworks, launchers, Slurm and EFA, of threads that neither the corpus
nor a row had. Of the 78 gathered first, the causes were written down, and all measured: 54 were right, 23 silent and 1
wrong. Rows were then written by them and for the common messages of each program, so that none is held out; a few that
the corpus has already, or that have no row, are not here. One older line set aside was then answered with the right
cause by a row other than those written down, and another by one of a wider kind; the keys were added. The 62 "of builds
and runs" were gathered when these rows were done: 30 were right, 30 silent and 2 wrong. Rows were then written by 21 of
those that were not right, whose very messages are in them now and which are held out no more, so that the figure of the
others is higher than what was measured. No row was written by these.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec
import yaml

HERE = Path(__file__).parent


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line as it was printed. `answer`: the keys of the symptoms that are right as the first answer; no key is of
    another."""

    line: str
    source: str
    answer: tuple[str, ...]
    held_out: bool = False
    fresh: bool = False
    gathered: str = ""
    layer: str = ""


@cache
def lines() -> tuple[Line, ...]:
    """Every line of every layer, with the layer's name."""
    found: list[Line] = []
    for path in sorted(HERE.glob("*.yaml")):
        loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        for one in msgspec.convert(loaded, list[Line]):
            found.append(msgspec.structs.replace(one, layer=path.stem))
    return tuple(found)


def may_be_held_out(line: str) -> bool:
    """True if the rule sets a line aside."""
    return hashlib.sha256(line.encode()).hexdigest()[0] in "0123456789"
