"""What `plan` prints of MIG is what the role's program does on the host: both decide alike, on many GPUs and layouts."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov import assets
from gpuprov.capabilities.mig import host
from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.mig import profiles_for
from gpuprov.probe import mig
from gpuprov.probe.base import Output
from gpuprov.shared import mig_layout
from tests.capabilities import mig_host as mh

ROLE = assets.root() / "roles" / "mig" / "files"
HELD = mig.Holder(701, "python3", "", ())


@pytest.fixture(scope="module")
def role() -> Iterator[tuple[Any, Any]]:
    """The role's modules, beside gpuprov's own as on a host."""
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = [str(ROLE), str(Path(mig_layout.__file__).parent)]
    yield importlib.import_module("mig_plan"), importlib.import_module("mig_state")
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("mig_"):
            del sys.modules[name]


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


def on_host(role: tuple[Any, Any], gpu: mig.MigGpu, target: Any, used: int | None) -> tuple[Any, ...]:
    """What the role's program would do."""
    plan, state = role
    profiles = host.table(gpu)[0] if gpu.profiles else ()
    present = tuple(
        state.Present(
            one.id, one.profile, mig_layout.parse_profile(one.profile).slices, one.start, one.size,
            tuple(state.Compute(part.id, part.start, part.slices) for part in one.compute),
        )
        for one in gpu.instances
    )  # fmt: skip
    seen = host.seen(gpu)
    card = state.Card(seen, gpu.minor, host.resets(gpu), gpu.current, gpu.pending, profiles, present)
    users = [] if used is None else [state.User(701, "python3", "root", "", 0, used, 0)]
    made = plan.change(card, target, users)
    recut = {gi for gi, _ in [*made.cut, *made.add]}
    return (
        bool(made.problem),
        made.mode,
        sorted((one.profile, one.start) for one in made.destroy),
        sorted((at.profile, at.start, sizes) for at, sizes in made.create),
        sorted(recut),
    )


def planned(gpu: mig.MigGpu, target: Any, used: int | None) -> tuple[Any, ...]:
    """What the checks say."""
    users = [] if used is None else [mig.User(HELD, 0, used, 0)]
    made = host.needs(gpu, target, users)
    return (
        bool(made.problem),
        made.mode,
        sorted((one.profile, one.start) for one in made.destroy),
        sorted((at.profile, at.start, sizes) for at, sizes in made.create),
        sorted(one.id for one, _ in made.recut),
    )


@pytest.mark.parametrize("wanted", WANTED, ids=json.dumps)
def test_the_checks_plan_what_the_program_does(role: tuple[Any, Any], wanted: Any) -> None:
    (entry,) = mig_layout.normalise("enabled", [{"gpus": "all", "instances": wanted}])
    off = mig_layout.Target(False)
    for cuts, on in itertools.product(CUTS, (True, False)):
        (gpu,) = mig.parse_state(Output(mh.state(mh.gpu(*cuts, on=on)))).gpus
        if not on:
            known = mig.parse_state(Output(mh.state(mh.gpu()))).gpus[0].profiles
            gpu = msgspec.structs.replace(gpu, profiles=known)
        for used in (None, *(one.id for one in gpu.instances)):
            for target in (mig_layout.Target(True, entry.instances), off):
                assert planned(gpu, target, used) == on_host(role, gpu, target, used), (cuts, on, used, target)


def test_the_catalogue_stands_in_for_a_driver_that_tells_nothing_while_mig_is_off() -> None:
    (off,) = mig.parse_state(Output(mh.state(mh.gpu(on=False)))).gpus
    (on,) = mig.parse_state(Output(mh.state(mh.gpu()))).gpus
    assert host.table(off) == host.table(on)
    known = find_gpu(mh.H100)
    assert known
    assert len(host.table(off)[0]) == len(profiles_for(known))


def test_where_nobody_knows_the_places_before_mig_is_on(role: tuple[Any, Any]) -> None:
    (gpu,) = mig.parse_state(Output(mh.state(mh.gpu(model="RTX-PRO-5000", on=False)))).gpus
    target = mig_layout.Target(True, (mig_layout.Instance("1g.24gb"),))
    made = host.needs(gpu, target)
    assert (made.blind, made.mode, made.instances, made.problem) == (True, True, True, "")
    assert [change.name for change in host.changes(made)] == [f"{gpu.told}: MIG mode", f"{gpu.told}: its instances"]
    assert planned(gpu, target, None) == on_host(role, gpu, target, None)


def test_services_that_apply_stops_are_those_that_the_role_stops() -> None:
    text = (assets.root() / "roles/mig/vars/main.yml").read_text(encoding="utf-8")
    assert all(unit in text for unit in host.OWN)


def test_the_boot_unit_starts_before_what_the_check_names() -> None:
    from gpuprov.capabilities.mig.boot import WAITING

    unit = (assets.root() / "roles/mig/templates/etc/systemd/system/gpuprov-mig.service.j2").read_text(encoding="utf-8")
    before = " ".join(line.partition("=")[2] for line in unit.splitlines() if line.startswith("Before=")).split()
    assert set(WAITING) <= set(before)
    assert mig.UNIT == "gpuprov-mig.service"
