"""A plan as one HTML page: the sentence, what is blocked, reboots and GPU clients, then what would change, then every
host."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpuprov.capabilities.base import Change
from gpuprov.capabilities.mig.partitions import Part, Partition
from gpuprov.host_code.json_members import Json
from gpuprov.plan.fold import DIFF_HEAD, Cut, Group, bare, cuts, groups
from gpuprov.plan.items import by_capability, sizes
from gpuprov.plan.model import HostPlan, Item
from gpuprov.plan.rows import Row, describe, rows
from gpuprov.plan.summary import counts, sentence
from gpuprov.report import page
from gpuprov.report.fleet import Numbers
from gpuprov.report.fold import brief
from gpuprov.report.html import limit
from gpuprov.verify.unmanaged import lines

# Number of different plans shown expanded.
OPEN = 3
# Maximum length, in characters, of the host names of one plan.
SHOWN = 80
# State and letter of a host by its plan.
TAGS: dict[str, tuple[page.State, str]] = {
    "blocked": ("fail", "!"),
    "unreachable": ("gone", "?"),
    "changes": ("boot", "~"),
    "idle": ("right", "\u2713"),
}


class Signed(NamedTuple):
    """A row of changes with its sign and the sign's class."""

    sign: str
    kind: str
    text: str
    # What the text summarises.
    members: tuple[str, ...] = ()


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


class Listed(NamedTuple):
    """The changes of a capability, and why it is applied."""

    capability: str
    why: str
    rows: tuple[Signed, ...]
    mig: tuple[Drawn, ...]
    diffs: tuple[Diff, ...]


class Card(NamedTuple):
    """Hosts with one plan, as the template shows them."""

    number: int
    group: Group
    shown: str
    limit: str
    reboot: str
    state: page.State
    letter: str
    numbers: str
    lists: tuple[Listed, ...]
    left: tuple[str, ...]
    clients: tuple[str, ...]

    @property
    def plan(self) -> HostPlan:
        return self.group.plan


def render(plans: Sequence[HostPlan], about: page.About | None = None, apply: str = "") -> str:
    """Return the page. apply: the command that carries out the plan, for the copy button."""
    cards = [_make_card(number, group) for number, group in enumerate(groups(plans), 1)]
    changes = [card for card in cards if _has_plan(card)]
    return page.render(
        "plan.html.j2",
        title="gpuprov plan",
        headline=page.Headline(
            state=_choose_state(plans), sentence=sentence(plans).replace(" -> ", " \u2192 "), more=_describe_more(plans)
        ),
        about=about,
        data=_make_host_rows(plans, cards),
        styles=("plan.css", "changes.css"),
        scripts=("plan.js",),
        cards=cards,
        blocked=[card for card in cards if card.group.state == "blocked"],
        out=[card for card in cards if card.plan.out],
        away=[card for card in cards if card.group.state == "unreachable"],
        reboots=_merge_cards(
            [card for card in cards if card.plan.reboot is not False and card.group.state != "unreachable"],
            lambda card: (card.reboot, card.plan.reboot_reasons, card.group.state == "blocked"),
        ),
        busy=_merge_cards(
            [card for card in cards if card.clients or card.plan.jobs],
            lambda card: (*map(bare, card.clients), "", *(job.found for job in card.plan.jobs), card.group.state),
        ),
        changes=changes,
        unfolded=len(changes) <= OPEN,
        counts=counts(plans),
        many=len(plans),
        apply=apply,
    )


def _merge_cards(cards: Sequence[Card], alike: Callable[[Card], object]) -> list[Card]:
    """Return the cards, those that are alike as one with all their hosts."""
    merged: dict[object, list[Card]] = {}
    for card in cards:
        merged.setdefault(alike(card), []).append(card)
    return [group[0] if len(group) == 1 else _join_cards(group) for group in merged.values()]


def _join_cards(cards: Sequence[Card]) -> Card:
    first, hosts = cards[0], tuple(host for card in cards for host in card.group.hosts)
    clients = tuple(map(bare, first.clients))
    group = Group(first.plan, hosts)
    return first._replace(group=group, shown=brief(hosts, SHOWN), limit=limit(hosts), clients=clients)


def _make_host_rows(plans: Sequence[HostPlan], cards: Sequence[Card]) -> dict[str, Json]:
    """Return one row for each host, as plan.js draws it: numbers refer to texts and rows, which many hosts share."""
    texts: Numbers[str] = Numbers()
    rows: Numbers[tuple[tuple[int, ...], ...]] = Numbers()
    of_host = {host: number for number, card in enumerate(cards) for host in card.group.hosts}
    hosts = []
    for plan in plans:
        own = of_host[plan.host]
        numbers = tuple(tuple(texts[cell] for cell in row) for row in _list_rows(plan))
        hosts.append((texts[plan.host], own, texts[_summarize_card(plan, cards[own])], rows[numbers]))
    shown = [
        (card.state, card.letter, card.group.state, card.shown, card.number if _has_plan(card) else 0) for card in cards
    ]
    return {"texts": list(texts.known), "rows": list(rows.known), "cards": shown, "hosts": hosts}


def _has_plan(card: Card) -> bool:
    """True if the card is listed under "What changes"."""
    return bool(card.plan.run)


def _summarize_card(plan: HostPlan, card: Card) -> str:
    if plan.unreachable:
        return "cannot be reached"
    if plan.blocked:
        return f"blocked by {plan.blocked[0].check}"
    return "nothing to do" if plan.idle else card.reboot


def _list_rows(plan: HostPlan) -> Iterable[tuple[str, str, str, str]]:
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
    for result in plan.unmended:
        yield result.check, result.found, result.fix, result.evidence


def _reboot(plan: HostPlan) -> str:
    if plan.reboot is True:
        return "one reboot" if plan.permission == "if-needed" else "a reboot, which needs permission"
    return "perhaps a reboot" if plan.reboot == "unknown" else "no reboot"


def _choose_state(plans: Sequence[HostPlan]) -> page.State:
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


def _describe_more(plans: Sequence[HostPlan]) -> str:
    unpredicted = any(plan.unpredicted for plan in plans)
    more = " Some of it cannot be predicted: each plan below says what, and why." if unpredicted else ""
    return f"Nothing was changed.{more}"


def _make_card(number: int, group: Group) -> Card:
    plan = group.plan
    state, letter = TAGS[group.state]
    listed = by_capability(plan)
    return Card(
        number=number,
        group=group,
        shown=brief(group.hosts, SHOWN),
        limit=limit(group.hosts),
        reboot=_reboot(plan),
        state=state,
        letter=letter,
        numbers=", ".join(sizes([[item for items in listed.values() for item in items]])),
        lists=tuple(_list_changes(plan, name, items) for name, items in listed.items()),
        left=tuple(lines(plan.left_over)),
        clients=tuple(describe(client) for client in plan.section("client")),
    )


KINDS = {"+": "add", "-": "remove", "~": "change"}


def _list_changes(plan: HostPlan, name: str, items: Iterable[Item]) -> Listed:
    """Return the changes of a capability: layouts of GPUs as pictures, files by their diffs."""
    listed = list(items)
    return Listed(
        capability=name,
        why=plan.run.get(name, ""),
        rows=tuple(signed(row) for row in rows(item for item in listed if not item.diff and item.kind != "mig")),
        mig=tuple(_draw_layout(cut) for cut in cuts(plan.mig)) if any(item.kind == "mig" for item in listed) else (),
        diffs=tuple(diff_of(item) for item in listed if item.diff),
    )


def signed(row: Row) -> Signed:
    """Return a row for a template, which folds many members."""
    count = f"{len(row.members)} {row.noun}: " if row.noun and len(row.members) > 1 else ""
    return Signed(row.sign, KINDS[row.sign], count + row.text.replace(" -> ", " \u2192 "), row.members)


def diff_of(change: Change) -> Diff:
    """Return the diff of a file, its lines with their colours."""
    lines = tuple((_choose_colour(line), line) for line in change.diff.splitlines() if line not in DIFF_HEAD)
    kinds = [kind for kind, _ in lines]
    return Diff(change.name, lines, kinds.count("add"), kinds.count("remove"))


def _choose_colour(line: str) -> str:
    if line.startswith("@@"):
        return "soft"
    return {"+": "add", "-": "remove"}.get(line[:1], "")


def _draw_layout(cut: Cut) -> Drawn:
    layout = cut.layout
    rows = (("before", layout.enabled_before, layout.before), ("after", layout.enabled_after, layout.after))
    return Drawn(
        cut.gpus,
        layout.model,
        tuple((t, on, tuple(_list_parts(layout, on, parts))) for t, on, parts in rows),
        layout.grid > 0,
    )


def _list_parts(partition: Partition, on: bool, parts: Iterable[Part]) -> Iterable[Part]:
    """Yield the parts and the unused space between them; a GPU without MIG is one piece."""
    at = 0
    if not on:
        yield Part(start=0, size=max(partition.grid, 1), name="whole GPU, MIG disabled")
        return
    for part in parts:
        if part.start > at:
            yield Part(start=at, size=part.start - at, name="")
        yield part
        at = part.start + part.size
    if at < partition.grid:
        yield Part(start=at, size=partition.grid - at, name="")
