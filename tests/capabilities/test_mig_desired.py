"""mig: what the role brings about on a host, worked out from what the probes read; and the steps of each GPU."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from gpuprov.capabilities.answers import STARTING
from gpuprov.capabilities.mig import host
from gpuprov.capabilities.mig.desired import MODULES, PROGRAM, unit
from gpuprov.capabilities.mig.desired import make as make_values
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.mig import list_profiles
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import mig
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.host_code.mig.apply import select_targets
from gpuprov.host_code.mig.state import list_sizes
from gpuprov.host_code.mig_program import WANTED as KEPT
from gpuprov.render.carried import carried
from gpuprov.spec.build import convert
from gpuprov.spec.model import HostSpec
from tests.capabilities import contexts
from tests.capabilities import mig_host as mh
from tests.mig_host.on_host import card
from tests.rows import run_each

make: Callable[..., Any] = make_values


WHOLE = {"layout": [{"gpus": "all", "instances": {"7g.80gb": 1}}]}
SMALL = ("1g.10gb", 0, (1,))
ON_IT = [{"pid": 701, "instance": 1, "part": 0}]
HELD = "701|/dev/nvidia0 /dev/nvidia-uvm|python3|train.service\n"
DCGM = "702|/dev/nvidia0|nv-hostengine|nvidia-dcgm.service\n"
SHELL = "703|/dev/nvidia0|nvtop|session-2.scope\n"
MPS = "704|/dev/nvidia-caps/nvidia-cap3 /dev/nvidia-uvm|nvidia-cuda-mps|gpuprov-mps@mig0.service\n"
CAP = "gpu0/mig/gi1/access|3|292|1|444|root:root\n"


def made(block: dict[str, Any], state: str, *, site: dict[str, Any] | None = None, **more: str) -> dict[str, Any]:
    """Return the role's values, the arguments of step mig, and which of the other tasks are needed."""
    fragment, findings = convert(block, Mig)
    assert isinstance(fragment, Mig), findings
    texts = {"mig": state, "mig_holders": "", "mig_capabilities": "", "reboot_reasons": "", **more}
    values = make(contexts.context("mig", contexts.spec(site=site, mig=fragment), texts))
    tasks = values["tasks"]
    return {**values, **tasks["mig"], "resets": "stop" in tasks, "drain": "drain" in tasks, **tasks["start"]}


def a_gpu(*cuts: mh.Cut, **more: Any) -> str:
    return mh.state(mh.gpu(*cuts, **more))


HERE, CUT = "GPU 0 (0000:19:00.0)", a_gpu(("7g.80gb", 0, (7,)))
UNREAD = mh.state(complaint="no driver")
NO_DRIVER = {"later": "no driver", "problem": "", "steps": []}
ROWS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("all is as wanted", CUT, {"mig_capabilities": CAP}, {"steps": [], "problem": "", "later": "", "resets": False,
                                                          "drain": False}),
    ("a device node is missing", CUT, {"mig_capabilities": CAP.replace("|444|root:root", "||")},
        {"steps": ["make 1 device node(s) in /dev/nvidia-caps"]}),
    ("another layout; who watches is told, who computes and services are not", a_gpu(SMALL, processes=ON_IT),
        {"mig_holders": HELD + DCGM + SHELL}, {"drain": True, "watching": ["nvtop (pid 703, session-2.scope)"],
        "steps": [f"{HERE}: destroy 1g.10gb at 0 (GPU instance 1)", f"{HERE}: create 7g.80gb at 0"]}),
    ("no driver", UNREAD, {"container": "none\n"}, {**NO_DRIVER, "waits": False, "may_reset": True}),
    ("no driver in a container", UNREAD, {"container": "podman\n"}, {**NO_DRIVER, "waits": True, "may_reset": False}),
    ("no driver before a reboot", UNREAD, {"container": "none\n",
                                           "reboot_reasons": "nvidia_driver|the driver is new\n"},
        {**NO_DRIVER, "waits": True, "may_reset": True}),
]  # fmt: skip


@run_each(("state", "more", "wanted"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_is_brought_about(state: str, more: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert contexts.pick(made(WHOLE, state, **more), wanted) == wanted


def test_what_watches_is_stopped_and_of_what_shares_only_what_goes() -> None:
    found = made(WHOLE, a_gpu(SMALL), mig_holders=DCGM + MPS, mig_capabilities=CAP)
    assert found["drain"] is False, "services only"
    assert "nvidia-dcgm.service" in found["stop"]
    assert found["stop"][-1] == "gpuprov-mps@mig0.service"
    assert not {"nvidia-persistenced.service", "nvidia-fabricmanager.service"} & {*found["stop"]}
    assert not [one for one in found["stop"] if "*" in one]
    stays = made(
        {"layout": [{"gpus": "all", "instances": {"1g.10gb": 2}}]}, a_gpu(SMALL), mig_holders=MPS, mig_capabilities=CAP
    )
    assert stays["steps"]
    assert "gpuprov-mps@mig0.service" not in stays["stop"], "its instance stays"


def test_a_site_says_which_services_may_be_stopped() -> None:
    found = made(WHOLE, a_gpu(SMALL), site={"host_gpu_services": ["mine.service"]})
    assert found["services"] == ["gpuprov-persistence.service", "mine.service"]
    assert found["stop"] == ["mine.service"]
    (unit,) = found["units"].values()
    assert "--services gpuprov-persistence.service,mine.service\n" in unit


@run_each(("model", "resets"), [("A100-SXM4-80GB", True), ("H100-SXM5-80GB", False)])
def test_a_mode_changes_by_a_reset_on_ampere_alone(model: str, resets: bool) -> None:
    found = made({"mode": "disabled"}, a_gpu(model=model))
    assert found["resets"] is resets
    assert found["steps"]


def test_what_does_not_fit_is_a_problem_and_no_step() -> None:
    found = made({"layout": [{"gpus": "all", "instances": {"3g.40gb": 3}}]}, a_gpu())
    assert found["steps"] == []
    assert "GPU 0 (0000:19:00.0): " in found["problem"]
    assert "Fix: correct mig in the spec" in found["problem"]
    stranger = made({"layout": [{"gpus": [5], "instances": {"1g.10gb": 1}}]}, a_gpu())
    assert stranger["problem"].startswith("mig: ")


def test_the_program_takes_what_it_is_told(tmp_path: Any) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "version: v1\nmig-configs:\n  small:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}\n"
    )
    for block in (WHOLE, {"mode": "disabled"}, {"config_file": str(file)}):
        (target,) = select_targets(json.loads(json.dumps(made(block, a_gpu())["wanted"])), [card()]).values()
        assert target.enabled is (block.get("mode") != "disabled")
    assert [one.profile for one in target.instances] == ["1g.10gb"] * 7


def test_the_module_finds_the_program_where_the_role_puts_it() -> None:
    assert {f"files/{name}" for name in PROGRAM} == set(carried("mig"))
    assert len(MODULES) == len(PROGRAM) - 3


HOLDER = mig.Holder(701, "python3", "", ())
CUTS: list[tuple[mh.Cut, ...]] = [
    (),
    (("3g.40gb", 0, (3,)), ("3g.40gb", 4, (3,))),
    (("3g.40gb", 4, (3,)), ("1g.10gb", 0, (1,)), ("1g.10gb", 1, (1,))),
    (("1g.10gb", 3, (1,)),),
    (("7g.80gb", 0, (7,)),),
    (("2g.20gb", 2, (1, 1)), ("1g.10gb", 6, (1,))),
    (("4g.40gb", 0, ()),),
    (("3g.40gb", 0, (1, 1, 1)), ("2g.20gb", 4, (2,))),
]
WANTED: list[Any] = [
    {},
    {"3g.40gb": 2},
    {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    {"7g.80gb": 1},
    {"1g.10gb": 7},
    {"1c.3g.40gb": 3},
    {"1c.3g.40gb": 2, "3g.40gb": 1},
    {"2g.20gb": 3, "1g.10gb": 1},
    {"3g.40gb": 2, "1g.10gb": 1},
    [{"profile": "3g.40gb", "placement": 4}, {"profile": "1g.10gb", "count": 4}],
    [{"profile": "2g.20gb", "placement": 2, "compute": {"1c": 1}}],
]


def gpu_of(*cuts: mh.Cut, **more: Any) -> mig.MigGpu:
    return mig.parse_state(Output(mh.state(mh.gpu(*cuts, **more)))).gpus[0]


def after(made: host.Needs) -> list[tuple[str, int, tuple[int, ...]]]:
    """The instances of the GPU once it is done: profile, start, compute instances."""
    sizes = {one.id: sizes for one, sizes in made.change.recut()}
    gone = {one.id for one in made.change.destroy}
    left = [
        (one.profile, one.start, sizes.get(one.id, one.sizes))
        for one in made.change.card.instances
        if one.id not in gone
    ]
    return sorted([*left, *((at.profile, at.start, compute) for at, compute in made.change.create)])


@run_each("wanted", WANTED, ids=json.dumps)
def test_what_is_planned_comes_to_what_is_wanted(wanted: Any) -> None:
    (entry,) = mig_layout.normalize_layout("enabled", [{"gpus": "all", "instances": wanted}])
    target = mig_layout.Target(True, entry.instances)
    aim = sorted(
        (one.profile, list_sizes(mig_layout.parse_profile(one.profile).slices, one.compute)) for one in entry.instances
    )
    for cuts, on in itertools.product(CUTS, (True, False)):
        gpu = gpu_of(*cuts, on=on)
        for used in (None, *(one.id for one in gpu.instances)):
            users = [] if used is None else [mig.User(HOLDER, 0, used, 0)]
            made = host.needs(gpu, target, users)
            if not made.problem:
                assert sorted((profile, sizes) for profile, _, sizes in after(made)) == aim, (cuts, on, used)
            ended = host.needs(gpu, mig_layout.Target(False), users)
            assert [one.id for one in ended.change.destroy] == [one.id for one in gpu.instances]


def test_of_compute_instances_in_use_the_one_that_must_go_is_seen() -> None:
    """Two of three are in use, and one may stay: whose ends is who holds the other."""
    gpu = gpu_of(("3g.40gb", 0, (1, 1, 1)))
    (entry,) = mig_layout.normalize_layout(
        "enabled", [{"gpus": "all", "instances": [{"profile": "3g.40gb", "compute": {"1c": 1}}]}]
    )
    users = [mig.User(mig.Holder(pid, "python3", "", ()), 0, 1, part) for part, pid in ((0, 700), (1, 701))]
    made = host.needs(gpu, mig_layout.Target(True, entry.instances), users)
    assert [user.holder.pid for user in users if host.concerns(made, user)] == [701]
    (change,) = host.changes(made)
    assert (change.before, change.after) == ("1c, 1c, 1c", "1c")


def test_the_catalogue_stands_in_for_a_driver_that_tells_nothing_while_mig_is_off() -> None:
    (off,) = mig.parse_state(Output(mh.state(mh.gpu(on=False)))).gpus
    (on,) = mig.parse_state(Output(mh.state(mh.gpu()))).gpus
    assert host.table(off) == host.table(on)
    known = find_gpu(mh.H100)
    assert known
    assert len(host.table(off)[0]) == len(list_profiles(known))


def test_where_nobody_knows_the_places_before_mig_is_on() -> None:
    gpu = gpu_of(model="RTX-PRO-5000", on=False)
    made = host.needs(gpu, mig_layout.Target(True, (mig_layout.Instance("1g.24gb"),)))
    assert (made.change.blind, made.mode, made.instances, made.problem) == (True, True, True, "")
    assert [change.name for change in host.changes(made)] == [f"{gpu.label}: MIG mode", f"{gpu.label}: its instances"]


def test_the_boot_unit_starts_before_what_looks_at_the_gpus_once() -> None:
    text = unit(HostSpec(name="gpu1"))
    before = " ".join(line.partition("=")[2] for line in text.splitlines() if line.startswith("Before=")).split()
    assert {*STARTING, "nvidia-cdi-refresh.service", "gpuprov-cdi-refresh.service", "nvidia-dcgm.service"} <= set(
        before
    )
    assert mig.UNIT == "gpuprov-mig.service"
    assert f"ConditionPathExists={KEPT}\n" in text, "a boot without a layout is not a failure"
