"""Package names per distribution, archive and branch."""

from __future__ import annotations

import pytest

from gpuprov.catalog import find_distribution, package_names, package_sets


def test_debian_packages() -> None:
    assert find_distribution("debian", "12")
    assert find_distribution("rhel", "9.4")
    assert find_distribution("debian", "1") is None
    for distribution in ("debian12", "debian13"):
        (modules,) = package_sets(distribution, "kernel-modules", "535", origin="debian", flavour="proprietary")
        assert modules.packages == ("nvidia-kernel-dkms", "nvidia-kernel-support")
        assert modules.dkms_name == "nvidia-current"
        (modules,) = package_sets(distribution, "kernel-modules", "535", origin="debian", flavour="open")
        assert "nvidia-open-kernel-dkms" in modules.packages
        (tools,) = package_sets(distribution, "user-space", "535", origin="debian", flavour="open")
        assert {"nvidia-smi", "libcuda1", "nvidia-alternative"} <= set(tools.packages)
        assert package_sets(distribution, "fabric-manager", "535", origin="debian") == ()


@pytest.mark.parametrize(
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
    (entry,) = package_sets(distribution, "fabric-manager", version, origin=origin)
    assert package_names(entry, version) == (name,)
