"""The page itself: one file that loads nothing, readable without JavaScript; everything from the host is escaped."""

from base64 import b64encode
from collections.abc import Sequence

import msgspec

from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.gpus import mig
from gpuprov.hardware.topology import read as read_wiring
from gpuprov.hardware.topology.judge import list_findings
from gpuprov.hardware.topology.text import format_text
from gpuprov.host_page.changes import Changes, list_changes
from gpuprov.host_page.identify import list_gpus, list_rows
from gpuprov.host_page.kernel_log import list_lines
from gpuprov.host_page.read import ReadHost
from gpuprov.report import health_page, page
from gpuprov.report.folded import EVERY
from gpuprov.report.html import STATES, TITLES
from gpuprov.report.known import known
from gpuprov.report.page import About, Headline, State
from gpuprov.report.states import LETTERS, state
from gpuprov.verify.evaluate import FAILING, Result
from gpuprov.verify.fitness import CAPABILITY, Fitness, fitness, severity
from gpuprov.verify.verify import next_boot, verdict


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture with the same in words."""

    title: str
    source: str
    text: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that follows from nothing else, with the checks that fail only because of it."""

    result: Result
    followers: tuple[str, ...]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The findings and acts of a repair: a label and a text each."""

    rows: tuple[tuple[str, str], ...]


def render(host: ReadHost, about: About | None = None, tried: Tried | None = None) -> str:
    """Return the page. The same readings give the same text. tried: of a repair that was given up."""
    own = list_of_spec(host)
    facts = host.facts if isinstance(host.facts, Facts) else None
    gpus, missing = list_gpus(facts) if facts else ([], "")
    lines, log = list_lines(facts) if facts else ([], "")
    beside = known(host.raw, facts)
    return page.render(
        "host.html.j2",
        title="gpuprov repair" if tried else "gpuprov show",
        tried=tried,
        headline=judge(host),
        about=about,
        styles=("fleet.css", "host.css"),
        causes=list_causes(host.results),
        unproven=[result for result in host.results if result.status == "skip"],
        passed=[result for result in host.results if result.status == "pass"],
        rows=list_rows(host, facts) if facts else [],
        gpus=gpus,
        missing=missing,
        pictures=list_pictures(beside.pictures, facts) if facts else [],
        versions=beside.versions,
        changes=list_changes(host, facts, own) if facts else Changes(),
        lines=lines,
        log=log,
        read=facts is not None,
        states=STATES,
        titles=TITLES,
        letters=LETTERS,
    )


FITNESS = {"yes": "fit for work", "not proven": "not proven to be fit for work"}
SPEC = {
    "matches": "matches its spec",
    "differs": "differs from its spec",
    "not proven": "is not proven to match its spec",
}


def list_of_spec(host: ReadHost) -> list[Result]:
    """List the results of what the spec asks for: without those of `health` where it has no such block."""
    return [
        result for result in host.results if result.capability != CAPABILITY or CAPABILITY in host.spec.capabilities
    ]


def judge(host: ReadHost) -> Headline:
    """Return the verdict: fitness for work, the spec, and the next boot."""
    own = list_of_spec(host)
    (fit,) = fitness(host.results) or (Fitness(host=host.raw.name, fit="not proven"),)
    states: tuple[State, State] = health_page.state(fit), state(own)
    gone = states[0] == "gone"
    own_verdict = verdict(own)
    joined = "; it" if fit.fit != "yes" else ", and" if own_verdict == "matches" else ", but"
    boot = next_boot(own).get(host.raw.name)
    after = f"Next boot: {boot.shorten()}." if boot and not gone else ""
    return Headline(
        state=min(states, key=list(LETTERS).index),
        sentence=f"{host.raw.name} cannot be reached"
        if gone
        else f"{host.raw.name} is {FITNESS.get(fit.fit, fit.sentence)}{joined} {SPEC[own_verdict]}",
        more=after,
    )


def list_causes(results: Sequence[Result]) -> list[Cause]:
    """List the causes, the worst first."""
    followers: dict[str, list[str]] = {}
    for result in results:
        if result.follows and result.status in FAILING:
            followers.setdefault(result.follows, []).append(result.check)
    roots = [result for result in results if result.status in ("unreachable", *FAILING) and not result.follows]
    roots.sort(key=lambda result: (EVERY.index(result.status), -severity(result)))
    return [Cause(result=result, followers=tuple(followers.get(result.check, ()))) for result in roots]


def list_pictures(pictures: Sequence[tuple[str, str]], facts: Facts) -> list[Picture]:
    """List pictures with the same in words."""
    texts = {"Topology": _describe_wiring, "MIG": _describe_mig}
    return [
        Picture(
            title=title,
            source=f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}",
            text=texts[title](facts) if title in texts else "",
        )
        for title, svg in pictures
    ]


def _describe_wiring(facts: Facts) -> str:
    wiring = read_wiring(facts)
    return format_text("topology", wiring, list_findings(wiring), plain=False)


def _describe_mig(facts: Facts) -> str:
    try:
        gpus = facts.get(mig.STATE).gpus
    except ProbeFailed:
        return ""
    return "\n".join(
        f"GPU {gpu.index} {gpu.name}: "
        + (
            ", ".join(f"{held.profile} at {held.start}" for held in sorted(gpu.instances, key=lambda held: held.start))
            or "none"
        )
        + f" ({counted(len(gpu.instances), 'GPU instance')})"
        for gpu in gpus
        if gpu.current
    )
