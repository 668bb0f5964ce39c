"""What would be done on a host, and which GPUs a reset takes, by NVIDIA's table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpuprov.capabilities.health import watched
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.hardware.topology.fabric import UNIT
from gpuprov.repair.hosts import select_services
from gpuprov.repair.model import HostPlan, Options, Scope
from gpuprov.repair.planning import MOST, WINDOW, plan_host
from gpuprov.repair.scope import EARLIER, UNMANAGED, find_scope
from gpuprov.repair.text import format_plan
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import Result, evaluate
from tests.capabilities import mig_host
from tests.capabilities.asking import daemon, facts, good, units
from tests.capabilities.health_host import smi
from tests.hardware.topology.machines import A100, H100, L40S, V100, Machine, hgx_h100
from tests.repair.fake_hosts import OPTIONS, finding, passed
from tests.rows import run_each

DEAD: dict[str, Output | str] = {
    "fabric_manager": daemon("535.261.03", ""),
    "units": units(fabric=("failed", "enabled")),
}
SECOND = "0000:11:00.0"


def machine(
    model: str, links: int, pairs: tuple[tuple[int, int], ...] | None = None, *, switch: bool = False
) -> Machine:
    """Four GPUs, the second of which is SECOND."""
    made = Machine(sockets={0: 0})
    for number in range(4):
        made.gpu(f"pci0000:0{number}/0000:0{number}:01.0/0000:1{number}:00.0", model, 0)
    if links:
        made.joined(links, pairs=pairs)
    if switch:
        made.nvswitch("pci0000:00/0000:00:1c.0/0000:05:00.0", 0)
    return made


def read(made: Machine, **changed: Output | str) -> Facts:
    return facts(**{**good(), **made.texts, "machine": "kind|none\n", "repairs": "", **changed})


def asks(check: str = "health.recovery", devices: tuple[str, ...] = (SECOND,), action: str = "reset") -> Result:
    return Result(host="gpu1", capability="health", check=check, status="fail", action=action, devices=devices)


RING = ((0, 1), (1, 2), (2, 3))
ROWS: list[tuple[str, Callable[[], Machine], dict[str, Output | str], list[int], str]] = [
    # what it is; the machine; what differs; indices of GPUs beside the second; why
    ("no NVLinks", lambda: machine(L40S, 0), {}, [], ""),
    ("NVLinks of Hopper", lambda: machine(H100, 18, ((0, 1), (2, 3))), {}, [], ""),
    ("NVLinks of Volta, in pairs", lambda: machine(V100, 2, ((0, 1), (2, 3))), {}, [0], EARLIER),
    ("NVLinks of Volta, in a row", lambda: machine(V100, 2, RING), {}, [0, 2, 3], EARLIER),
    ("NVSwitch of Ampere, managed", lambda: machine(A100, 12, switch=True), {}, [], ""),
    ("NVSwitch of Ampere, its manager dead", lambda: machine(A100, 12, switch=True), DEAD, [0, 2, 3], UNMANAGED),
    ("NVSwitch of Volta", lambda: machine(V100, 6, switch=True), {}, [0, 2, 3], EARLIER),
    ("a chip that the catalogue lacks", lambda: machine("ffff", 2, ((0, 1),)), {}, [0], EARLIER),
]


@run_each(("made", "changed", "together", "why"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_gpus_that_go_together(
    made: Callable[[], Machine], changed: dict[str, Output | str], together: list[int], why: str
) -> None:
    scope = find_scope([asks(), asks("health.pcie_links", (), "drain")], read(made(), **changed))
    assert [gpu.address for gpu in scope.gpus] == [SECOND]
    assert [gpu.index for gpu in scope.together] == together
    assert (scope.why, scope.whole) == (why, False)


@run_each(
    "found",
    [asks("health.fabric"), asks("health.sxid", ()), asks("health.driver_log", ()), asks(devices=("0000:99:00.0",))],
    ids=["fabric", "switch", "no GPU named", "no GPU of the host"],
)
def test_all_gpus_where_it_is_the_fabric_or_nobody_knows_which(found: Result) -> None:
    scope = find_scope([asks(), found], read(hgx_h100()))
    assert (len(scope.gpus), scope.whole) == (8, True)


def test_fabric_manager_stays_where_it_brings_the_links_back() -> None:
    known = ["dcgm.service", UNIT]
    plan = HostPlan(host="gpu1", step="reset")
    assert select_services(known, plan) == ["dcgm.service"]
    plan.scope = Scope(whole=True)
    assert select_services(known, plan) == known


def planned(*results: Result, options: Options = OPTIONS, record: str = "", ahead: int = 0, **blocks: Any) -> HostPlan:
    """ahead: how many seconds the host's clock is ahead of this machine's."""
    spec = HostSpec(name="gpu1", capabilities=blocks)
    clock = f"{int(time.time()) + ahead}\n"
    return plan_host(spec, results, read(machine(H100, 18), repairs=record, clock=clock), options)


def test_the_steps_of_health() -> None:
    assert planned(passed("gpu1")).step == "nothing"
    assert planned(passed("gpu1"), asks()).step == "reset"
    assert planned(asks(), asks("health.xid", action="reboot")).step == "reboot"
    for action, fix in (("drain", "machine"), ("return", "vendor"), ("update", "nvidia_driver"), ("restart", "apply")):
        plan = (
            planned(asks(), asks("health.xid", action=action)) if action != "restart" else planned(asks(action=action))
        )
        assert plan.step == "ticket" or (action == "update" and plan.step == "reset"), action
        assert plan.step == "reset" or fix in plan.fix
    skip = Result(host="gpu1", capability="health", check="health.xid", status="skip", found="no log")
    assert planned(passed("gpu1"), skip).step == "not proven"
    gone = Result(host="gpu1", capability="host", check="host.reachable", status="unreachable", found="no route")
    plan = plan_host(HostSpec(name="gpu1"), [gone], None, OPTIONS)
    assert (plan.step, plan.message) == ("unreachable", "no route")


def test_mig_devices_that_nothing_brings_back_are_named() -> None:
    cut = mig_host.gpu(("1g.10gb", 0, (1,)), ("1g.10gb", 1, (1,)), index=1) | {"address": SECOND}
    state = mig_host.state(mig_host.gpu(on=False), cut)
    made = read(machine(H100, 18), mig=state)
    plan = plan_host(HostSpec(name="gpu1"), [asks()], made, OPTIONS)
    assert plan.loses == ("GPU 1: 2 GPU instances",)
    assert "no mig block brings them back" in format_plan(plan)
    assert plan_host(HostSpec(name="gpu1", capabilities={"mig": Mig()}), [asks()], made, OPTIONS).loses == ()


def test_a_reboot_needs_the_permission_of_the_spec_or_of_the_run() -> None:
    bare = Options()
    plan = planned(asks(action="reboot"), options=bare)
    assert (plan.step, plan.fix) == ("ticket", "permit one: --reboot, or reboot: if-needed in the spec")
    assert planned(asks(), options=bare).reboot is False
    assert "none is permitted (--reboot" in format_plan(planned(asks(), options=bare))
    permitted = plan_host(
        HostSpec(name="gpu1", reboot="if-needed"), [asks(action="reboot")], read(machine(H100, 18)), bare
    )
    assert (permitted.step, permitted.reboot) == ("reboot", True)


def test_who_drains() -> None:
    slurm: dict[str, Any] = {"slurm": object()}
    assert planned(asks()).drain == ""
    assert planned(asks(), **slurm).drain == "slurm"
    assert planned(asks(), options=Options(by="command"), **slurm).drain == "command"
    assert planned(asks(), options=Options(drain=False, by="slurm"), **slurm).drain == ""


@run_each(
    ("times", "more", "step"),
    [
        (MOST, {}, "ticket"),
        (MOST - 1, {}, "reset"),
        (MOST, {"ago": WINDOW + 60}, "reset"),
        (MOST, {"act": "given up"}, "reset"),
        (MOST, {"act": "given up", "before": "reboot"}, "ticket"),
        (MOST, {"gpus": ["0000:13:00.0"]}, "reset"),
        (MOST, {"checks": ["health.xid"]}, "reset"),
        (MOST, {"gpus": []}, "ticket"),
        (MOST, {"ago": -365 * 86400}, "reset"),
        (MOST, {"ago": -3 * WINDOW, "ahead": 3 * WINDOW + 60}, "ticket"),
        (MOST, {"ago": 60, "ahead": 3 * WINDOW}, "reset"),
    ],
)
def test_what_comes_back_again_and_again_is_given_up(times: int, more: dict[str, Any], step: str) -> None:
    ahead = more.get("ahead", 0)
    line = {"run": "r", "act": "repaired", "gpus": [SECOND], "checks": ["health.recovery"], **more}
    line.pop("ahead", None)
    before = line.pop("before", "")
    line["at"] = int(time.time()) - line.pop("ago", 3600)
    earlier = f"{json.dumps({**line, 'act': before})}\n" if before else ""
    plan = planned(asks(), record=earlier + f"{json.dumps(line)}\n" * times + "damaged\n", ahead=ahead)
    assert plan.step == step
    assert step == "reset" or plan.message == "3 repairs of it within 7 days did not last"


def test_the_plan_of_a_real_reading() -> None:
    """From the words of nvidia-smi to the plan, through the checks of health."""
    known = {**good(), "repairs": "", "gpu_health": smi(Reset_Required="Yes")}
    spec = watched(HostSpec(name="gpu1"))
    results = evaluate(spec, facts(**known), only={"health"})
    plan = plan_host(spec, results, facts(**known), OPTIONS)
    assert plan.step == "reset", [(result.check, result.found) for result in results if result.status == "fail"]
    assert [gpu.address for gpu in plan.scope.gpus] == ["0000:19:00.0"]
    plan.services, plan.holders = ("nvidia-persistenced.service",), ()
    text = format_plan(plan)
    for words in ("gpu1: not fit for work until its GPUs are reset", "health.recovery [reset]", "0000:19:00.0 GPU-",
                  "nvidia-persistenced.service; started again", "the host, if the reset does not help"):  # fmt: skip
        assert words in text, text


def test_what_a_host_says_reaches_the_terminal_clean() -> None:
    plan = HostPlan(host="gpu1", step="reset", findings=(finding("gpu1", fix="x\x1b[2J"),), sentence="a\x1b[31mb")
    plan.holders = ("evil\x1b[2J (pid 1, kim)",)
    assert "\x1b" not in format_plan(plan)
