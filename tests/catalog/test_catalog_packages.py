"""Package names per distribution, archive and branch."""

from __future__ import annotations

import re

from gpuprov.catalog import find_distribution, list_package_names, list_package_sets
from tests.catalog.driver_packages import list_driver_packages
from tests.rows import run_each


def test_debian_packages() -> None:
    assert find_distribution("debian", "12")
    assert find_distribution("rhel", "9.4")
    assert find_distribution("debian", "1") is None
    for distribution in ("debian12", "debian13"):
        (modules,) = list_package_sets(distribution, "kernel-modules", "535", origin="debian", flavour="proprietary")
        assert modules.packages == ("nvidia-kernel-dkms", "nvidia-kernel-support")
        (modules,) = list_package_sets(distribution, "kernel-modules", "535", origin="debian", flavour="open")
        assert "nvidia-open-kernel-dkms" in modules.packages
        (tools,) = list_package_sets(distribution, "user-space", "535", origin="debian", flavour="open")
        assert {"nvidia-smi", "libcuda1", "nvidia-alternative"} <= set(tools.packages)
        assert list_package_sets(distribution, "fabric-manager", "535", origin="debian") == ()


@run_each(
    ("distribution", "origin", "version", "name"),
    [
        ("ubuntu2204", "nvidia", "535.261.03", "nvidia-fabricmanager-535"),
        ("ubuntu2204", "nvidia", "580.65.06", "nvidia-fabricmanager"),
        ("ubuntu2204", "ubuntu", "580.65.06", "nvidia-fabricmanager-580"),
        ("rhel9", "nvidia", "570.133.20", "nvidia-fabric-manager"),
        ("rhel9", "nvidia", "580.65.06", "nvidia-fabricmanager"),
    ],
)
def test_fabric_manager_names_change_with_branch_and_archive(
    distribution: str, origin: str, version: str, name: str
) -> None:
    (entry,) = list_package_sets(distribution, "fabric-manager", version, origin=origin)
    assert list_package_names(entry, version) == (name,)


def test_relatives_of_rhel_have_its_packages() -> None:
    for name in ("rhel", "rocky", "almalinux", "centos", "ol"):
        found = find_distribution(name, "9.5")
        assert found
        assert (found.key, found.family) == ("rhel9", "redhat")
    debian = find_distribution("debian", "12")
    assert debian
    assert debian.family == "debian"
    for name in ("openEuler", "anolis"):
        assert find_distribution(name, "8") is None


def test_every_managed_distribution_has_whole_tables() -> None:
    for key, sources in list_driver_packages().items():
        assert sources, key
        for source, table in sources.items():
            for flavour in ("proprietary", "open"):
                if source == "runfile" or (key, flavour) == ("azl3", "proprietary"):
                    assert table[flavour] == ()
                    continue
                assert table[flavour], (key, source)
                assert table["modules"][flavour]
                first = table[flavour][0]
                built = "dkms" in first["name"] or re.fullmatch(r"nvidia-(open-)?driver-G\d+", first["name"])
                assert built or "proof" in first, "the kernel modules come first, or tell the flavour"
            assert list(table["dkms"]) == ([] if table["precompiled"] else ["dkms"])
            assert all("{kernel}" in name for name in (*table["headers"], *sum(table["precompiled"].values(), ())))
            assert not [name for name in table["ask"] if "{" in name]
            own = [name for name in table["ask"] if re.fullmatch("|".join(table["conflicts"]), name)]
            assert own == [], (key, source, "a set that conflicts with itself")


def test_modules_streams_are_for_el_8_and_9() -> None:
    tables = list_driver_packages()
    assert tables["rhel9"]["nvidia"]["streams"] == {
        "proprietary": "nvidia-driver:{branch}-dkms",
        "open": "nvidia-driver:{branch}-open",
    }
    assert tables["rhel10"]["nvidia"]["streams"] == {}
    assert tables["rhel9"]["nvidia-precompiled"]["streams"] == {"proprietary": "nvidia-driver:{branch}"}
    assert set(tables["rhel8"]) == {"nvidia", "mirror", "nvidia-precompiled", "mirror-precompiled"}
    assert set(tables["rhel10"]) == {"nvidia", "mirror"}
    assert set(tables["ubuntu2604"]) == {"distribution", "nvidia", "mirror", "distribution-precompiled"}
    assert set(tables["debian12"]) == {"distribution", "nvidia", "mirror"}
