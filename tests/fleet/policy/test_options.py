"""Options of a command are a policy: the same batches, budgets and messages as in its file."""

from __future__ import annotations

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy.decide import broken
from gpuprov.fleet.policy.events import Done, HostEnd, Verdict, Working
from gpuprov.fleet.policy.options import OPTIONS, policy_of
from gpuprov.fleet.policy.planned import Member, Plan, planned
from gpuprov.fleet.policy.state import State
from tests.rows import run_each

HOSTS = [f"gpu{number}" for number in range(1, 8)]
MEMBERS = [Member(host, ("all", "rack1" if host < "gpu3" else "rack2")) for host in HOSTS]


def plan(**options: str) -> Plan:
    return planned(policy_of(**options), MEMBERS, options=OPTIONS)  # type: ignore[arg-type]


@run_each(
    ("canary", "serial", "sizes"),
    [
        ("", "", [7]),
        ("", "3", [3, 3, 1]),
        ("1", "", [1, 6]),
        (" 2 ", "2", [2, 2, 2, 1]),
        ("", "50 %", [3, 3, 1]),
        ("10%", "100%", [1, 6]),
        ("", "1%", [1] * 7),
        ("9", "", [7]),
        ("gpu3, gpu5", "4", [2, 4, 1]),
        ("gpu[35]", "", [2, 5]),
        ("rack1", "", [2, 5]),
        ("rack1,gpu7,", "", [3, 4]),
        (",", "", [7]),
    ],
)
def test_batches(canary: str, serial: str, sizes: list[int]) -> None:
    batches = plan(canary=canary, serial=serial).batches
    assert [len(batch.hosts) for batch in batches] == sizes
    assert sorted(host for batch in batches for host in batch.hosts) == HOSTS
    assert (batches[0].name == "canary") is bool(canary.strip(","))
    if "3" in canary:
        assert batches[0].hosts == ("gpu3", "gpu5")


@run_each(
    ("option", "text", "told"),
    [
        ("serial", "0", "--serial is 0; allowed: a whole number from 1 to 1000000 or a share of them (10%)"),
        ("serial", "-1", "--serial is -1; allowed: a whole number from 1 to 1000000 or a share of them (10%)"),
        ("serial", "0%", '--serial is "0%"; allowed: a whole number from 1 to 1000000 or a share of them (10%)'),
        ("serial", "1.5", '--serial is "1.5"; allowed: a whole number from 1 to 1000000 or a share of them (10%)'),
        ("serial", "9" * 5000, None),
        (
            "serial",
            "9" * 12,
            f"--serial is {'9' * 12}; allowed: a whole number from 1 to 1000000 or a share of them (10%)",
        ),
        ("canary", "0", "--canary is 0; allowed: a whole number from 1 to 1000000 or a share of them (10%)"),
        ("canary", "101%", '--canary is "101%"; allowed: a whole number from 1 to 1000000 or a share of them (10%)'),
        ("canary", "x", '--canary: no host is called "x"; allowed: names of hosts, groups and globs'),
        (
            "max_fail",
            "101%",
            '--max-fail is "101%"; allowed: a whole number from 0 to 1000000 or a share of them (10%)',
        ),
        ("max_fail", "", '--max-fail is ""; allowed: a whole number from 0 to 1000000 or a share of them (10%)'),
    ],
)
def test_an_option_that_cannot_be(option: str, text: str, told: str | None) -> None:
    with pytest.raises(GpuprovError) as raised:
        plan(**{option: text})
    if told:
        assert f"{raised.value.message}; {raised.value.fix}" == told


@run_each(
    ("failed", "max_fail", "stops"),
    [
        (0, "0", False),
        (1, "0", True),
        (1, "1", False),
        (2, "1", True),
        (2, "30%", False),
        (3, "30%", True),
        (7, "100%", False),
    ],
)
def test_max_fail(failed: int, max_fail: str, stops: bool) -> None:
    state = State(plan(max_fail=max_fail))
    state.add(Working(at=0.0, job=1, act="apply", hosts=tuple(HOSTS)))
    verdicts: list[Verdict] = ["again" if n < failed else "waits" if n % 2 else "green" for n in range(len(HOSTS))]
    state.add(Done(at=0.0, job=1, hosts=tuple(map(HostEnd, HOSTS, verdicts))))
    assert broken(state).startswith(f"{failed} failed in all, --max-fail is {max_fail}: gpu") is stops
    assert bool(broken(state)) is stops


def test_a_share_is_of_the_hosts_with_something_to_do() -> None:
    """The others are in the plan where the canary names them."""
    chosen = planned(policy_of(canary="rack1", serial="50%", max_fail="50%"), MEMBERS, total=4, options=OPTIONS)
    assert [len(batch.hosts) for batch in chosen.batches] == [2, 2, 2, 1]
    state = State(chosen)
    state.add(Working(at=0.0, job=1, act="apply", hosts=("gpu3", "gpu4", "gpu5")))
    state.add(Done(at=0.0, job=1, hosts=(HostEnd("gpu3", "failed"), HostEnd("gpu4", "failed"))))
    assert not broken(state)
    state.add(Done(at=0.0, job=1, hosts=(HostEnd("gpu5", "failed"),)))
    assert broken(state) == "3 failed in all, --max-fail is 50%: gpu[3:5]"
