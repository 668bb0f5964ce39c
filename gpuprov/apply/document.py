"""A run as one JSON document: the output of `gpuprov apply --json` and `gpuprov rollback --json`.

docs/reference/apply.schema.json is made from these types.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpuprov import __version__
from gpuprov.apply.model import Act, AppliedItem, ApplyRun, HostOutcome, Lap, State
from gpuprov.apply.text import summary
from gpuprov.errors import Code
from gpuprov.reading import format_document
from gpuprov.report.as_json import Boot
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import Verdict, next_boot, verdict

FORMAT = 1
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class AppliedHost(msgspec.Struct, kw_only=True):
    """The outcome of a host. `verdict` and `next_boot`: of verify, after the run; null if the host was not verified. `ran`,
    `skipped`: capabilities with the reason. `changed`: tasks that changed something. `task`, `message`, `hint`: what failed, or why
    nothing was done, and the fix. `warnings`: problems that stopped nothing. `results`: of verify, without those that are n/a.
    `reboot_required`: why the host must still be rebooted. `items`: each change that the plan lists, and its outcome; empty if
    there was nothing to do. `origin`: the place in the inventory that requests the capability which failed or was refused."""

    host: str
    state: State
    verdict: Verdict | None
    next_boot: Boot | None
    ran: dict[str, str]
    skipped: dict[str, str]
    changed: tuple[str, ...]
    items: tuple[AppliedItem, ...]
    task: str
    message: str
    hint: str
    origin: str
    warnings: tuple[str, ...]
    results: tuple[Result, ...]
    seconds: Seconds
    reboot_permitted: bool
    reboot_required: tuple[str, ...]
    rolled_back: str


class Summary(msgspec.Struct, kw_only=True):
    """The run in a sentence, and hosts by state."""

    sentence: str
    hosts: int
    states: dict[State, int]


class Applied(msgspec.Struct, kw_only=True):
    """The document. `acts`: how long each act took. `stopped`: why batches were left out. `locked`: hosts that another run works
    on. `log`: the file with Ansible's output, empty if Ansible did not run."""

    gpuprov_apply: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    run: str
    act: Act
    exit_code: Code
    seconds: Seconds
    summary: Summary
    interrupted: bool
    stopped: str
    acts: tuple[Lap, ...]
    hosts: tuple[AppliedHost, ...]
    locked: tuple[str, ...]
    log: str


def document(run: ApplyRun) -> Applied:
    """Return the document."""
    states: dict[State, int] = {}
    for one in run.hosts:
        states[one.state] = states.get(one.state, 0) + 1
    return Applied(
        run=run.run,
        act=run.act,
        exit_code=run.exit_code,
        seconds=round(run.seconds, 3),
        summary=Summary(sentence=summary(run), hosts=len(run.hosts), states=states),
        interrupted=run.interrupted,
        stopped=run.stopped,
        acts=tuple(run.acts),
        hosts=tuple(_host(one) for one in run.hosts),
        locked=tuple(run.locked),
        log=str(run.log or ""),
    )


def as_json(run: ApplyRun) -> str:
    """Return the document as text."""
    return format_document(document(run))


def _host(one: HostOutcome) -> AppliedHost:
    told = next_boot(one.verified).get(one.host)
    return AppliedHost(
        host=one.host,
        state=one.state,
        verdict=verdict(one.verified) if one.verified else None,
        next_boot=Boot(verdict=told.verdict, reasons=told.reasons) if told else None,
        ran=one.ran,
        skipped=one.skipped,
        changed=tuple(one.changed),
        items=tuple(one.items),
        task=one.task,
        message=one.message,
        hint=one.advice,
        origin=one.origin,
        warnings=tuple(one.warnings),
        results=tuple(row for row in one.results if row.status != "n/a"),
        seconds=round(one.seconds, 3),
        reboot_permitted=one.reboot_permitted,
        reboot_required=tuple(one.reboot),
        rolled_back=one.rolled_back,
    )
