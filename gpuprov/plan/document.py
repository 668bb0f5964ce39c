"""Plans as one JSON document, printed by `gpuprov plan --json`. docs/reference/plan-report.schema.json is generated from these
types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from gpuprov import __version__
from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.errors import Code, Outcome, choose_code
from gpuprov.plan.model import SECTIONS, HostPlan, Item
from gpuprov.plan.summary import counts, sentence
from gpuprov.reading import format_document
from gpuprov.spec.model import Reboot
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import Unmanaged

FORMAT = 1


class PlannedHost(msgspec.Struct, kw_only=True):
    """Planned changes of one host. `run`, `skipped`: capabilities with the reason. `blocked`: what must be fixed before apply touches
    the host. `packages` to `holds`: differences, by kind. `diffs`: files that would be written, each with the difference of its text.
    `unpredicted`: what cannot be known in advance. `no_way_back`: what rollback could not undo. `versions`: exact, on the host after
    apply, by capability; `installed`: its current ones. `mig`: GPUs that are repartitioned. `unmended`: failures although apply has
    nothing to do. `unmanaged`: what an apply brought and the spec no longer declares. `differs`: the host does not match its spec."""

    host: str
    unreachable: Annotated[str, msgspec.Meta(description="Why it cannot be reached; empty where it was")]
    unreachable_fix: str
    blocked: tuple[Result, ...]
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
    reboot: Annotated[bool | Literal["unknown"], msgspec.Meta(description="Whether apply leads to a reboot")]
    reboot_reasons: tuple[str, ...]
    permission: Annotated[Reboot, msgspec.Meta(description="Whether the spec permits a reboot")]
    last_apply: str
    last_apply_seconds: int | None
    unpredicted: tuple[str, ...]
    no_way_back: tuple[str, ...]
    out: Annotated[
        str, msgspec.Meta(description="That gpuprov has drained it and not given it back; empty where it has")
    ]
    differs: bool
    versions: dict[str, str]
    installed: dict[str, str]
    mig: tuple[Partition, ...]
    unmended: tuple[Result, ...]
    unmanaged: tuple[Unmanaged, ...]


class Summary(msgspec.Struct, kw_only=True):
    """The plan in a sentence, and in numbers of hosts."""

    sentence: str
    hosts: int
    to_apply: int
    nothing_to_do: int
    blocked: int
    jobs_running: int
    unreachable: int
    reboot: int
    reboot_not_permitted: int


class Plan(msgspec.Struct, kw_only=True):
    """The document that `gpuprov plan --json` prints. `seconds`: how long planning took."""

    gpuprov_plan_report: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    exit_code: Code
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None
    summary: Summary
    hosts: tuple[PlannedHost, ...]


def document(plans: Sequence[HostPlan], seconds: float | None = None) -> Plan:
    """Return the document."""
    return Plan(
        exit_code=exit_code(plans),
        seconds=None if seconds is None else round(seconds, 3),
        summary=Summary(sentence=sentence(plans), **counts(plans)),
        hosts=tuple(_host(plan) for plan in plans),
    )


def choose_outcome(plan: HostPlan) -> Outcome:
    """Return whether the host could be reached, and matches its spec with nothing to change."""
    if plan.unreachable:
        return "unreachable"
    return "differs" if plan.differs or not plan.idle else "ok"


def exit_code(plans: Sequence[HostPlan]) -> Code:
    """Return the exit code of plan."""
    return choose_code(map(choose_outcome, plans), "ok")


def as_json(plans: Sequence[HostPlan], seconds: float | None = None) -> str:
    """Return the document as text."""
    return format_document(document(plans, seconds))


def _host(plan: HostPlan) -> PlannedHost:
    by_kind: dict[str, Any] = {section: plan.section(kind) for kind, section in SECTIONS.items()}
    same = {name: getattr(plan, name) for name in PlannedHost.__struct_fields__ if name not in by_kind}
    return PlannedHost(**same | by_kind)
