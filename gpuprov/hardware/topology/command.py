"""`gpuprov topology`: its results and their output formats."""

import sys
from collections.abc import Mapping

from gpuprov.core import terminal
from gpuprov.core.errors import Code, GpuprovError, Outcome, UnreachableError, choose_code, defect
from gpuprov.core.locales import is_plain
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.hardware.topology import document
from gpuprov.hardware.topology.judge import list_findings
from gpuprov.hardware.topology.leaves import find_crossed
from gpuprov.hardware.topology.model import Wiring, read_and_told
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
