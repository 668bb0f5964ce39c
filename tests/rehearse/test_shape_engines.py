"""A spec that registers GPUs in container engines gets a host with those engines that a simulated one can have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.persistence import Persistence
from gpuprov.core.errors import GpuprovError
from gpuprov.plan.read import Pair
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.reality import build_table
from gpuprov.rehearse.shape import Shape, plan_shapes
from gpuprov.simulate.description import convert
from gpuprov.simulate.engines_built import RELEASES
from gpuprov.simulate.parts import engines
from gpuprov.spec.model import Fragment, GpuSpec
from tests.rehearse.stage import pair
from tests.rows import run_each


def toolkit(connection: dict[str, object] | None = None, **block: Any) -> Pair:
    """A host that registers GPUs in these engines, and has something else to rehearse."""
    block = {name: tuple(value) for name, value in block.items()}
    spec: dict[str, Fragment] = {"container_toolkit": ContainerToolkit(**block), "persistence": Persistence()}
    return pair("gpu01", connection, gpu=GpuSpec(model="L40S", count=1), capabilities=spec)


def one(given: Pair, **options: Any) -> Shape:
    (shape,) = plan_shapes([given], Options(**options), "1f3a")
    return shape


@run_each(
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


@run_each(
    ("block", "kept", "left"),
    [
        ({"runtimes": ["crio"]}, None, "container_toolkit: runtimes crio: no simulated host has it"),
        (
            {"runtimes": ["k3s", "docker", "rke2"]},
            ["docker"],
            "container_toolkit.runtimes k3s, rke2: no simulated host has them",
        ),
        ({"rootless": ["alice"]}, [], "container_toolkit.rootless alice: no simulated host knows"),
    ],
)
def test_engines_that_no_simulated_host_has_are_left_out(
    block: dict[str, Any], kept: list[str] | None, left: str
) -> None:
    shape = one(toolkit(**block))
    assert shape.description
    block_left = shape.spec.capabilities.get("container_toolkit")
    assert block_left == (None if kept is None else msgspec.structs.replace(ContainerToolkit(), runtimes=tuple(kept)))
    (entry,) = shape.left_out
    assert entry.startswith(left)


def test_hosts_of_all_distributions_come_with_engines() -> None:
    """Somebody had Ubuntu 24.04 with docker: its rehearsal left the container toolkit out."""
    for distribution in ("ubuntu2404", "rocky9"):
        shape = one(toolkit(runtimes=["docker"]), distribution=distribution)
        assert shape.description
        assert (shape.description.engines, shape.left_out) == (("docker",), ())
        assert "nvidia" in shape.description.configured, "which has the Container Toolkit"
    shape = one(toolkit(), distribution="rocky9")
    assert shape.description
    assert shape.description.containerd == RELEASES[0]


def test_descriptions_that_contradict_themselves() -> None:
    with pytest.raises(GpuprovError, match="brings a containerd of its own"):
        convert({"engines": ["docker"], "containerd": "2.1.4"}, "host.yaml")


def test_packages_are_installed_once() -> None:
    script = engines.part("gpu01", convert({"engines": ["docker", "podman"]}, "host.yaml")).script
    assert "for package in docker.io podman; do" in script
    assert "&& continue" in script
    assert engines.part("gpu01", convert({}, "host.yaml")).script == ""
