"""NVIDIA's own kernel modules, as Debian packages them, compiled by DKMS: from nothing, and to another version and
back."""

from __future__ import annotations

import pytest

from tests.e2e.lab import SPEC, Lab, spec_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_the_real_modules_are_built_and_changed(lab: Lab, versions: tuple[str, str]) -> None:
    machine = lab.machine("real")
    for wanted, version in (
        (SPEC, versions[0]),
        (spec_of(versions[1]), versions[1]),
        (spec_of(versions[0]), versions[0]),
    ):
        folder = lab.inventory(wanted, machine)
        ran = lab.run("apply", folder, "--yes")
        assert ran.code == 0, ran
        machine.has_driver(version)
        assert lab.run("verify", folder).code == 0
        lab.keep_compiler_cache(machine)
    assert lab.run("apply", folder, "--yes", "--json").json["hosts"][0]["state"] == "unchanged"
