"""The document of `gpuprov repair`, and of one host's ticket."""

from collections import Counter

import msgspec

from gpuprov.core.errors import Outcome
from gpuprov.core.fill import fill
from gpuprov.host_page.identify import Gpu as Card
from gpuprov.repair.model import OUTCOMES, Gpu, HostRepair, Repaired, State, Step, Try
from gpuprov.repair.text import format_summary
from gpuprov.report.document import Document, HostDocument, Summary, conclude, sum_up
from gpuprov.verify.evaluate import Result


class RepairFinding(msgspec.Struct, kw_only=True):
    """A finding of health. `action`: what NVIDIA says is to be done; `devices`: PCI addresses, empty if not known."""

    check: str
    action: str
    found: str
    expected: str
    fix: str
    evidence: str
    devices: tuple[str, ...]


class RepairPlan(msgspec.Struct, kw_only=True):
    """What was planned. `step`: what is done first; `gpus`: those that are reset, `together`: others that are reset
    with them, `why`; `whole`: all GPUs and NVSwitches at once; `services`: stopped and started again; `holders`:
    processes on GPUs; `drain`: by which scheduler; `reboot`: whether one may follow; `loses`: MIG devices that nothing
    brings back."""

    step: Step
    sentence: str
    findings: tuple[RepairFinding, ...]
    gpus: tuple[Gpu, ...]
    together: tuple[Gpu, ...]
    why: str
    whole: bool
    services: tuple[str, ...]
    holders: tuple[str, ...]
    drain: str
    reboot: bool
    loses: tuple[str, ...]


class RepairedHost(HostDocument, frozen=True, kw_only=True):
    """A host. `tries`: what was done; `left`: findings at the end; `out`: why it stays out of its scheduler; `ticket`:
    files with its ticket, and then `machine`: what it is, by label; `cards`: its GPUs with serial numbers and VBIOS;
    `kernel_log`: lines that gpuprov knows."""

    state: State
    message: str
    fix: str
    plan: RepairPlan
    tries: tuple[Try, ...]
    left: tuple[RepairFinding, ...]
    out: str
    ticket: tuple[str, ...]
    machine: dict[str, str]
    cards: tuple[Card, ...]
    kernel_log: tuple[str, ...]


class RepairSummary(Summary, kw_only=True):
    """The run in a sentence, and hosts by outcome and state."""

    states: dict[State, int]


class RepairDocument(Document, kw_only=True, tag="repair"):
    """The document. `stopped`: why hosts were not started."""

    run: str
    summary: RepairSummary
    interrupted: bool
    stopped: str
    hosts: tuple[RepairedHost, ...]


def build_document(run: Repaired) -> RepairDocument:
    """Return the document."""
    states = Counter(host.state for host in run.hosts)
    return conclude(
        RepairDocument,
        run,
        run.outcomes.values(),
        run.seconds,
        summary=sum_up(RepairSummary, format_summary(run), run.outcomes.values(), states=dict(states)),
        hosts=tuple(_build_host(host, OUTCOMES[host.state]) for host in run.hosts),
    )


def _build_host(host: HostRepair, outcome: Outcome) -> RepairedHost:
    plan, scope = host.plan, host.plan.scope
    return fill(
        RepairedHost,
        host,
        outcome=outcome,
        plan=fill(
            RepairPlan,
            plan,
            findings=_build_findings(plan.findings),
            gpus=scope.gpus,
            together=scope.together,
            why=scope.why,
            whole=scope.whole,
        ),
        left=_build_findings(host.left),
    )


def _build_findings(results: tuple[Result, ...]) -> tuple[RepairFinding, ...]:
    return tuple(fill(RepairFinding, result) for result in results)
