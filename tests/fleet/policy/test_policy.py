"""A policy is judged as a spec is: all at once, with place, value, what is allowed and what was probably meant."""

from __future__ import annotations

from datetime import UTC, datetime

import jsonschema
import msgspec
import pytest
import yaml

from gpuprov.cli.reference import file_schema
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import policy as policies
from gpuprov.fleet.policy import windows
from gpuprov.fleet.policy.planned import Member, planned
from gpuprov.spec.problem import SpecError
from tests.fleet.policy.world import members, policy
from tests.rows import run_each

WHOLE = """\
gpuprov_rollout: 1
domain: rack
canary: {hosts: [gpu0001, "rack2"], soak: 1h}
batches: {size: 10%, soak: 15m}
limits: {at_once: 20, per_domain: 2, jobs: 4, job_size: 25}
budget: {batch: 1, whole: 5%}
repair: {budget: 2}
retry: {attempts: 5, after: 10m}
windows:
  time_zone: Europe/Berlin
  open: ["mon-thu 22:00-05:00", "sat,sun 00:00-24:00"]
  margin: 45m
approvals:
  - {before: canary, by: [alice]}
  - {before: each-batch, by: [alice, bob], count: 2}
drain: {adapter: slurm, timeout: 2d}
prepare: true
reboot: if-needed
"""
WRONG = {
    "batchs: {}": 'p.yaml:2:1: unknown key "batchs"; did you mean "batches"?',
    "budget: {batch: 101%}": 'p.yaml:2:10: budget.batch is "101%"; allowed: a whole number from 0 to 1000000 or a '
    "share of them (10%)",
    "canary: {soak: 30}": 'p.yaml:2:10: canary.soak is 30; allowed: a time such as "30m", "12h"',
    "domain: rack\nbatches: {by_domain: true, size: 2}": "p.yaml:3:28: batches has by_domain and size: 2; a batch "
    "is a failure domain, or has a size",
    'windows: {time_zone: UTC, open: ["mon 10:00-10:00"]}': 'p.yaml:2:34: windows.open[0] is "mon 10:00-10:00", '
    "which begins "
    "and ends at the same time; a later end; a whole day is 00:00-24:00",
    "canary: {hosts: [a], count: 1}": "p.yaml:2:22: canary has hosts and count: 1; name the hosts, or a number of them",
    "repair: {budget: 0}": "p.yaml:2:10: repair.budget is 0; allowed: a whole number from 1 to 1000000 or a share "
    "of them (10%)",
    "repair: {}": "p.yaml:2:1: repair.budget is missing; allowed: a whole number from 1 to 1000000 or a share of "
    "them (10%)",
    "limits: {per_domain: 2}": "p.yaml:2:10: limits.per_domain without a failure domain; "
    "domain: a group, or a host variable such as rack",
    "batches: {size: 0}": "p.yaml:2:11: batches.size is 0; allowed: a whole number from 1 to 1000000 or a share of "
    "them (10%)",
    "batches: {size: 0%}": 'p.yaml:2:11: batches.size is "0%"; allowed: a whole number from 1 to 1000000 or a share '
    "of them (10%)",
    "canary: {count: 0%}": 'p.yaml:2:10: canary.count is "0%"; allowed: a whole number from 0 to 1000000 or a share '
    "of them (10%)",
    "windows: {time_zone: Europe/Berln, open: [mon 22:00-23:00]}": 'p.yaml:2:11: windows.time_zone is "Europe/Berln"; '
    "allowed: a name of the tz database, such as Europe/Berlin or UTC",
    "windows: {time_zone: ../../etc/passwd, open: [mon 22:00-23:00]}": "p.yaml:2:11: windows.time_zone is "
    '"../../etc/passwd"; '
    "allowed: a name of the tz database, such as Europe/Berlin or UTC",
    "windows: {time_zone: UTC, open: [mon 22-23]}": 'p.yaml:2:34: windows.open[0] is "mon 22-23"; '
    'allowed: days and times: "mon-thu 22:00-05:00"',
    "windows: {time_zone: UTC, open: [mon 22:00-23:00], margin: 1h}": "p.yaml:2:52: windows.margin is 1h; no window "
    "is longer; a shorter margin, or longer windows",
    "approvals: [{before: batches, by: [alice, alice], count: 2}]": "p.yaml:2:51: approvals[0].count is 2, by names 1; "
    "name more users, or ask fewer of them",
    "canary: {}\ncanary: {}": 'p.yaml:3:1: "canary" is written twice; the first is in line 2',
    "drain: {adapter: pbs}": 'p.yaml:2:9: drain.adapter is "pbs"; allowed: command, kubernetes, slurm',
}


def test_a_whole_policy_is_read() -> None:
    read = policies.read(WHOLE, "p.yaml")
    assert read.canary.hosts == ("gpu0001", "rack2")
    assert policies.seconds(read.windows.margin if read.windows else "") == 2700
    assert policies.number_of(read.budget.whole, 59) == 2


@run_each(("text", "told"), WRONG.items())
def test_what_is_wrong_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(SpecError) as error:
        policies.read(f"gpuprov_rollout: 1\n{text}\n", "p.yaml")
    assert str(error.value) == told


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(SpecError) as error:
        policies.read("gpuprov_rollout: 1\nbatchs: {}\nprepare: 3\nbudget: {batch: x}\n", "p.yaml")
    assert len(error.value.problems) == 3


@run_each("text", ["", "- 1", "all: {}", "3"])
def test_another_file_is_told_apart(text: str) -> None:
    with pytest.raises(SpecError, match="not a policy of a roll-out"):
        policies.read(text, "p.yaml")


@run_each("text", ["[" * 3000, "a: &a [*a]", "gpuprov_rollout: " + "1" * 5000])
def test_no_text_is_too_much(text: str) -> None:
    with pytest.raises(SpecError):
        policies.read(text, "p.yaml")


def test_the_schema_takes_what_is_read_and_refuses_what_is_not() -> None:
    schema = msgspec.json.decode(file_schema("rollout"))
    jsonschema.validate(yaml.safe_load(WHOLE), schema)
    for text in ("batchs: {}", "budget: {batch: 101%}", "canary: {soak: 30}", "drain: {adapter: pbs}"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(f"gpuprov_rollout: 1\n{text}"), schema)


def test_batches_are_in_the_inventorys_order_behind_the_canary() -> None:
    plan = planned(policy("canary: {hosts: [gpu0004]}\nbatches: {size: 50%}\n"), members(8))
    assert [(one.name, one.hosts) for one in plan.batches] == [
        ("canary", ("gpu0004",)),
        ("batch 1", ("gpu0000", "gpu0001", "gpu0002", "gpu0003")),
        ("batch 2", ("gpu0005", "gpu0006", "gpu0007")),
    ]


def test_a_batch_may_be_a_domain() -> None:
    plan = planned(policy("domain: rack\ncanary: {count: 1}\nbatches: {by_domain: true}\n"), members(6))
    assert [(one.domain, one.hosts) for one in plan.batches[1:]] == [
        ("rack1", ("gpu0001", "gpu0004")),
        ("rack2", ("gpu0002", "gpu0005")),
        ("rack0", ("gpu0003",)),
    ]


def test_a_host_without_a_domain_and_a_canary_of_nobody_are_refused() -> None:
    with pytest.raises(GpuprovError, match="gpu9: in no failure domain"):
        planned(policy("domain: rack\n"), [*members(2), Member("gpu9")])
    with pytest.raises(GpuprovError, match='is called "gpu99"'):
        planned(policy("canary: {hosts: [gpu99]}\n"), members(2))


@run_each(
    ("text", "moment", "is_open"),
    [
        ("fri-mon 23:00-01:00", datetime(2026, 11, 24, 0, 30, tzinfo=UTC), True),  # a Tuesday, from Monday on
        ("fri-mon 23:00-01:00", datetime(2026, 11, 25, 0, 30, tzinfo=UTC), False),
        ("daily 00:00-24:00", datetime(2026, 11, 25, 0, 0, tzinfo=UTC), True),
        ("wed 08:00-09:00", datetime(2026, 11, 25, 9, 0, tzinfo=UTC), False),
        ("wed 08:00-09:00", datetime(2026, 11, 25, 8, 0, tzinfo=UTC), True),
    ],
)
def test_windows_go_over_midnight_and_over_the_end_of_the_week(text: str, moment: datetime, is_open: bool) -> None:
    zone = windows.zone("UTC")
    assert zone
    assert windows.is_open([windows.parsed(text)], zone, moment.timestamp()) is is_open


@run_each(
    ("texts", "is_open"),
    [
        (["sat,sun 00:00-24:00"], True),
        (["daily 22:00-24:00", "daily 00:00-05:00"], True),
        (["daily 22:00-24:00", "daily 00:01-05:00"], False),
        (["sat 00:00-24:00"], False),
    ],
)
def test_a_margin_does_not_end_where_the_next_window_begins(texts: list[str], is_open: bool) -> None:
    zone = windows.zone("UTC")
    assert zone
    saturday = datetime(2026, 11, 28, 23, 30, tzinfo=UTC).timestamp()
    spans = [windows.parsed(text) for text in texts]
    assert windows.is_open(spans, zone, saturday, 45 * 60) is is_open
    assert windows.is_open(spans, zone, saturday)


def test_a_window_follows_the_clock_of_its_zone() -> None:
    zone = windows.zone("America/New_York")
    assert zone
    span = [windows.parsed("daily 02:00-04:00")]
    for day, hour in ((1, 6), (2, 7)):  # the clock goes back on 1 November 2026, after which 02:00 is 07:00 UTC
        assert not windows.is_open(
            span, zone, datetime(2026, 11, day, hour, tzinfo=UTC).timestamp() - 3601 * (day == 2)
        )
    assert windows.is_open(span, zone, datetime(2026, 11, 2, 7, 1, tzinfo=UTC).timestamp())
    assert windows.is_open(span, zone, datetime(2026, 10, 31, 6, 1, tzinfo=UTC).timestamp())
