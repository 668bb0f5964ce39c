"""How the GPUs are cut up before and after: what a plan draws."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.mig.fragment import LayoutEntry, Mig
from gpuprov.capabilities.mig.partitions import Partition, partitions
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan.fold import cuts, listed
from gpuprov.spec.model import HostSpec
from tests.capabilities import asking
from tests.capabilities import mig_host as mh
from tests.capabilities.asking import facts, good

WHOLE, OTHER, SMALL = ("3g.40gb", 0, (3,)), ("3g.40gb", 4, (3,)), ("1g.10gb", 6, (1,))


def asked(instances: Any, *gpus: dict[str, Any]) -> tuple[Partition, ...]:
    block = Mig(layout=(LayoutEntry(gpus="all", instances=instances),))
    texts = {**good(), "mig": mh.state(*gpus), "container": "none\n"}
    return partitions(HostSpec(name="gpu1", capabilities={"mig": block}), facts(**texts))


def drawn(one: Partition) -> tuple[list[Any], ...]:
    return tuple([(p.start, p.size, p.name, p.fate) for p in parts] for parts in (one.before, one.after))


def test_what_stays_what_goes_and_what_comes() -> None:
    (one,) = asked({"3g.40gb": 2}, mh.gpu(WHOLE, SMALL))
    assert one.grid == 8
    assert (one.enabled_before, one.enabled_after) == (True, True)
    assert drawn(one) == (
        [(0, 4, "3g.40gb", "stays"), (6, 1, "1g.10gb", "destroyed")],
        [(0, 4, "3g.40gb", "stays"), (4, 4, "3g.40gb", "created")],
    )


def test_a_gpu_that_is_right_is_not_drawn() -> None:
    assert asked({"3g.40gb": 2}, mh.gpu(WHOLE, OTHER)) == ()


def test_mig_that_is_off_has_no_instance_before() -> None:
    (one,) = asked({"3g.40gb": 2}, mh.gpu(on=False))
    assert (one.enabled_before, one.enabled_after, one.before, listed(one.after)) == (False, True, (), "2 x 3g.40gb")


def test_an_instance_that_stays_and_is_cut_inside() -> None:
    (one,) = asked({"1c.3g.40gb": 3}, mh.gpu(WHOLE))
    assert drawn(one) == ([(0, 4, "3g.40gb", "cut anew")], [(0, 4, "3g.40gb with 1c, 1c, 1c", "cut anew")])


def test_gpus_of_which_the_same_is_done_are_one_picture() -> None:
    found = asked({"3g.40gb": 2}, mh.gpu(WHOLE), mh.gpu(WHOLE, index=1), mh.gpu(index=2))
    assert [cut.gpus for cut in cuts(found)] == ["GPUs 0, 1", "GPU 2 (0000:39:00.0)"]


TWO = asking.H100 + asking.H100.replace("0000:19", "0000:3b") + asking.NVSWITCH


def before_the_driver(spec: HostSpec, **changed: str) -> tuple[Partition, ...]:
    told = {"mig": mh.state(complaint="Driver Not Loaded"), "container": "none\n", "nvidia_functions": TWO, **changed}
    return partitions(spec, facts(**{**good(), **told}))


def with_driver(*entries: LayoutEntry) -> HostSpec:
    blocks = {"nvidia_driver": NvidiaDriver(version="580"), "mig": Mig(layout=entries)}
    return HostSpec(name="gpu1", capabilities=blocks)


def test_a_driver_that_comes_in_the_same_apply_has_the_gpus_of_the_bus() -> None:
    first, second = before_the_driver(with_driver(LayoutEntry(gpus="all", instances={"3g.40gb": 2})))
    assert (first.gpu, first.model, first.grid) == ("GPU 0 (0000:19:00.0)", "H100-SXM5-80GB", 8)
    assert (first.enabled_before, first.enabled_after, first.before) == (False, True, ())
    assert drawn(first)[1] == [(0, 4, "3g.40gb", "created"), (4, 4, "3g.40gb", "created")]
    assert second.gpu == "GPU 1 (0000:3b:00.0)"
    (one,) = before_the_driver(with_driver(LayoutEntry(gpus=("0000:3b:00.0",), instances={"7g.80gb": 1})))
    assert one.index == 1


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        (with_driver(LayoutEntry(gpus=("GPU-1",), instances={"3g.40gb": 2})), {}),
        (with_driver(LayoutEntry(gpus="all", instances={"3g.40gb": 2})), {"nvidia_functions": ""}),
        (with_driver(LayoutEntry(gpus="all", instances={"3g.40gb": 2})), {"container": "podman\n"}),
        (HostSpec(name="gpu1", capabilities={"mig": Mig(layout=(LayoutEntry(gpus="all", instances={"3g.40gb": 2}),
            ))}), {}),
    ],
    ids=["by-uuid", "no-gpu", "container", "no-driver-asked-for"],
)  # fmt: skip
def test_nothing_is_drawn_of_what_nobody_can_know_before_the_driver(spec: HostSpec, changed: dict[str, str]) -> None:
    assert before_the_driver(spec, **changed) == ()


def test_without_facts_nothing_is_drawn() -> None:
    spec = HostSpec(name="gpu1", capabilities={"mig": Mig(layout=(LayoutEntry(gpus="all", instances={"3g.40gb": 2}),))})
    assert partitions(spec, Facts({"mig": Output("")})) == ()
    assert partitions(HostSpec(name="gpu1"), Facts({})) == ()
