"""DOCA-OFED's stand-ins: the names that the catalogue has, and that each says what it is."""

from __future__ import annotations

import pytest

from gpuprov.catalog.rdma import ofed as catalogue
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.rdma.ofed import release
from gpuprov.simulate.description import Description, Gpus, check
from gpuprov.simulate.parts import ofed
from gpuprov.simulate.standins import ofed as standins_ofed
from tests.rows import run_each

PACKAGES = {package.name: package for package in standins_ofed.packages()}


def test_the_repository_has_the_catalogues_packages() -> None:
    assert set(catalogue.list_packages("debian")) <= set(PACKAGES)
    assert release(standins_ofed.VERSION) == "25.10-1.7.1.1"
    (profile,) = [PACKAGES[catalogue.PROFILE]]
    assert "openmpi (= 4.1.9a1-1.2510171)" in profile.requires, "as the real one, in exactly one version"
    assert set(standins_ofed.MODULES) == set(catalogue.list_modules("dkms"))


@run_each("file", sorted(standins_ofed.FILES.iterdir()), ids=lambda file: str(file.name))
def test_each_file_says_that_it_stands_in(file: object) -> None:
    text = getattr(file, "read_text")(encoding="utf-8")  # noqa: B009
    assert "stand-in" in text or "gpuprov simulat" in text


def test_a_container_with_hcas_has_the_folders_of_rdma_cm() -> None:
    gpu = Gpus(model="H100-SXM5-80GB", count=1)
    assert ofed.part("h", Description(gpu=gpu, hcas=1)).units == (ofed.UNIT,)
    assert not ofed.part("h", Description(gpu=gpu)).files
    assert not ofed.part("h", Description(gpu=gpu, hcas=1, kind="machine")).files


def test_ofed_is_for_apt_only() -> None:
    check(Description(ofed=True))
    with pytest.raises(GpuprovError, match="takes no packages for apt"):
        check(Description(distribution="rocky9", ofed=True))
