"""The page of a large fleet: the time to write it, and its size. Each host has all checks; one in forty differs from
its spec.

`python -m benchmarks.page 10000 page.html`, or `... page.html plan` for the page of a plan; the time to open it is
measured in a browser (benchmarks/page_open.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.capabilities.base import Change, Check
from gpuprov.plan import HostPlan
from gpuprov.plan import page as plan_page
from gpuprov.report import html
from gpuprov.report.fleet import Known
from gpuprov.report.page import About
from gpuprov.verify.evaluate import MOMENTS, Result, ResultStatus, caused, registry

RACK = 32
DRIVER = "580.126.09"


def results(count: int) -> Iterator[Result]:
    """Yield results for hosts in racks; each has a value of its own, like a serial number or a temperature."""
    known = registry()
    checks = [check for one in (known.house, *known.capabilities) for check in one.checks if check.moment in MOMENTS]
    for number in range(1, count + 1):
        host = f"gpu{number:05}"
        if number % 97 == 0:
            yield Result(host=host, capability="host", check="host.reachable", status="unreachable",
                         found="no route to host",
                         expected="the host answers", evidence=f"ssh {host} true", fix="look at the machine's "
                                                                                        "console")  # fmt: skip
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
        fix="run apply on it" if bad else "",
        moment=check.moment,
        version=DRIVER if check.id == "nvidia_driver.packages" else "",
    )


def known(count: int) -> dict[str, Known]:
    """Return the rack of each host."""
    return {f"gpu{n:05}": Known(groups=("all", "training", f"rack{n // RACK:03}")) for n in range(1, count + 1)}


def plans(count: int) -> list[HostPlan]:
    """Return plans: most hosts have one upgrade, from four versions; one in forty has nothing to do, others are
    blocked, or cannot be reached."""
    return [_plan(f"gpu{number:05}", number) for number in range(1, count + 1)]


def _plan(host: str, number: int) -> HostPlan:
    if number % 97 == 0:
        return HostPlan(host=host, unreachable="no route to host")
    before = f"570.{number % 4 * 10 + 111}.01"
    idle = HostPlan(
        host=host,
        versions={"nvidia_driver": DRIVER},
        installed={"nvidia_driver": before},
        last_apply=f"2026-01-{number % 28 + 1:02} by gpuprov 0.1.0, run {number:08x}",
    )
    if number % 40 == 0:
        return idle
    packages = [
        f"nvidia-{name}" for name in ("driver-cuda", "kernel-open-dkms", "persistenced", "settings", "modprobe")
    ]
    changes = tuple(Change(kind="package", name=one, before=f"{before}-1", after=f"{DRIVER}-1") for one in packages)
    client = Change(kind="client", name="kubelet.service", after="stopped, and started again")
    busy = Result(
        host=host, capability="nvidia_driver", check="nvidia_driver.clients", status="fail", moment="preflight",
        found=f"python3 (pid {number}) of alice is on GPU {number % 8}", fix="wait for the job, or apply --drain",
    )  # fmt: skip
    return msgspec.structs.replace(
        idle, run={"nvidia_driver": "fails: nvidia_driver.packages"}, changes=(*changes, client), reboot=True,
        reboot_reasons=(f"the loaded module is {before}",), permission="if-needed", differs=True,
        blocked=(busy,) if number % 61 == 0 else (),
    )  # fmt: skip


def main(words: list[str]) -> int:
    count, out = int(words[0]), Path(words[1])
    of_plan = words[2:] == ["plan"]
    rows: list[Any] = plans(count) if of_plan else list(results(count))
    about = About(
        at="2026-01-31 12:00 UTC",
        inventory="inventory.yaml",
        command=f"gpuprov {'plan' if of_plan else 'verify'} inventory.yaml --html page.html",
    )
    started = time.process_time()
    page = (
        plan_page.render(rows, about, "gpuprov apply")
        if of_plan
        else html.render(rows, about=about, known=known(count))
    )
    took = time.process_time() - started
    out.write_text(page, encoding="utf-8")
    sys.stdout.write(
        f"{count} hosts, {len(rows)} {'plans' if of_plan else 'results'}: {len(page.encode()) / 1e6:.1f} MB, "
        f"written in {took:.1f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
