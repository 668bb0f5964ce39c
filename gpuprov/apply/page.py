"""The outcome of an apply as one HTML page: what was not done, what waits for a reboot, what changed, then verify."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.apply.fates import Fate, fates, in_numbers, timeless
from gpuprov.apply.model import DONE, ApplyRun, Became, HostOutcome, State
from gpuprov.apply.text import summary
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.page import Diff, Signed, diff_of, signed
from gpuprov.plan.rows import rows
from gpuprov.report import html, page
from gpuprov.report.fleet import Known
from gpuprov.report.page import About, Headline
from gpuprov.report.states import matching
from gpuprov.report.text import unproven
from gpuprov.verify.evaluate import Result, ResultStatus

STATES: dict[State, tuple[page.State, str]] = {
    "failed": ("fail", "F"),
    "blocked": ("fail", "!"),
    "locked": ("error", "E"),
    "unreachable": ("gone", "U"),
    "not-started": ("unproven", "?"),
    "prepared": ("boot", "P"),
    "changed": ("right", "~"),
    "unchanged": ("right", "\u2713"),
}
# Statuses, beside the results of verify, of hosts that were not done; other hosts count as failed.
STATUSES: dict[State, ResultStatus] = {"unreachable": "unreachable", "not-started": "skip"}


# Colours of outcomes.
FATES: dict[Became, page.State] = {
    "done": "right",
    "unforeseen": "right",
    "not needed": "unproven",
    "not done": "fail",
    "taken back": "error",
    "unknown": "error",
}


class Listed(NamedTuple):
    """Changes with the same outcome."""

    fate: Fate
    kind: page.State
    rows: tuple[Signed, ...]
    diffs: tuple[Diff, ...]


class Tasks(NamedTuple):
    """Hosts on which the same Ansible tasks changed something: (role, why it ran, tasks)."""

    hosts: str
    many: int
    roles: tuple[tuple[str, str, tuple[str, ...]], ...]


class Card(NamedTuple):
    """Hosts with the same text. numbers: how much was done. tasks: by what changed something, each with its hosts."""

    hosts: str
    many: int
    limit: str
    state: page.State
    letter: str
    first: HostOutcome
    numbers: str
    lists: tuple[Listed, ...]
    tasks: tuple[Tasks, ...]


def render(
    run: ApplyRun, about: About | None = None, known: Mapping[str, Known] | None = None, *, verbose: bool = False
) -> str:
    """Return the page. The same run always gives the same text."""
    return html.render(
        results(run),
        "gpuprov apply",
        verbose=verbose,
        about=about,
        known=known,
        template="apply.html.j2",
        styles=("changes.css",),
        page_headline=headline(run),
        run=run,
        undone=_group_cards(
            [host for host in run.hosts if host.state not in DONE],
            lambda host: [host.state, host.task, host.message, host.left, host.fix, host.origin],
        ),
        returned=_group_cards(
            [host for host in run.hosts if host.rolled_back], lambda host: [host.rolled_back, host.state]
        ),
        warned=_group_cards([host for host in run.hosts if host.warnings], lambda host: [host.warnings, host.state]),
        waiting=_group_cards(
            [host for host in run.hosts if host.reboot], lambda host: [host.reboot, host.reboot_permitted]
        ),
        changed=_group_cards(
            [host for host in run.hosts if host.changed or host.items],
            lambda host: [host.state, timeless(host.items), host.ran if host.changed else ()],
        ),
        left_out=_group_cards([host for host in run.hosts if host.skipped], lambda host: [host.skipped]),
    )


def results(run: ApplyRun) -> list[Result]:
    """Return verify's results, and a result for each host that was not done: an empty page is never green."""
    rows = []
    for host in run.hosts:
        if host.state not in DONE:
            rows.append(
                Result(
                    host=host.host,
                    capability="apply",
                    check="apply.done",
                    status=STATUSES.get(host.state, "fail"),
                    expected="apply succeeds",
                    found=": ".join(filter(None, (host.state, host.task, host.message))),
                    fix=host.advice,
                )
            )
        rows += host.verified
    return rows


def headline(run: ApplyRun) -> Headline:
    """Return the outcome of the run as a sentence, the worst first; then the summary that the terminal shows."""
    count, more = len(run.hosts), f"{summary(run)}."
    undone = [host for host in run.hosts if host.state not in DONE]
    wrong = [host for host in run.hosts if host.state in DONE and host.failing and not host.reboot]
    waiting = [host for host in run.hosts if host.reboot]
    if run.interrupted:
        return Headline(state="error", sentence="Interrupted: run it again to complete it", more=more)
    if not run.hosts:
        return Headline(state="unproven", sentence="Nothing was applied", more=more)
    if undone:
        away = all(host.state == "unreachable" for host in undone)
        not_as = "is not as its spec says" if len(undone) == 1 else "are not as their specs say"
        what = "could not be reached" if away else not_as
        return Headline(state="gone" if away else "fail", sentence=f"{_make_part(undone, count)} {what}", more=more)
    if run.act == "prepare":
        return Headline(state="boot", sentence="Prepared: nothing in service was changed", more=more)
    if wrong:
        return Headline(
            state="fail", sentence=f"Applied, but verify is not green on {_make_part(wrong, count)}", more=more
        )
    if waiting:
        return Headline(
            state="boot",
            sentence=f"{_make_part(waiting, count)} wait{'s' * (len(waiting) == 1)} for a reboot",
            more=more,
        )
    proven = [host for host in run.hosts if host.verified]
    if not proven:
        return Headline(state="unproven", sentence="Applied, and nothing was verified", more=more)
    open_ = sum(len(host.unproven) for host in run.hosts)
    subject = matching(run.hosts[0].host if count == 1 else "", count)
    gap = f", but {unproven(open_)}" if open_ else ""
    return Headline(state="part" if open_ else "right", sentence=f"{subject}{gap}", more=more)


def _make_part(some: Sequence[HostOutcome], count: int) -> str:
    if len(some) <= 3:
        return names(host.host for host in some)
    return f"{len(some):,} of {count:,} hosts"


def _group_cards(outcomes: Sequence[HostOutcome], alike: Callable[[HostOutcome], object]) -> list[Card]:
    """Return hosts with the same text as one card; most hosts first within a state."""
    groups: dict[bytes, list[HostOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(msgspec.json.encode(alike(outcome)), []).append(outcome)
    return sorted(
        (_make_card(group) for group in groups.values()),
        key=lambda card: (list(STATES).index(card.first.state), -card.many),
    )


def _make_card(group: Sequence[HostOutcome]) -> Card:
    first, where = group[0], names(host.host for host in group)
    state, letter = STATES[first.state]
    items = timeless(first.items) if len(group) > 1 else first.items
    lists = tuple(_list_items(fate) for fate in fates(items, first.ran))
    return Card(
        where,
        len(group),
        html.limit([host.host for host in group]),
        state,
        letter,
        first,
        in_numbers(group[:1]),
        lists,
        tuple(_list_tasks(group)),
    )


def _list_items(fate: Fate) -> Listed:
    return Listed(
        fate,
        "boot" if fate.waits else FATES[fate.state],
        tuple(signed(row) for row in rows(item for item in fate.items if not item.diff)),
        tuple(diff_of(item) for item in fate.items if item.diff),
    )


def _list_tasks(group: Sequence[HostOutcome]) -> Iterator[Tasks]:
    alike: dict[tuple[str, ...], list[HostOutcome]] = {}
    for host in group:
        if host.changed:
            alike.setdefault(tuple(host.changed), []).append(host)
    for changed, hosts in alike.items():
        roles: dict[str, list[str]] = {}
        for task in changed:
            role, _, name = task.partition(": ")
            roles.setdefault(role if name else "", []).append(name or task)
        ran = hosts[0].ran
        per_role = tuple((role, ran.get(role, ""), tuple(tasks)) for role, tasks in roles.items())
        yield Tasks(names(host.host for host in hosts), len(hosts), per_role)
