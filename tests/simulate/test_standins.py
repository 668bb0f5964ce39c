"""Stand-in packages of Ubuntu, of NVIDIA's repositories and of the dnf family: names, versions, relations, streams."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import debs, rpms
from gpuprov.simulate.distributions import DISTRIBUTIONS, Distribution, Repository
from gpuprov.simulate.parts.base import text
from gpuprov.simulate.repository.versions import versions
from gpuprov.simulate.standins import nvidia_apt, nvidia_dnf, ubuntu
from gpuprov.simulate.standins.catalogue import names
from gpuprov.simulate.standins.extras import extras
from gpuprov.simulate.standins.model import Standin
from tests.simulate.needs import needs_dpkg, needs_rpmbuild

ROCKY9 = DISTRIBUTIONS["rocky9"]
Make = Callable[[Distribution, str], list[Standin]]


pytestmark = pytest.mark.usefixtures("without_programs")


def by_name(made: list[Standin]) -> dict[str, Standin]:
    return {package.name: package for package in made}


@pytest.mark.install
@pytest.mark.parametrize(
    ("make", "key", "version"),
    [
        (ubuntu.packages, "ubuntu2404", "580.159.03"),
        (nvidia_apt.packages, "ubuntu2404", "570.211.01"),
        (nvidia_apt.packages, "ubuntu2404", "580.178.04"),
        (nvidia_apt.packages, "ubuntu2604", "595.91.07"),
        (nvidia_apt.packages, "debian13", "595.91.07"),
        (nvidia_dnf.packages, "rocky8", "570.211.01"),
        (nvidia_dnf.packages, "rocky10", "595.91.07"),
    ],
)
def test_a_set_is_whole(make: Make, key: str, version: str) -> None:
    """Every relation to a package of the driver can be met from the set; no two packages have the same file, unless
    they conflict."""
    made = make(DISTRIBUTIONS[key], version)
    assert len(made) == len(by_name(made))
    given = {package.name for package in made} | {p.split(" ")[0] for package in made for p in package.provides}
    wanted = {relation.split(" ")[0] for package in made for relation in package.requires}
    assert {name for name in wanted - given if "nvidia" in name or "cuda" in name} == set()
    owners: dict[str, Standin] = {}
    for package in made:
        for path in package.files:
            other = owners.setdefault(path, package)
            if other is not package:
                assert set(other.conflicts) & {package.name, *package.provides}, path


@pytest.mark.parametrize(
    ("make", "key", "source"),
    [
        (ubuntu.packages, "ubuntu2404", "distribution"),
        (nvidia_apt.packages, "ubuntu2204", "nvidia"),
        (nvidia_apt.packages, "debian12", "nvidia"),
        (nvidia_dnf.packages, "rocky8", "nvidia"),
        (nvidia_dnf.packages, "rocky10", "nvidia"),
    ],
)
@pytest.mark.parametrize("version", ["570.211.01", "580.95.05", "595.91.07"])
def test_what_the_catalogue_names_is_on_offer(make: Make, key: str, source: Repository, version: str) -> None:
    known = DISTRIBUTIONS[key]
    wanted = names(known, source, version)
    assert len(wanted) > 5
    assert set(wanted) <= {package.name for package in make(known, version)}


@pytest.mark.parametrize("key", ["debian12", "ubuntu2404", "rocky9", "amazon2023", "sles15"])
def test_every_repository_of_nvidias_packages_has_the_subnet_manager(key: str) -> None:
    made = by_name(extras(DISTRIBUTIONS[key], "nvidia"))
    assert "/opt/nvidia/nvlsm/sbin/nvlsm" in made["nvlsm"].files


@needs_dpkg
def test_a_deb_has_relations_epoch_and_mark(tmp_path: Path) -> None:
    package = Standin("a", "1-2", "A", requires=("b (= 1)", "c"), epoch=1, source="s").instead_of("v")
    (made,) = debs.build(tmp_path, [package])
    told = subprocess.run(["dpkg-deb", "--field", made], check=True, capture_output=True, text=True).stdout
    rows = ("Version: 1:1-2", "Depends: b (= 1), c", "Provides: v", "Conflicts: v", "Replaces: v", "Source: s")
    assert not [row for row in (*rows, debs.MARK) if row not in told]


@pytest.mark.install
@needs_rpmbuild
def test_rpms_of_two_versions_with_scripts_and_marks(tmp_path: Path) -> None:
    files = {"/usr/bin/a": text("#!/bin/sh\n", 0o755), "/etc/a.conf": text("a")}
    script = {"post": 'echo "${1%/x}" 100%\n'}
    packages = [
        Standin("a", f"{version}-1.el9", "A", files=files, epoch=3, requires=("b = 3:1",), scripts=script)
        for version in ("1", "2")
    ]
    made = rpms.build(tmp_path, [*packages, Standin("b", "1-1", "B")])
    assert sorted(file.name for file in made) == ["a-1-1.el9.x86_64.rpm", "a-2-1.el9.x86_64.rpm", "b-1-1.x86_64.rpm"]
    query = ["rpm", "-qp", "--qf", "%{EPOCH} %{SUMMARY}\n%{POSTIN}", "--requires", "--configfiles"]
    told = subprocess.run(
        [*query, tmp_path / "a-2-1.el9.x86_64.rpm"], check=True, capture_output=True, text=True
    ).stdout
    for words in ("3 A", debs.MARK, "b = 3:1", "/etc/a.conf", 'echo "${1%/x}" 100%'):
        assert words in told


@pytest.mark.parametrize(
    ("distribution", "version", "name", "full"),
    [
        ("ubuntu2404", "570.211.01", "nvidia-dkms-570-open", "570.211.01-0ubuntu1"),
        ("ubuntu2404", "580.95.05", "libnvidia-compute-580", "580.95.05-0ubuntu1"),
        ("ubuntu2204", "580.159.03", "libnvidia-compute-580", "580.159.03-1ubuntu1"),
        ("ubuntu2404", "590.48.01", "nvidia-dkms-open", "590.48.01-1ubuntu1"),
        ("debian12", "590.48.01", "nvidia-kernel-open-dkms", "590.48.01-1"),
    ],
)
def test_nvidias_apt_names_lose_their_suffix(distribution: str, version: str, name: str, full: str) -> None:
    made = by_name(nvidia_apt.packages(DISTRIBUTIONS[distribution], version))
    assert made[name].version == full
    assert {"cuda-drivers", "nvidia-open"} <= made.keys()


def test_module_streams() -> None:
    documents = list(yaml.safe_load_all(nvidia_dnf.modulemd(ROCKY9, ["570.211.01", "580.178.04"])))
    found = {
        document["data"]["stream"]: document["data"] for document in documents if document["document"] == "modulemd"
    }
    assert set(found) == {"570", "570-open", "570-dkms", "580", "580-open", "580-dkms", "open-dkms", "latest-dkms"}
    precompiled = found["580"]["artifacts"]["rpms"]
    assert "kmod-nvidia-580.178.04-5.14.0-570.12.1-3:580.178.04-3.el9_6.x86_64" in precompiled
    assert "libnvidia-ml-3:580.178.04-1.el9.x86_64" in precompiled
    assert not [name for name in precompiled if "dkms" in name or ":570" in name]
    artifacts = found["580-open"]["artifacts"]["rpms"]
    assert "kmod-nvidia-open-dkms-3:580.178.04-1.el9.x86_64" in artifacts
    assert not [name for name in artifacts if name.startswith(("kmod-nvidia-latest", "cuda-drivers")) or ":570" in name]
    assert {"default", "ks", "fm"} <= set(found["580-dkms"]["profiles"])
    assert "nvidia-fabric-manager" in found["570-open"]["profiles"]["fm"]["rpms"]
    assert documents[-1]["data"]["stream"] == "latest-dkms"


def test_versions_on_offer() -> None:
    assert versions("570, 580.95.05 570") == ("570.211.01", "580.95.05")
    assert versions("") == versions("570,580")
    with pytest.raises(GpuprovError, match='driver is "699"'):
        versions("699")
