"""The document of `gpuprov plan`."""

from collections.abc import Sequence
from typing import Annotated, Literal

from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.core.errors import Outcome
from gpuprov.core.fill import fill
from gpuprov.plan.model import SECTIONS, HostPlan, Item
from gpuprov.plan.summary import counts, sentence
from gpuprov.report.document import Document, HostDocument, Summary, conclude, sum_up
from gpuprov.spec.described import describe
from gpuprov.spec.model import Reboot
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import Unmanaged


class PlannedHost(HostDocument, frozen=True, kw_only=True):
    """Planned changes of one host. `run`, `skipped`: capabilities with the reason. `blocked`: what must be fixed before
    apply touches the host. `packages` to `holds`: differences, by kind. `diffs`: files that would be written, each with
    the difference of its text. `unpredicted`: what cannot be known in advance. `no_way_back`: what rollback could not
    undo. `versions`: exact, on the host after apply, by capability; `installed`: its current ones. `mig`: GPUs that are
    repartitioned. `unmended`: failures for which apply has no change. `unmanaged`: what an apply brought and the
    spec no longer declares. `differs`: the host does not match its spec."""

    unreachable: Annotated[str, describe("Why it cannot be reached; empty where it was")]
    unreachable_fix: str
    blocked: tuple[Result, ...]
    places: Annotated[
        dict[str, str], describe("Where the spec asks for what is refused, by check: FILE:LINE:COLUMN")
    ] = {}
    run: dict[str, str]
    skipped: dict[str, str]
    packages: tuple[Item, ...]
    files: tuple[Item, ...]
    services: tuple[Item, ...]
    modules: tuple[Item, ...]
    initramfs: tuple[Item, ...]
    settings: tuple[Item, ...]
    clients: tuple[Item, ...]
    holds: tuple[Item, ...]
    diffs: tuple[Item, ...]
    reboot: Annotated[bool | Literal["unknown"], describe("Whether apply leads to a reboot")]
    reboot_reasons: tuple[str, ...]
    permission: Annotated[Reboot, describe("Whether the spec permits a reboot")]
    last_apply: str
    last_apply_seconds: int | None
    unpredicted: tuple[str, ...]
    no_way_back: tuple[str, ...]
    out: Annotated[str, describe("That gpuprov has drained it and not given it back; empty where it has")]
    differs: bool
    versions: dict[str, str]
    installed: dict[str, str]
    mig: tuple[Partition, ...]
    unmended: tuple[Result, ...]
    unmanaged: tuple[Unmanaged, ...]


class PlannedSummary(Summary, kw_only=True):
    """The plan in a sentence, and in numbers of hosts."""

    to_apply: int
    nothing_to_do: int
    blocked: int
    jobs_running: int
    unreachable: int
    reboot: int
    reboot_not_permitted: int


class Planned(Document, kw_only=True, tag="plan"):
    """The document that `gpuprov plan --json` prints. `seconds`: how long planning took."""

    summary: PlannedSummary
    hosts: tuple[PlannedHost, ...]


def build_document(plans: Sequence[HostPlan], seconds: float | None = None) -> Planned:
    """Return the document."""
    hosts = tuple(_make_host(plan) for plan in plans)
    outcomes: list[Outcome] = [host.outcome for host in hosts]
    summary = sum_up(PlannedSummary, sentence(plans), outcomes, **counts(plans))
    return conclude(Planned, None, outcomes or ["ok"], seconds, summary=summary, hosts=hosts)


def choose_outcome(plan: HostPlan) -> Outcome:
    """Return whether the host could be reached, and matches its spec with nothing to change."""
    if plan.unreachable:
        return "unreachable"
    return "differs" if plan.differs or not plan.idle else "ok"


def _make_host(plan: HostPlan) -> PlannedHost:
    by_kind = {section: plan.section(kind) for kind, section in SECTIONS.items()}
    return fill(PlannedHost, plan, outcome=choose_outcome(plan), **by_kind)
