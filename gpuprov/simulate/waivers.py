"""Checks that a simulated host cannot prove, and verify's results after these waivers: no check is unproved without a
reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec

from gpuprov.catalog.reader import choose_fix, convert_to, read_yaml
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate.description import Kind

FILE = Path(__file__).with_name("waivers.yaml")
KINDS: tuple[Kind, ...] = ("container", "machine")


class Waiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check that cannot run on a kind of simulated host, and is skipped (`fails`: or fails; `passes`: or passes, on
    some distributions). `when` narrows it to hosts with or without GPUs, `nvswitch` to hosts with NVSwitches of a
    generation."""

    check: Annotated[str, msgspec.Meta(pattern=r"^[a-z_]+\.[a-z_]+$")]
    kind: Kind | Literal["any"]
    when: Literal["always", "gpu", "no-gpu"] = "always"
    nvswitch: Annotated[int, msgspec.Meta(ge=1, le=4)] | None = None
    fails: bool = False
    passes: bool = False
    reason: Annotated[str, msgspec.Meta(min_length=10, description="a text of at least 10 characters")]

    def concerns(self, kind: Kind, gpu: bool, nvswitch: int = 0) -> bool:
        """True if it applies to a host of this kind, with or without GPUs, with NVSwitches of a generation (0:
        none)."""
        fits = self.kind in (kind, "any") and self.when in ("always", "gpu" if gpu else "no-gpu")
        return fits and self.nvswitch in (None, nvswitch)


class Told(Protocol):
    """Fields read from a result of verify."""

    @property
    def host(self) -> str: ...
    @property
    def check(self) -> str: ...
    @property
    def status(self) -> Any: ...
    @property
    def expected(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def fix(self) -> str: ...


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A result as `gpuprov verify --json` writes it."""

    host: str
    check: str
    status: Literal["pass", "fail", "skip", "error", "unreachable", "n/a"]
    expected: str = ""
    found: str = ""
    fix: str = ""


class Waived(msgspec.Struct, frozen=True):
    """An unproved check, and the reason why that is allowed."""

    host: str
    check: str
    status: str
    found: str
    reason: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Results after the waivers. failed: differ from the spec. unproved: skipped, with no waiver to explain it.
    contradicted: waived but passing, so that the waiver is wrong."""

    proved: tuple[str, ...] = ()
    waived: tuple[Waived, ...] = ()
    failed: tuple[Row, ...] = ()
    unproved: tuple[Row, ...] = ()
    contradicted: tuple[Waived, ...] = ()

    @property
    def green(self) -> bool:
        """True if every check is proved, or waived with a reason; False if nothing is proved at all."""
        return bool(self.proved) and not (self.failed or self.unproved or self.contradicted)

    @property
    def summary(self) -> str:
        """Format the counts: `18 passed, 3 waived`."""
        counts = {
            "passed": len(self.proved),
            "failed": len(self.failed),
            "unproved": len(self.unproved),
            "waived": len(self.waived),
            "waived in vain": len(self.contradicted),
        }
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no results"


def judge(
    results: Iterable[Told], kind: Kind, *, gpu: bool = True, nvswitch: int = 0, known: Sequence[Waiver] | None = None
) -> Judged:
    """Apply waivers to verify's results from one kind of simulated host, with or without GPUs, with NVSwitches of a
    generation (0: none).

    `known`: waivers to use in place of the file's.
    """
    holding = {
        waiver.check: waiver
        for waiver in (waivers() if known is None else known)
        if waiver.concerns(kind, gpu, nvswitch)
    }
    proved: list[str] = []
    waived: list[Waived] = []
    failed: list[Row] = []
    unproved: list[Row] = []
    contradicted: list[Waived] = []
    for result in results:
        waiver = holding.get(result.check)
        entry = Waived(result.host, result.check, result.status, result.found, waiver.reason if waiver else "")
        if result.status == "pass":
            if waiver and not waiver.passes:
                contradicted.append(entry)
            else:
                proved.append(result.check)
        elif result.status == "n/a":
            continue
        elif waiver and (result.status == "skip" or (result.status == "fail" and waiver.fails)):
            waived.append(entry)
        else:
            row = Row(**{name: getattr(result, name) for name in Row.__struct_fields__})
            (unproved if result.status == "skip" else failed).append(row)
    return Judged(
        proved=tuple(proved),
        waived=tuple(waived),
        failed=tuple(failed),
        unproved=tuple(unproved),
        contradicted=tuple(contradicted),
    )


def lines(judged: Judged) -> Iterator[str]:
    """Yield lines for people: failures, then waived checks."""
    yield from complaints(judged)
    for entry in judged.waived:
        yield f"waived {entry.check} ({entry.host}): {entry.reason}"


def complaints(judged: Judged) -> Iterator[str]:
    """Yield failures, each with its fix."""
    if not judged.proved:
        yield "nothing was proved: no check passed"
    for row in judged.failed:
        yield f"{row.status} {row.check} ({row.host}): {row.found}" + (
            f"; wanted: {row.expected}" if row.expected else ""
        )
        if row.fix:
            yield f"  fix: {row.fix}"
    for row in judged.unproved:
        yield f"not proved {row.check} ({row.host}): {row.found}"
        yield f"  fix: {row.fix or f'make the simulation answer it, or give the reason in {FILE.name}'}"
    for entry in judged.contradicted:
        yield f"waived in vain {entry.check} ({entry.host}): it passes: {entry.found}"
        yield f"  fix: take it out of {FILE.name}, or narrow it by kind and when"


@cache
def waivers() -> tuple[Waiver, ...]:
    """Return the waivers of waivers.yaml."""
    return read(FILE)


def read(file: Path) -> tuple[Waiver, ...]:
    """Read the waivers of a file. Raises GpuprovError if one is not valid, or two apply to one check at once."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise GpuprovError(f"{file}: {error}", choose_fix("restore the file")) from None
    listed = convert_to(read_yaml(text, str(file)) or [], tuple[Waiver, ...], str(file), text)
    places: list[tuple[Kind, bool, int]] = [(k, g, n) for k in KINDS for g in (True, False) for n in range(5)]
    for kind, gpu, nvswitch in places:
        holding = [waiver.check for waiver in listed if waiver.concerns(kind, gpu, nvswitch)]
        twice = next((check for check in holding if holding.count(check) > 1), None)
        if twice:
            place = f"{kind} {'with' if gpu else 'without'} GPUs" + (f" and NVSwitches {nvswitch}" if nvswitch else "")
            raise GpuprovError(f"{file}: {twice} is waived twice for a {place}", "keep one of the two")
    return listed


class _Verified(msgspec.Struct):
    """Fields read from the document of `gpuprov verify --json`."""

    results: tuple[Row, ...]


def read_results(file: Path) -> tuple[Row, ...]:
    """Read results that `gpuprov verify --json` wrote to a file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Verified).results
    except (OSError, msgspec.MsgspecError) as error:
        raise GpuprovError(f"{file}: {error}", "write it with: gpuprov verify INVENTORY --json > FILE") from None
