"""The main job on distributions whose packages are stand-ins throughout: applied, verified, and nothing left to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MODEL = "H100-SXM5-80GB"
PLAIN: dict[str, Any] = {"nouveau": {}, "nvidia_driver": {"version": "580"}, "persistence": {}}
BOARD = {**PLAIN, "fabric_manager": {}, "dcgm": {}}
CASES = {
    "amazon2023": (Description(distribution="amazon2023", gpu=Gpus(model=MODEL, count=2), driver="580"), PLAIN),
    "leap15": (Description(distribution="leap15", gpu=Gpus(model=MODEL, count=2), driver="580"), PLAIN),
    "azurelinux3": (Description(distribution="azurelinux3", gpu=Gpus(model=MODEL, count=2), driver="580"), PLAIN),
    "sles15": (Description(distribution="sles15", gpu=Gpus(model=MODEL, count=2), driver="580", nvswitch=3), BOARD),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Machine, dict[str, Any]]]:
    """A new host, and its spec."""
    description, spec = CASES[request.param]
    name = f"e2e-{request.param}"
    container.down(name)
    try:
        yield Machine(hosts.up(name, description)), {"gpu": {"model": MODEL, "count": 2}, **spec}
    finally:
        container.down(name)


def test_a_host_is_brought_to_its_spec_and_stays(lab: Lab, case: tuple[Machine, dict[str, Any]]) -> None:
    site, spec = case
    folder = lab.inventory(spec, site)
    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    again = lab.run("apply", folder, "--yes")
    assert again.code == 0, again
    assert "unchanged" in again.text, again
    assert not lab.run("verify", folder, "--json").failed()
    assert lab.run("apply", folder, "--yes", "--full").code == 0
