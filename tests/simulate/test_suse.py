"""Simulated hosts of SLES and openSUSE Leap: what they say they are, their stand-in packages, their bootloader."""

from __future__ import annotations

import pytest

from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.rules.resolve import fitting
from gpuprov.simulate.description import Description
from gpuprov.simulate.distributions import DISTRIBUTIONS
from gpuprov.simulate.parts import identity
from gpuprov.simulate.repository.others import nvidia_place
from gpuprov.simulate.standins import nvidia_zypper as nvidia
from tests.simulate.test_standins import by_name

SLES, LEAP = DISTRIBUTIONS["sles15"], DISTRIBUTIONS["leap15"]
pytestmark = pytest.mark.usefixtures("without_programs")


def test_what_the_hosts_say_that_they_are() -> None:
    """Ansible takes NAME for the distribution, where the text has the word suse in it."""
    rows = dict(line.split("=", 1) for line in identity.os_release(SLES).splitlines())
    assert (rows["ID"], rows["NAME"], rows["ID_LIKE"], rows["VERSION_ID"]) == ('"sles"', '"SLES"', '"suse"', '"15.7"')
    assert "PLATFORM_ID" not in rows
    assert 'NAME="openSUSE Leap"' in identity.os_release(LEAP)
    script = identity.part("gpu01", Description(distribution="sles15")).script
    assert f"initramfs-$debian.img:initrd-{SLES.kernel}" in script, "SUSE's initramfs has a name of its own"
    assert (nvidia_place(SLES), nvidia_place(LEAP)) == ("nvidia/sles15/x86_64", "nvidia/leap15/x86_64")


@pytest.mark.parametrize("version", ["575.57.08", "580.95.05", "590.48.01", "610.43.02"])
@pytest.mark.parametrize("flavour", ["open", "proprietary"])
def test_the_catalogues_set_is_there_whole(version: str, flavour: str) -> None:
    made = by_name(nvidia.packages(SLES, version))
    found = find_packages("sles", "15.7")
    assert found
    for name in fitting(found.sets[flavour], version):
        assert made[name].version == f"{version}-1", name
    assert made.keys() == by_name(nvidia.packages(LEAP, version)).keys()
