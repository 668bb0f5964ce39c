"""Simulated hosts of SLES and openSUSE Leap: what they say they are, their stand-in packages, their bootloader."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.kernel import boot as probe
from gpuprov.rules.resolve import fitting
from gpuprov.simulate.description import Description
from gpuprov.simulate.distributions import DISTRIBUTIONS
from gpuprov.simulate.parts import boot, identity
from gpuprov.simulate.repository.others import nvidia_place
from gpuprov.simulate.standins import nvidia_zypper as nvidia
from tests.simulate.test_standins import by_name, without_programs

SLES, LEAP = DISTRIBUTIONS["sles15"], DISTRIBUTIONS["leap15"]
__all__ = ["without_programs"]


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


def test_the_stand_in_mkconfig_takes_grubs_defaults(tmp_path: Path) -> None:
    made = boot.part("gpu01", Description(distribution="sles15")).files
    program = made["/usr/sbin/grub2-mkconfig"].content
    assert isinstance(program, bytes)
    (tmp_path / "grub").write_text(
        'GRUB_CMDLINE_LINUX="iommu=pt"\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n', encoding="utf-8"
    )
    script = (
        program.decode()
        .replace("/etc/default/grub", f"{tmp_path}/grub")
        .replace("$(ls /lib/modules | sort -rV)", "6.4.0-default")
    )
    subprocess.run(["sh", "-c", script, "grub2-mkconfig", "-o", f"{tmp_path}/grub.cfg"], check=True)
    lines = [line for line in (tmp_path / "grub.cfg").read_text(encoding="utf-8").splitlines() if "linux  " in line]
    assert probe.parse_boot_entries(Output("\n".join(lines))) == (
        {"root": "/dev/simulated", "iommu": "pt", "quiet": ""},
    )
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=False).returncode == 1
    assert "/usr/sbin/grubby" not in made
