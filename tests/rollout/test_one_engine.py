"""The options of apply and a policy's file that says the same: one order of hosts, one end, one reason, in both
engines."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov import apply as applying
from gpuprov.fleet.policy.options import OPTIONS
from gpuprov.jobs.model import Fleet, Host, digest_of
from tests.apply import fake_runner
from tests.rollout import made, stub

HOSTS = 12
Course = tuple[list[str], str, int]
"""The hosts in the order in which they were begun, why it stopped, and how many were not begun."""
ROWS: list[tuple[dict[str, str], str, dict[str, str], str]] = [
    ({}, "", {}, ""),
    ({"serial": "5"}, "batches: {size: 5}", {}, ""),
    ({"serial": "25%"}, "batches: {size: 25%}", {"gpu0004": "failed"}, "1 failed in all, MAX is 0: gpu0004"),
    ({"serial": "1%"}, "batches: {size: 1%}", {"gpu0001": "locked"}, "1 failed in all, MAX is 0: gpu0001"),
    ({"canary": "2"}, "canary: {count: 2}", {"gpu0001": "failed"}, "the canary gpu0001 is not green"),
    ({"canary": "25%", "serial": "4"}, "canary: {count: 25%}\nbatches: {size: 4}", {}, ""),
    ({"canary": "rack2"}, "canary: {hosts: [rack2]}", {"gpu0006": "wrong"}, "the canary gpu0006 is not green"),
    ({"canary": "rack2"}, "canary: {hosts: [rack2]}", {"gpu0006": "unproven"}, "the canary gpu0006 is not green"),
    ({"canary": "gpu000[37],rack1"}, 'canary: {hosts: ["gpu000[37]", rack1]}', {}, ""),
    (
        {"canary": "gpu0007"},
        "canary: {hosts: [gpu0007]}",
        {"gpu0007": "waits"},
        "the canary gpu0007 waits for a reboot that is not permitted (REBOOT permits it)",
    ),
    ({"serial": "6", "max_fail": "1"}, "batches: {size: 6}\nbudget: {whole: 1}", {"gpu0002": "unreachable"}, ""),
    (
        {"serial": "4", "max_fail": "10%"},
        "batches: {size: 4}\nbudget: {whole: 10%}",
        {"gpu0002": "failed", "gpu0003": "waits", "gpu0006": "unreachable"},
        "2 failed in all, MAX is 10%: gpu0002, gpu0006",
    ),
    ({"serial": "4"}, "batches: {size: 4}", {"gpu0000": "waits", "gpu0011": "failed"}, ""),
]


@pytest.fixture(autouse=True)
def _in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of the roll-out are done here and at once, and its fleet has racks of three hosts as groups."""
    monkeypatch.setattr("gpuprov.rollout.jobs.subprocess.Popen", AtOnce)
    monkeypatch.setattr("gpuprov.rollout.addresses._list_numbers", lambda _host, _port: ())
    monkeypatch.setenv("STUB", str(tmp_path / "rollout"))
    monkeypatch.setattr("gpuprov.plan.workspace.place", lambda: tmp_path)  # what killed runs left is of the machine
    monkeypatch.setattr("gpuprov.apply.execution.place", lambda: tmp_path)
    hosts = tuple(Host(name=name(n), groups=("all", f"rack{n // 3}"), spec="one") for n in range(HOSTS))
    racked = Fleet(specs={"one": {"nouveau": {}}}, groups={"all": ()}, hosts=hosts)
    fleet = msgspec.structs.replace(racked, digest=digest_of(racked))
    monkeypatch.setattr(made, "fleet", lambda _count: fleet)


class AtOnce:
    """A process that has ended when it was started."""

    def __init__(self, words: list[str], **_given: Any) -> None:
        before, sys.argv = sys.argv, words[1:]
        try:
            with suppress(SystemExit):
                stub.main()
        finally:
            sys.argv = before

    def poll(self) -> int:
        return 0


def name(number: int) -> str:
    return f"gpu{number:04}"


def rolled_out(folder: Path, text: str, comes_to: dict[str, str]) -> Course:
    made.begun(folder, HOSTS, f"{text}\nretry: {{attempts: 1}}\n", {host: [word] for host, word in comes_to.items()})
    state = made.carry_out(folder)
    begun = [host for word, _, host, _ in made.logged(folder) if word == "begin"]
    return begun, state.stopped, HOSTS - len(begun)


def applied(folder: Path, options: dict[str, str], comes_to: dict[str, str]) -> Course:
    folder.mkdir()
    pairs = [fake_runner.pair(name(n), f"rack{n // 3}") for n in range(HOSTS)]
    with fake_runner.running(folder, comes_to) as batches:
        given = applying.Options.of({"yes": True, "log_dir": folder / "log", "checkpoint": False, **options})
        ended = applying.apply(pairs, given)
    why, _, left = ended.stopped.rpartition("; ")
    begun = [host for batch in batches for host in batch]
    assert left in ("", f"{HOSTS - len(begun)} not started")
    return begun, why, HOSTS - len(begun)


def compared(folder: Path, options: dict[str, str], text: str, comes_to: dict[str, str]) -> str:
    """Why both stopped, where hosts were left; nobody is left to stop for after the last batch."""
    budget = "" if "budget" in text else "\nbudget: {batch: 100%}"
    begun, why, left = rolled_out(
        folder / "rollout", text.replace("budget: {", "budget: {batch: 100%, ") + budget, comes_to
    )
    why = why.replace("budget.whole", "MAX").replace("reboot: if-needed", "REBOOT")
    in_memory, stopped, not_started = applied(folder / "apply", options, comes_to)
    stopped = stopped.replace(OPTIONS["budget.whole"], "MAX").replace(OPTIONS["reboot: if-needed"], "REBOOT")
    assert (in_memory, stopped, not_started) == (begun, why if left else "", left)
    return stopped


@pytest.mark.install
@pytest.mark.parametrize(("options", "text", "comes_to", "why"), ROWS)
def test_both_begin_and_stop_alike(
    tmp_path: Path, options: dict[str, str], text: str, comes_to: dict[str, str], why: str
) -> None:
    assert compared(tmp_path, options, text, comes_to) == why


@pytest.mark.install
@pytest.mark.parametrize("seed", range(8))
def test_both_begin_and_stop_alike_by_chance(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    canary, by_hosts = chance.choice(
        [("", ""), ("1", ""), ("30%", ""), ("rack1", "[rack1]"), ("gpu*5,rack3", '["gpu*5", rack3]')]
    )
    size, budget = chance.choice(["1", "5", "40%", "100%"]), chance.choice(["0", "2", "20%", "100%"])
    text = f"batches: {{size: {size}}}\nbudget: {{whole: {budget}}}\n"
    text += f"canary: {{hosts: {by_hosts}}}\n" if by_hosts else f"canary: {{count: {canary}}}\n" if canary else ""
    words = ["green"] * chance.choice([10, 60]) + ["waits", "wrong", "unproven", "failed", "unreachable", "locked"]
    comes_to = {name(n): chance.choice(words) for n in range(HOSTS)}
    compared(tmp_path, {"canary": canary, "serial": size, "max_fail": budget}, text, comes_to)
