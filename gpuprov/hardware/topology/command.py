"""`gpuprov topology`: its results and their output formats."""

import sys
from collections import Counter
from collections.abc import Mapping

from gpuprov.core import terminal
from gpuprov.core.errors import Code, GpuprovError, Outcome, UnreachableError, choose_code, defect
from gpuprov.core.locales import is_plain
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.hardware.topology import document
from gpuprov.hardware.topology.judge import Finding, list_findings
from gpuprov.hardware.topology.model import Hca, Wiring, read_and_told
from gpuprov.hardware.topology.svg import draw_svg
from gpuprov.hardware.topology.text import format_text


def show(gathered: Mapping[str, Facts | UnreachableError], *, as_json: bool) -> tuple[Code, str]:
    """Print each host's wiring. Returns the exit code, and the picture of the last host that could be read (empty:
    none)."""
    outcomes, picture = set[Outcome](), ""
    hosts: dict[str, document.Host] = {}
    texts: list[str] = []
    unread: dict[str, str] = {}
    wirings: dict[str, Wiring] = {}
    for name, facts in gathered.items():
        if isinstance(facts, UnreachableError):
            terminal.progress(str(facts))
            unread[name] = str(facts)
            outcomes.add("unreachable")
            continue
        try:
            wirings[name] = read_and_told(facts)
        except Exception as error:
            unread[name] = report_unread(name, error)
            outcomes.add("not proven")
    crossed = find_crossed(wirings)
    for name, wiring in wirings.items():
        try:
            told_of = list_findings(wiring, crossed.get(name, ()))
            space = terminal.room(sys.stdout)
            data, text = (
                document.build_host(wiring, told_of),
                format_text(name, wiring, told_of, plain=is_plain(), width=space),
            )
            picture = draw_svg(name, wiring, told_of)
        except Exception as error:
            unread[name] = report_unread(name, error)
            outcomes.add("not proven")
            continue
        hosts[name] = data
        texts.append(text)
    if as_json:
        terminal.result(document.format_json(hosts, unread))
    elif texts:
        terminal.result("\n\n".join(texts))
    return choose_code(outcomes, "ok"), picture


def report_unread(name: str, error: Exception) -> str:
    """Print and return why a host's wiring is not known."""
    why = str(error) if isinstance(error, ProbeFailed) else "; ".join(defect("the topology", error))
    terminal.progress(f"{name}: {why}")
    return why


def require_one_host(names: list[str]) -> None:
    """Raise GpuprovError if a picture of several hosts is requested."""
    if len(names) > 1:
        raise GpuprovError(
            f"--svg draws one host, and HOST means {len(names)}: {', '.join(names[:4])}", "name one of them"
        )


# Hosts whose same adapters end in a switch before it counts as that rail's.
LEAST = 3


def find_crossed(wirings: Mapping[str, Wiring]) -> dict[str, list[Finding]]:
    """Find by host the HCAs whose cable ends in the switch of another HCA's rail. A switch is a rail's if more than
    half of its known cables, and at least three, are of one HCA, by PCI address: one that all adapters of a rack share
    is none's."""
    cables = [
        (name, hca, end) for name, wiring in wirings.items() for hca in wiring.hcas for end in wiring.find_ends(hca)
    ]
    users: dict[str, Counter[str]] = {}
    names: dict[str, Hca] = {}
    for _, hca, end in cables:
        users.setdefault(end.switch, Counter())[hca.function.address] += 1
        names.setdefault(hca.function.address, hca)
    crossed: dict[str, list[Finding]] = {}
    for name, hca, end in cables:
        ((owner, count),) = users[end.switch].most_common(1)
        own = hca.function.address
        if own != owner and count >= LEAST and count * 2 > users[end.switch].total():
            message = (
                f"the cable of {hca.name} leads to {end}, where on {count} other hosts that of {names[owner].name} does"
            )
            fix = "compare the cabling plan: two cables of this host may be exchanged"
            crossed.setdefault(name, []).append(Finding(kind="rail", message=message, fix=fix, places=(own,)))
    return crossed
