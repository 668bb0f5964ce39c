"""A record of one host: the pieces that were found in it, and the outputs of probes that follow from them."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from gpuprov.probe.base import Facts, NotRecorded, Output, Probe

T = TypeVar("T")
Kind = Literal["capture", "bug report", "sosreport"]


class Pieces(msgspec.Struct):
    """What a report holds, as its makers collected it.

    `files`: text by absolute path. `commands`: output by command line, the program without its folder. `absent`: files that the
    report says were not on the host. `cut`: why the report is known to be incomplete; empty where it is not.
    """

    files: dict[str, str] = {}
    commands: dict[str, str] = {}
    absent: set[str] = set()
    cut: str = ""

    def file(self, path: str) -> str | None:
        """The text of a file; "" for one that was not there; None where the report says nothing of it."""
        return "" if path in self.absent else self.files.get(path)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One host as it was. `host` is what it called itself, `path` where the record lies, `text` all of it, to search for messages.

    `read_at`: seconds since 1970, 0 if unknown. `fault`: why it could not be read, empty where it could. `readable`: the probes that
    gpuprov looks for in a record of this kind; empty: all. `cut`: why it is known to be incomplete: what may be missing in it is in no
    output.
    """

    host: str
    path: str
    kind: Kind
    outputs: dict[str, Output]
    read_at: float = 0
    text: str = ""
    fault: str = ""
    readable: frozenset[str] = frozenset()
    cut: str = ""


class RecordedFacts(Facts):
    """Facts of a record. What it does not hold, or gpuprov does not look for in it, raises NotRecorded: the check that asks is
    skipped, it neither passes nor fails."""

    def __init__(self, record: Record) -> None:
        super().__init__(record.outputs)
        self._record = record
        if record.read_at:
            self.read_at = record.read_at

    def get(self, probe: Probe[T]) -> T:
        if probe.name not in self._record.outputs:
            kind = self._record.kind
            if self._record.readable and probe.name not in self._record.readable:
                raise NotRecorded(f"gpuprov does not read {probe.name} from such a record ({kind})")
            incomplete = ", which is incomplete" if self._record.cut else ""
            raise NotRecorded(f"not in this {kind}{incomplete}: {probe.name}")
        return super().get(probe)
