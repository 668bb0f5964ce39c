"""A spec that registers GPUs in container engines gets a host with engines, or is refused before anything begins."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.core.errors import GpuprovError
from gpuprov.plan.read import Pair
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.reality import build_table
from gpuprov.rehearse.shape import Shape, plan_shapes
from gpuprov.simulate.description import convert
from gpuprov.simulate.engines_built import RELEASES
from gpuprov.simulate.parts import engines
from gpuprov.spec.model import GpuSpec
from tests.rehearse.stage import pair


def toolkit(connection: dict[str, object] | None = None, **block: Any) -> Pair:
    """A host that registers GPUs in these engines."""
    block = {name: tuple(value) for name, value in block.items()}
    spec = {"container_toolkit": ContainerToolkit(**block)}
    return pair("gpu01", connection, gpu=GpuSpec(model="L40S", count=1), capabilities=spec)


def one(given: Pair, **options: Any) -> Shape:
    (shape,) = plan_shapes([given], Options(**options), "1f3a")
    return shape


@pytest.mark.parametrize(
    ("runtimes", "containerd", "packaged"),
    [
        ([], RELEASES[0], ()),
        (["containerd"], RELEASES[0], ()),
        (["docker"], "", ("docker",)),
        (["docker", "containerd"], "", ("docker",)),
        (["podman"], "", ("podman",)),
        (["containerd", "podman"], RELEASES[0], ("podman",)),
        (["podman", "docker", "containerd"], "", ("docker", "podman")),
    ],
)
def test_a_new_host_comes_with_the_engines_of_its_spec(
    runtimes: list[str], containerd: str, packaged: tuple[str, ...]
) -> None:
    shape = one(toolkit(runtimes=runtimes))
    assert shape.description
    assert (shape.description.containerd, shape.description.engines) == (containerd, packaged)
    assert [note for note in shape.notes if "the simulated host comes with" in note], "it is said"
    (row,) = (row for row in build_table([shape.description]) if row.thing == "container engine")
    assert all(name in row.detail for name in (containerd, *packaged))


def test_the_inventory_has_the_last_word_and_other_specs_get_none() -> None:
    own = one(toolkit({"simulated_host": {"containerd": "2.1.4"}}, runtimes=["docker"])).description
    assert own
    assert (own.containerd, own.engines) == ("2.1.4", ())
    plain = one(pair("gpu01")).description
    assert plain
    assert (plain.containerd, plain.engines) == ("", ())


@pytest.mark.parametrize(
    ("block", "options", "told", "fix"),
    [
        ({"runtimes": ["crio"]}, {}, "crio, which no simulated host has", "runtimes: [containerd]"),
        ({"rootless": ["alice"]}, {}, "names alice, whom no simulated host knows", "rootless: []"),
        (
            {"runtimes": ["docker"]},
            {"distribution": "rocky9"},
            "has docker, and a simulated rocky9",
            "--distribution debian12",
        ),
    ],
)
def test_what_cannot_be_simulated_is_told_before_it_begins(
    block: dict[str, Any], options: dict[str, Any], told: str, fix: str
) -> None:
    shape = one(toolkit(**block), **options)
    assert told in shape.problem
    assert fix in shape.hint
    assert shape.description is None


def test_containerd_is_built_for_other_distributions_too() -> None:
    shape = one(toolkit(), distribution="rocky9")
    assert shape.description
    assert shape.description.containerd == RELEASES[0]


def test_descriptions_that_contradict_themselves() -> None:
    with pytest.raises(GpuprovError, match="whose packages a simulated rocky9 has not"):
        convert({"engines": ["docker"], "distribution": "rocky9"}, "host.yaml")
    with pytest.raises(GpuprovError, match="brings a containerd of its own"):
        convert({"engines": ["docker"], "containerd": "2.1.4"}, "host.yaml")


def test_packages_are_installed_once() -> None:
    script = engines.part("gpu01", convert({"engines": ["docker", "podman"]}, "host.yaml")).script
    assert "for package in docker.io podman; do" in script
    assert "&& continue" in script
    assert engines.part("gpu01", convert({}, "host.yaml")).script == ""
