"""How the GPUs are cut up before and after: what a plan draws."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.mig.fragment import LayoutEntry, Mig
from gpuprov.capabilities.mig.partitions import Partition, partitions
from gpuprov.plan.fold import cuts, listed
from gpuprov.probe.base import Facts, Output
from gpuprov.spec.model import HostSpec
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


def test_without_facts_nothing_is_drawn() -> None:
    spec = HostSpec(name="gpu1", capabilities={"mig": Mig(layout=(LayoutEntry(gpus="all", instances={"3g.40gb": 2}),))})
    assert partitions(spec, Facts({"mig": Output("")})) == ()
    assert partitions(HostSpec(name="gpu1"), Facts({})) == ()
