"""A plan as one HTML page: the sentence, what is blocked, reboots and GPU clients, then what would change, then every host."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpuprov.capabilities.base import Change
from gpuprov.capabilities.mig.partitions import Part, Partition
from gpuprov.plan.fold import Cut, Group, Set, cuts, groups, sets, settings, sign, told_by_checks
from gpuprov.plan.model import SECTIONS, HostPlan
from gpuprov.plan.summary import counts, sentence
from gpuprov.plan.text import told
from gpuprov.report import page
from gpuprov.report.fleet import Numbers
from gpuprov.report.fold import brief
from gpuprov.verify.unmanaged import lines

OPEN = 3
"""Number of different plans shown expanded."""
SHOWN = 80
"""Maximum length, in characters, of the host names of one plan."""
SHOWN_APART = ("package", "client", "setting", "hold")
TAGS: dict[str, tuple[page.State, str]] = {
    "blocked": ("fail", "!"),
    "unreachable": ("gone", "?"),
    "changes": ("boot", "~"),
    "idle": ("right", "\u2713"),
}
"""State and letter of a host by its plan."""


class Signed(NamedTuple):
    """A change in words, with its sign and the sign's class."""

    sign: str
    kind: str
    text: str


class Diff(NamedTuple):
    """A file's diff: lines with the class of their colour."""

    name: str
    lines: tuple[tuple[str, str], ...]
    added: int
    removed: int


class Drawn(NamedTuple):
    """GPUs with equal partitions, as rows of parts: (title, whether MIG is on, parts with their gaps)."""

    gpus: str
    model: str
    rows: tuple[tuple[str, bool, tuple[Part, ...]], ...]
    known: bool


class Card(NamedTuple):
    """Hosts with one plan, as the template shows them."""

    number: int
    group: Group
    shown: str
    limit: str
    reboot: str
    state: page.State
    letter: str
    packages: tuple[Set, ...]
    moved: int
    mig: tuple[Drawn, ...]
    sections: tuple[tuple[str, tuple[Signed, ...]], ...]
    clients: tuple[str, ...]
    diffs: tuple[Diff, ...]

    @property
    def plan(self) -> HostPlan:
        return self.group.plan


def render(plans: Sequence[HostPlan], about: page.About | None = None, apply: str = "") -> str:
    """Return the page. apply: the command that carries out the plan, for the copy button."""
    cards = [_card(number, group) for number, group in enumerate(groups(plans), 1)]
    changes = [card for card in cards if _has_plan(card)]
    return page.render(
        "plan.html.j2",
        title="gpuprov plan",
        headline=page.Headline(
            state=_state(plans), sentence=sentence(plans).replace(" -> ", " \u2192 "), more=_more(plans)
        ),
        about=about,
        data=_hosts(plans, cards),
        styles=("plan.css", "changes.css"),
        scripts=("plan.js",),
        cards=cards,
        blocked=[card for card in cards if card.group.state == "blocked"],
        out=[card for card in cards if card.plan.out],
        away=[card for card in cards if card.group.state == "unreachable"],
        reboots=[card for card in cards if card.plan.reboot is not False and card.group.state != "unreachable"],
        busy=[card for card in cards if card.clients or card.plan.jobs],
        changes=changes,
        unfolded=len(changes) <= OPEN,
        counts=counts(plans),
        many=len(plans),
        apply=apply,
    )


def _hosts(plans: Sequence[HostPlan], cards: Sequence[Card]) -> dict[str, Any]:
    """Return one row for each host, as plan.js draws it: numbers refer to texts and rows, which many hosts share."""
    texts: Numbers[str] = Numbers()
    rows: Numbers[tuple[tuple[int, ...], ...]] = Numbers()
    of_host = {host: number for number, card in enumerate(cards) for host in card.group.hosts}
    hosts = []
    for plan in plans:
        own = of_host[plan.host]
        told_ = tuple(tuple(texts[one] for one in row) for row in _rows(plan))
        hosts.append((texts[plan.host], own, texts[_gist(plan, cards[own])], rows[told_]))
    shown = [
        (card.state, card.letter, card.group.state, card.shown, card.number if _has_plan(card) else 0) for card in cards
    ]
    return {"texts": list(texts.known), "rows": list(rows.known), "cards": shown, "hosts": hosts}


def _has_plan(card: Card) -> bool:
    """True if the card is listed under "What changes"."""
    return not card.plan.idle and card.group.state != "unreachable"


def _gist(plan: HostPlan, card: Card) -> str:
    if plan.unreachable:
        return "cannot be reached"
    if plan.blocked:
        return f"blocked by {plan.blocked[0].check}"
    return "nothing to do" if plan.idle else card.reboot


def _rows(plan: HostPlan) -> Iterable[tuple[str, str, str, str]]:
    """Yield (title, what, fix, the command that shows it)."""
    if plan.last_apply:
        yield "last apply", plan.last_apply, "", ""
    if plan.out:
        yield "out of service", plan.out, "", ""
    for name, version in plan.versions.items():
        before = plan.installed.get(name, version)
        yield name, f"{before} \u2192 {version}" if before != version else version, "", ""
    for change in plan.section("client"):
        yield "client", f"{change.name}: {change.after}", "", ""
    for one in plan.unmended:
        yield one.check, one.found, one.hint, one.evidence


def _reboot(plan: HostPlan) -> str:
    if plan.reboot is True:
        return "one reboot" if plan.permission == "if-needed" else "a reboot, which needs permission"
    return "perhaps a reboot" if plan.reboot == "unknown" else "no reboot"


def limit(hosts: str) -> str:
    """Return the option for these hosts, quoted for a shell."""
    return f"--limit {shlex.quote(hosts.replace(', ', ','))}"


def _state(plans: Sequence[HostPlan]) -> page.State:
    count = counts(plans)
    if count["blocked"] > count["jobs_running"]:
        return "fail"
    if count["unreachable"]:
        return "gone"
    if count["jobs_running"] or any(plan.idle and plan.differs for plan in plans):
        return "error"
    if not plans:
        return "unproven"
    return "boot" if count["to_apply"] or any(plan.reboot is not False for plan in plans) else "right"


def _more(plans: Sequence[HostPlan]) -> str:
    told_ = "Nothing was changed."
    if any(plan.unpredicted for plan in plans):
        told_ += " Some of it cannot be predicted: each plan below says what, and why."
    return told_


def _card(number: int, group: Group) -> Card:
    plan, where = group.plan, group.where
    state, letter = TAGS[group.state]
    packages = plan.section("package")
    sections = [("settings", tuple(_signed(one) for one in settings(plan)))]
    sections += [
        (section, tuple(_signed(one) for one in told_by_checks(plan, kind)))
        for kind, section in SECTIONS.items()
        if kind not in SHOWN_APART
    ]
    holds = sets(plan.section("hold"))
    sections.append(("holds", tuple(Signed(o.sign, KINDS[o.sign], f"{o.end}: {', '.join(o.names)}") for o in holds)))
    sections.append(("files, without a diff", tuple(_signed(one) for one in plan.diffs if not one.diff)))
    sections.append(("no longer asked for", tuple(Signed("~", "soft", line) for line in lines(plan.left_over))))
    return Card(
        number=number,
        group=group,
        shown=brief(group.hosts, SHOWN),
        limit=limit(where),
        reboot=_reboot(plan),
        state=state,
        letter=letter,
        packages=tuple(sets(packages)),
        moved=len({one.name for one in packages}),
        mig=tuple(_drawn(cut) for cut in cuts(plan.mig)),
        sections=tuple((title, rows) for title, rows in sections if rows),
        clients=tuple(told(one) for one in plan.section("client")),
        diffs=tuple(diff_of(one) for one in plan.diffs if one.diff),
    )


KINDS = {"+": "add", "-": "remove", "~": "change"}


def _signed(change: Change) -> Signed:
    mark = sign(change)
    return Signed(mark, KINDS[mark], told(change))


def diff_of(change: Change) -> Diff:
    """Return the diff of a file, its lines with their colours."""
    lines = tuple((_colour(line), line) for line in change.diff.splitlines())
    kinds = [kind for kind, _ in lines]
    return Diff(change.name, lines, kinds.count("add"), kinds.count("remove"))


def _colour(line: str) -> str:
    if line.startswith(("---", "+++", "@@")):
        return "soft"
    return {"+": "add", "-": "remove"}.get(line[:1], "")


def _drawn(cut: Cut) -> Drawn:
    one = cut.one
    rows = (("before", one.enabled_before, one.before), ("after", one.enabled_after, one.after))
    return Drawn(
        cut.gpus, one.model, tuple((t, on, tuple(_whole(one, on, parts))) for t, on, parts in rows), one.grid > 0
    )


def _whole(one: Partition, on: bool, parts: Iterable[Part]) -> Iterable[Part]:
    """Yield the parts and the unused space between them; a GPU without MIG is one piece."""
    at = 0
    if not on:
        yield Part(start=0, size=max(one.grid, 1), name="whole GPU, MIG disabled")
        return
    for part in parts:
        if part.start > at:
            yield Part(start=at, size=part.start - at, name="")
        yield part
        at = part.start + part.size
    if at < one.grid:
        yield Part(start=at, size=one.grid - at, name="")
