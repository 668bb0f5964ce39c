"""What a GPU needs, by what the probe read of it: the planner is the one that the program on the host has."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from gpuprov.capabilities.answers import STARTING
from gpuprov.capabilities.mig import host
from gpuprov.capabilities.mig.desired import unit
from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.mig import list_profiles
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import mig
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.host_code.mig.state import list_sizes
from gpuprov.host_code.mig_program import WANTED as KEPT
from gpuprov.spec.model import HostSpec
from tests.capabilities import mig_host as mh

HELD = mig.Holder(701, "python3", "", ())
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


@pytest.mark.parametrize("wanted", WANTED, ids=json.dumps)
def test_what_is_planned_comes_to_what_is_wanted(wanted: Any) -> None:
    (entry,) = mig_layout.normalize_layout("enabled", [{"gpus": "all", "instances": wanted}])
    target = mig_layout.Target(True, entry.instances)
    aim = sorted(
        (one.profile, list_sizes(mig_layout.parse_profile(one.profile).slices, one.compute)) for one in entry.instances
    )
    for cuts, on in itertools.product(CUTS, (True, False)):
        gpu = gpu_of(*cuts, on=on)
        for used in (None, *(one.id for one in gpu.instances)):
            users = [] if used is None else [mig.User(HELD, 0, used, 0)]
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
    assert [change.name for change in host.changes(made)] == [f"{gpu.told}: MIG mode", f"{gpu.told}: its instances"]


def test_the_boot_unit_starts_before_what_looks_at_the_gpus_once() -> None:
    text = unit(HostSpec(name="gpu1"))
    before = " ".join(line.partition("=")[2] for line in text.splitlines() if line.startswith("Before=")).split()
    assert {*STARTING, "nvidia-cdi-refresh.service", "gpuprov-cdi-refresh.service", "nvidia-dcgm.service"} <= set(
        before
    )
    assert mig.UNIT == "gpuprov-mig.service"
    assert f"ConditionPathExists={KEPT}\n" in text, "a boot without a layout is no failure"
