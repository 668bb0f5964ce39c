"""The sentence that sums a plan up: what an operator reads before anything else."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gpuprov import plan as planning
from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.plan import HostPlan, sentence
from gpuprov.plan.model import Item
from gpuprov.verify.evaluate import Result
from tests import documents
from tests.rows import run_each

SET = tuple(Item(kind="package", name=f"p{n}", before="580.178.04-1", after="570.211.01-1") for n in range(15))
DOWN = HostPlan(
    host="gpu1",
    run={"nvidia_driver": "fails: packages"},
    changes=SET,
    reboot=True,
    permission="if-needed",
    installed={"nvidia_driver": "580.178.04"},
    versions={"nvidia_driver": "570.211.01"},
)
JOB = Result(
    host="gpu1",
    capability="nvidia_driver",
    check="nvidia_driver.clients",
    status="fail",
    found="python3 pid 7",
    moment="preflight",
)
ROOT = replace(JOB, capability="host", check="host.root", found="user id 1", moment="now", gate=True)
IDLE = HostPlan(host="cpu1")
SAID = "driver 580.178.04 -> 570.211.01 (downgrade), 15 packages"


def many(plan: HostPlan, number: int, **more: Any) -> list[HostPlan]:
    return [replace(plan, host=f"{plan.host}{n}", **more) for n in range(number)]


@run_each(
    ("plans", "expected"),
    [
        ([*many(DOWN, 2), *many(DOWN, 2, blocked=(JOB,))], f"4 hosts: {SAID}, one reboot each, 2 have jobs running"),
        ([DOWN], f"1 host: {SAID}, one reboot"),
        ([DOWN, *many(IDLE, 3)], f"1 of 4 hosts: {SAID}, one reboot; 3 with nothing to do"),
        ([*many(DOWN, 2, permission="never")], f"2 hosts: {SAID}, a reboot that needs permission"),
        ([DOWN, replace(DOWN, reboot="unknown")], f"2 hosts: {SAID}, one reboot on 1, perhaps a reboot on 1"),
        (
            [
                DOWN,
                replace(DOWN, installed={}, versions={"nvidia_driver": "570.211.01"}, changes=SET[:3], reboot=False),
            ],
            "2 hosts: driver 580.178.04 -> 570.211.01 (downgrade) on 1, driver 570.211.01 (new) on 1, 3 to 15 "
            "packages, one reboot on 1",
        ),
        (
            [replace(DOWN, installed={"nvidia_driver": "570.9"}, changes=(), reboot=False)],
            "1 host: driver 570.9 -> 570.211.01 (upgrade)",
        ),
        ([replace(DOWN, installed=DOWN.versions, changes=(), reboot=False)], "1 host: roles are applied anew"),
        ([replace(DOWN, blocked=(ROOT,))], "1 host: 1 blocked by host.root"),
        ([DOWN, replace(DOWN, blocked=(ROOT,))], f"1 of 2 hosts: {SAID}, one reboot; 1 blocked by host.root"),
        ([HostPlan(host="a", unreachable="no route"), IDLE], "2 hosts: 1 cannot be reached, 1 with nothing to do"),
        (many(IDLE, 3), "3 hosts: nothing to do"),
        (
            many(replace(IDLE, host="c", unmended=(ROOT,)), 3),
            "3 hosts: nothing to do, host.root fails on c[0:2], and apply cannot fix it",
        ),
        ([replace(IDLE, reboot=True)], "1 host: nothing to do, 1 waits for a reboot"),
        ([], "no host"),
    ],
)
def test_the_sentence(plans: list[HostPlan], expected: str) -> None:
    assert sentence(plans) == expected


def test_instances_are_told_as_gpus_that_are_cut_anew() -> None:
    cut = [
        Partition(index=n, gpu=f"GPU {n} (0{n}:00.0)", model="A100", grid=8, enabled_before=False, enabled_after=True)
        for n in range(8)
    ]
    changes = tuple(
        Item(capability="mig", kind="setting", name=f"{one.gpu}: 1g.10gb at {n}", after="created")
        for one in cut
        for n in range(7)
    )
    plan = HostPlan(host="a", run={"mig": "fails: instances"}, mig=tuple(cut), changes=changes)
    assert sentence([plan]) == "1 host: MIG layout of 8 GPUs"
    told = planning.as_text([plan])
    assert "    ~ GPUs 0, 1, 2, 3, 4, 5, 6, 7: MIG disabled -> no instance\n" in told
    assert "created" not in told, "56 instances are not a list of 56 lines"


def test_json_has_the_sentence_and_the_hosts_with_jobs() -> None:
    plans = [*many(DOWN, 2), *many(DOWN, 2, blocked=(JOB,))]
    told = documents.read_document(planning.build_document(plans))["summary"]
    assert told["sentence"] == sentence(plans)
    assert (told["jobs_running"], told["to_apply"], told["blocked"]) == (2, 2, 2)
