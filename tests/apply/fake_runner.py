"""An apply without Ansible: each host comes to what a test says, as Ansible's events and the readings after it would
have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from gpuprov.apply import execution
from gpuprov.apply.first_look import first_look
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan import playbook, workspace
from gpuprov.plan.read import Pair, Reading
from gpuprov.verify.evaluate import MOMENTS, Result
from tests.apply import fleet

RESULTS: dict[str, dict[str, str]] = {
    "green": {"status": "pass"},
    "waits": {"status": "fail", "reboot": "the old one runs"},
    "wrong": {"status": "fail"},
    "unproven": {"status": "skip"},
    "failed": {"status": "fail"},
    "unreachable": {"status": "fail"},
    "locked": {"status": "fail"},
}
"""The check of a host, by what the host comes to."""
EVENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "failed": ("runner_on_failed", {"msg": "apt-get ended with 100"}),
    "locked": ("runner_on_failed", {"msg": "locked by run 4711", "gpuprov_locked": {"run": "4711"}}),
    "unreachable": ("runner_on_unreachable", {"msg": "no route to host"}),
}


def pair(name: str, *groups: str) -> Pair:
    raw, spec = fleet.pair(name)
    return msgspec.structs.replace(raw, groups=("all", *groups)), spec


@contextmanager
def running(
    folder: Path, comes_to: Mapping[str, str], idle: Mapping[str, str] | None = None, interrupted: str = ""
) -> Iterator[list[list[str]]]:
    """Yield the batches that were begun. `comes_to`: of each host, else "green". `idle`: hosts on which nothing is to
    be done, and what they are. `interrupted`: the host at which a user ends the run."""
    batches: list[list[str]] = []
    done: set[str] = set()
    idle = idle or {}

    def read(pairs: Sequence[Pair], moments: Any = MOMENTS, each: Any = None, **_given: Any) -> dict[str, Reading]:
        readings = {raw.name: reading(raw.name) for raw, _ in pairs}
        for name, known in readings.items() if each else ():
            each(name, known)
        return readings

    def reading(name: str) -> Reading:
        known = RESULTS[idle.get(name) or (comes_to.get(name, "green") if name in done else "wrong")]
        result = Result(host=name, capability="kernel", check="kernel.state", **known)  # type: ignore[arg-type]
        facts = {"receipt": Output(""), "apply_marker": Output(""), "reboot_reasons": Output("")}
        return Reading(Facts(facts), (result,))

    def look(one: Pair, found: Reading, options: Any, whole: Any = first_look) -> Any:
        outcome = whole(one, found, options)
        if one[0].name in idle:
            outcome.ran, outcome.state = {}, "unchanged"
        return outcome

    def run(_folder: Path, hosts: Sequence[str], _extra: Any, *, on_event: Any, **_given: Any) -> playbook.Ended:
        batches.append([*hosts])
        for host in hosts:
            kind, result = EVENTS.get(comes_to.get(host, "green"), ("runner_on_ok", {"changed": True}))
            data = {"host": host, "role": "kernel", "task": "Write the state", "res": result}
            on_event({"event": kind, "event_data": data})
            if host == interrupted:
                return playbook.Ended("interrupted", 130)
        done.update(hosts)
        red = dict.fromkeys((host for host in hosts if comes_to.get(host) in EVENTS), 1)
        on_event({"event": "playbook_on_stats", "event_data": {"processed": dict.fromkeys(hosts, 1), "failures": red}})
        return playbook.Ended("ended", 2 if red else 0)

    with (
        fleet.project(folder),
        mock.patch.object(execution, "read", read),
        mock.patch.object(execution, "first_look", look),
        mock.patch.object(execution, "leave", return_value={}),
        mock.patch.object(playbook, "run", run),
        mock.patch.object(workspace, "render"),
        mock.patch.object(workspace, "write"),
    ):
        yield batches
