"""The document of `gpuprov apply` and `gpuprov rollback`."""

from collections import Counter

from gpuprov.apply.model import Act, AppliedItem, ApplyRun, HostOutcome, Lap, State
from gpuprov.apply.text import summary
from gpuprov.core.errors import Outcome
from gpuprov.core.fill import fill
from gpuprov.report.as_json import Boot
from gpuprov.report.document import Document, HostDocument, Seconds, Summary, conclude, sum_up
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import Verdict, next_boot, verdict


class AppliedHost(HostDocument, frozen=True, kw_only=True):
    """The outcome of a host. `verdict` and `next_boot`: of verify, after the run; null if the host was not verified.
    `ran`, `skipped`: capabilities with the reason. `changed`: tasks that changed something. `task`, `message`, `fix`:
    what failed, or why nothing was done, and the fix. `warnings`: problems that stopped nothing. `results`: of verify,
    without those that are n/a. `reboot_required`: why the host must still be rebooted. `items`: each change that the
    plan lists, and its outcome; empty if there was nothing to do. `origin`: the place in the inventory that requests
    the capability which failed or was refused."""

    state: State
    verdict: Verdict | None
    next_boot: Boot | None
    ran: dict[str, str]
    skipped: dict[str, str]
    changed: tuple[str, ...]
    items: tuple[AppliedItem, ...]
    task: str
    message: str
    fix: str
    origin: str
    warnings: tuple[str, ...]
    results: tuple[Result, ...]
    seconds: Seconds
    reboot_permitted: bool
    reboot_required: tuple[str, ...]
    rolled_back: str


class AppliedSummary(Summary, kw_only=True):
    """The run in a sentence, and hosts by outcome and state."""

    states: dict[State, int]


class Applied(Document, kw_only=True, tag="apply"):
    """The document. `acts`: how long each act took. `stopped`: why batches were left out. `locked`: hosts that another
    run works on. `log`: the file with Ansible's output, empty if Ansible did not run."""

    run: str
    act: Act
    summary: AppliedSummary
    interrupted: bool
    stopped: str
    acts: tuple[Lap, ...]
    hosts: tuple[AppliedHost, ...]
    locked: tuple[str, ...]
    log: str


def build_document(run: ApplyRun) -> Applied:
    """Return the document."""
    outcomes, states = run.outcomes, Counter(host.state for host in run.hosts)
    return conclude(
        Applied,
        run,
        outcomes.values(),
        run.seconds,
        summary=sum_up(AppliedSummary, summary(run), outcomes.values(), states=dict(states)),
        hosts=tuple(_make_host(host, outcomes[host.host]) for host in run.hosts),
        log=str(run.log or ""),
    )


def _make_host(host_outcome: HostOutcome, outcome: Outcome) -> AppliedHost:
    boot = next_boot(host_outcome.verified).get(host_outcome.host)
    return fill(
        AppliedHost,
        host_outcome,
        outcome=outcome,
        verdict=verdict(host_outcome.verified) if host_outcome.verified else None,
        next_boot=fill(Boot, boot) if boot else None,
        fix=host_outcome.advice,
        results=tuple(row for row in host_outcome.results if row.status != "n/a"),
        seconds=round(host_outcome.seconds, 3),
        reboot_required=host_outcome.reboot,
    )
