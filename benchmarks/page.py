"""The page of a large fleet: how long it takes to write, and how large it is. Each host has all checks; one in forty is not as wanted.

`python -m benchmarks.page 10000 page.html`; how long it takes to open is asked of a browser (tests/report/test_browser.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gpuprov.capabilities.base import Check
from gpuprov.report import html
from gpuprov.report.fleet import Known
from gpuprov.report.page import About
from gpuprov.verify.evaluate import MOMENTS, Result, ResultStatus, caused, registry

RACK = 32
DRIVER = "580.126.09"


def results(count: int) -> Iterator[Result]:
    """Hosts in racks; a figure of its own on each, as a host with a serial number or a temperature has it."""
    known = registry()
    checks = [check for one in (known.house, *known.capabilities) for check in one.checks if check.moment in MOMENTS]
    for number in range(1, count + 1):
        host = f"gpu{number:05}"
        if number % 97 == 0:
            yield Result(host=host, capability="host", check="host.reachable", status="unreachable", found="no route to host",
                         expected="the host answers", evidence=f"ssh {host} true", hint="look at the machine's console")  # fmt: skip
            continue
        failing = {"nvidia_driver.loaded", "mig.mode", "mig.instances", "mps.daemons"} if number % 61 == 0 else set()
        failing |= {"fabric_manager.version"} if number % 150 == 0 else set()
        failing |= {"kernel.command_line"} if number % 211 == 0 else set()
        yield from caused([_result(host, number, check, bad=check.id in failing) for check in checks])


def _result(host: str, number: int, check: Check, *, bad: bool) -> Result:
    own = f"{check.id} as the spec has it, version {DRIVER}"
    if check.id in ("kernel.running", "nvidia_driver.cuda", "dcgm.gpus"):
        own = f"serial {number * 7919 % 1_000_003}, {number % 40 + 30} degrees"
    status: ResultStatus = "fail" if bad else "skip" if check.id.startswith("rdma.efa") else "pass"
    return Result(
        host=host,
        capability=check.capability,
        check=check.id,
        fields=check.fields,
        status=status,
        expected="as the spec has it",
        found="550.163.01 is there" if bad else own,
        evidence=check.evidence,
        hint="run apply on it" if bad else "",
        moment=check.moment,
        version=DRIVER if check.id == "nvidia_driver.packages" else "",
    )


def known(count: int) -> dict[str, Known]:
    """The rack of each host."""
    return {f"gpu{n:05}": Known(groups=("all", "training", f"rack{n // RACK:03}")) for n in range(1, count + 1)}


def main(words: list[str]) -> int:
    count, out = int(words[0]), Path(words[1])
    rows = list(results(count))
    about = About(
        at="2026-01-31 12:00 UTC", inventory="inventory.yaml", command="gpuprov verify inventory.yaml --html page.html"
    )
    started = time.process_time()
    page = html.render(rows, about=about, known=known(count))
    took = time.process_time() - started
    out.write_text(page, encoding="utf-8")
    sys.stdout.write(
        f"{count} hosts, {len(rows)} results: {len(page.encode()) / 1e6:.1f} MB, written in {took:.1f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
