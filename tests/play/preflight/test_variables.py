"""Variables of a rendered host, and the spec that they came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov import __version__
from gpuprov.core import assets
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.specs import load_fleet
from gpuprov.play.preflight.variables import names, spec_of
from gpuprov.render.variables import fleet_variables, host_variables
from tests.rows import run_each

FILES = sorted((Path(__file__).parents[3] / "molecule").glob("*/inventory.yaml"))


@run_each("file", FILES, ids=lambda file: str(file.parent.name))
def test_there_and_back(file: Path) -> None:
    assert assets.root()
    for raw, spec in load_fleet([str(file)]).pairs:
        back = spec_of(raw.name, spec.groups, {**fleet_variables(), **host_variables(spec)})
        assert back.capabilities == spec.capabilities
        assert (back.gpu, back.reboot, back.groups) == (spec.gpu, spec.reboot, spec.groups)


def variables(**more: Any) -> dict[str, Any]:
    return {"gpuprov_version": __version__, "gpuprov_capabilities": ["persistence"], "persistence_mode": "auto", **more}


def test_what_a_site_overrides_is_kept() -> None:
    assert spec_of("a", (), variables(host_max_clock_skew=900)).site == {"host_max_clock_skew": 900}
    assert "host_max_clock_skew" in names()


def test_a_project_of_another_version_is_refused() -> None:
    with pytest.raises(GpuprovError, match=r"rendered by gpuprov 9\.9, and gpuprov .* is installed here") as caught:
        spec_of("a", (), variables(gpuprov_version="9.9"))
    assert "pip install gpuprov==9.9" in caught.value.fix


def test_a_value_that_no_role_takes_is_refused() -> None:
    with pytest.raises(GpuprovError, match=r"a: the variables of persistence are not what gpuprov renders: .*\$\.mode"):
        spec_of("a", (), variables(persistence_mode="sometimes"))
