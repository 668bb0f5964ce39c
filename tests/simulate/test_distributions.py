"""Hosts that stand in for another distribution: what they say they are, and which descriptions there cannot be."""

from __future__ import annotations

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate.description import Description, convert
from gpuprov.simulate.distributions import DISTRIBUTIONS, TABLE
from gpuprov.simulate.parts import boot, identity
from gpuprov.simulate.parts.base import File
from tests.rows import run_each

STANDING_IN = [entry.key for entry in TABLE if entry.stands_in]


@run_each("key", STANDING_IN)
def test_os_release_says_the_distribution(key: str) -> None:
    known = DISTRIBUTIONS[key]
    rows = dict(line.split("=", 1) for line in identity.os_release(known).splitlines())
    assert rows["ID"].strip('"') == known.id
    assert rows["VERSION_ID"] == f'"{known.version_id}"'
    assert ("PLATFORM_ID" in rows) == (known.family == "redhat" and known.id != "azurelinux")
    assert "Debian" not in identity.os_release(known)  # Ansible would take it for a Debian


@run_each("key", STANDING_IN)
def test_the_host_says_that_its_userland_is_debian(key: str) -> None:
    made = identity.part("gpu01", Description(distribution=key))
    for path in ("/etc/gpuprov-sim/README", "/etc/motd"):
        content = made.files[path].content
        assert isinstance(content, bytes)
        assert b"its programs are Debian's" in content
    assert DISTRIBUTIONS[key].kernel in made.script


@run_each(
    ("values", "said"),
    [
        ({"distribution": "debian11"}, 'distribution is "debian11"'),
        ({"distribution": "rocky9", "kind": "machine"}, 'distribution is "rocky9" and kind is "machine"'),
        ({"distribution": "ubuntu2404", "kernel": "6.1.0-47-amd64"}, "kernel is .* one of Debian's"),
        ({"distribution": "rocky9", "repositories": ["distribution"]}, "rocky9 has no NVIDIA driver of its own"),
        ({"repositories": ["cuda"]}, "repositories"),
    ],
)
def test_descriptions_that_cannot_be(values: object, said: str) -> None:
    with pytest.raises(GpuprovError, match=said) as caught:
        convert(values, "host.yaml")
    assert str(caught.value).startswith("host.yaml: ")


@run_each(
    ("values", "configured", "served"),
    [
        ({}, ("distribution",), ("distribution",)),
        ({"distribution": "rocky9"}, ("nvidia",), ("nvidia",)),
        ({"distribution": "ubuntu2404", "mirror": True}, ("distribution",), ("distribution", "nvidia")),
        ({"distribution": "rocky9", "mirror": True}, (), ("nvidia",)),
        ({"distribution": "ubuntu2404", "repositories": ["nvidia"]}, ("nvidia",), ("nvidia",)),
    ],
)
def test_repositories(values: object, configured: tuple[str, ...], served: tuple[str, ...]) -> None:
    described = convert(values, "host.yaml")
    assert described.configured == configured
    assert described.served == served


def test_the_dnf_family_has_grubby_in_place_of_update_grub() -> None:
    files = boot.part("gpu01", Description(distribution="rocky9")).files
    assert isinstance(files["/usr/sbin/grubby"], File)
    assert "/usr/sbin/update-grub" not in files
