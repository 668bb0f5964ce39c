"""A record of one host: its pieces, and the outputs of probes derived from them."""

from typing import Literal, TypeVar

import msgspec

from gpuprov.facts.probes.base import Facts, NotRecorded, Output, Probe

T = TypeVar("T")
Kind = Literal["capture", "bug report", "sosreport", "kernel log", "nvidia-smi -q", "command output"]


class Pieces(msgspec.Struct):
    """The contents of a report, as collected by its tool."""

    # Text by absolute path.
    files: dict[str, str] = {}
    # Output by command line, the program without its folder.
    commands: dict[str, str] = {}
    # Files that the report states were not on the host.
    absent: set[str] = set()
    # The reason why the report is known to be incomplete; empty if it is not.
    cut: str = ""

    def file(self, path: str) -> str | None:
        """Return the text of a file; "" for one that was absent on the host; None if the report does not mention it."""
        return "" if path in self.absent else self.files.get(path)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one host at the time of the record. `host` is its own name, `places` the names of the files and
    folders in which it lies, of which one may be its host's, `path` the path of the record, `text` all of its text, to
    search for messages. `read_at`: seconds since 1970, 0 if unknown. `fault`: the error if it could not be read, else
    empty. `readable`: the probes that gpuprov looks for in a record of this kind; empty: all. `cut`: the reason why it
    is known to be incomplete: outputs that may lack data are left out. `partial`: the probes whose output breaks off,
    which can only show defects. `shared`: it is of a log of several hosts."""

    host: str
    path: str
    kind: Kind
    places: tuple[str, ...] = ()
    outputs: dict[str, Output]
    read_at: float = 0
    text: str = ""
    fault: str = ""
    readable: frozenset[str] = frozenset()
    cut: str = ""
    partial: frozenset[str] = frozenset()
    shared: bool = False


class RecordedFacts(Facts):
    """Facts of a record. Data that it lacks, or that gpuprov does not look for in it, raises NotRecorded: the check
    that needs it is skipped, it neither passes nor fails."""

    def __init__(self, record: Record) -> None:
        super().__init__(record.outputs)
        self.record = record
        if record.read_at:
            self.read_at = record.read_at

    def get(self, probe: Probe[T]) -> T:
        if probe.name not in self.record.outputs:
            kind = self.record.kind
            if self.record.readable and probe.name not in self.record.readable:
                raise NotRecorded(f"gpuprov does not read this from a {kind}: {probe.name}")
            incomplete = ", which is incomplete" if self.record.cut else ""
            raise NotRecorded(f"not in this {kind}{incomplete}: {probe.name}")
        return super().get(probe)
