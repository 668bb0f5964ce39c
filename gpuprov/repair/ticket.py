"""The ticket of a host that was given up: the page of the host with what was tried, and the same run as JSON."""

import re
from pathlib import Path
from urllib.parse import quote

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Facts
from gpuprov.host_page.identify import list_gpus, list_rows
from gpuprov.host_page.kernel_log import list_lines
from gpuprov.host_page.page import Tried, render
from gpuprov.host_page.read import ReadHost, read_host
from gpuprov.repair.document import build_document
from gpuprov.repair.model import HostRepair, Repaired
from gpuprov.report.document import as_json
from gpuprov.report.files import check_writable, state_folder, write_atomic
from gpuprov.report.page import About
from gpuprov.verify.verify import Pairs

# Mode of the files: serial numbers and log lines are in them.
PRIVATE = 0o600


def write_tickets(pairs: Pairs, run: Repaired, folder: Path | None, about: About | None = None) -> None:
    """Write the ticket of each host that was given up: its page, of a new reading, and the document of it alone."""
    given_up = {outcome.host: outcome for outcome in run.hosts if outcome.state == "given up"}
    if not given_up:
        return
    place = make_folder(folder)
    for raw, spec in pairs:
        if outcome := given_up.get(raw.name):
            name = re.sub(r"\A\.", "%2E", quote(raw.name, safe="@+"))
            page, document = place / f"{name}-{run.run}.html", place / f"{name}-{run.run}.json"
            outcome.ticket = (str(page), str(document))
            host = read_host(raw, spec)
            if isinstance(host.facts, Facts):
                add_identity(outcome, host, host.facts)
            write_atomic(page, render(host, about, tried=list_tried(outcome)), PRIVATE)
            alone = Repaired(run=run.run, hosts=(outcome,), seconds=run.seconds)
            write_atomic(document, as_json(build_document(alone)) + "\n", PRIVATE)


def make_folder(folder: Path | None) -> Path:
    """Make the folder of the tickets, by default one of this user's. Raises GpuprovError if no file can be written
    there."""
    place = folder or state_folder("tickets")
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        message = f"cannot write tickets to {place}: {error.strerror}"
        raise GpuprovError(message, "--ticket-dir FOLDER names another folder") from error
    check_writable(place / "ticket")
    return place


def add_identity(outcome: HostRepair, host: ReadHost, facts: Facts) -> None:
    """Add what a vendor asks for: what the host is, its GPUs, and the lines of its kernel log."""
    outcome.machine = {row.label: row.value for row in list_rows(host, facts) if not row.unread}
    outcome.cards = tuple(list_gpus(facts)[0])
    outcome.kernel_log = tuple(f"{line.last} {line.text}" for line in list_lines(facts)[0])


def list_tried(outcome: HostRepair) -> Tried:
    """List the findings before the repair, each act with its time, and why it was given up."""
    findings = [
        (finding.check, f"{finding.found} [{finding.action or 'no action'}]") for finding in outcome.plan.findings
    ]
    acts = [(f"{tried.at} {tried.act}", f"{tried.result} ({tried.seconds:g} s)") for tried in outcome.tries]
    scope = outcome.plan.scope
    gpus = [("GPUs", "; ".join(map(str, scope.all)))] if scope.all else []
    end = [("given up", outcome.message), *([("out of service", outcome.out)] if outcome.out else [])]
    return Tried(rows=(*findings, *gpus, *acts, *end))
