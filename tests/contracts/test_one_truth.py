"""Facts that two rooms need stand in one of them; where the other must repeat one, it is kept equal here."""

from __future__ import annotations

import pytest

from gpuprov import resolve
from gpuprov.catalog.driver_data import drivers_file
from gpuprov.catalog.driver_sets import kernel_module_table
from gpuprov.catalog.drivers import branches, kernel_modules_for
from gpuprov.catalog.gpus import Gpu, gpus


def test_the_resolver_repeats_the_catalogues_branches() -> None:
    modules = drivers_file().modules
    assert int(modules.open_first_branch.branch) == resolve.OPEN_SINCE
    assert int(modules.open_default_since.branch) == resolve.DEFAULT_OPEN_SINCE


@pytest.mark.parametrize("gpu", gpus(), ids=lambda gpu: str(gpu.key))
def test_catalogue_and_resolver_choose_the_same_modules(gpu: Gpu) -> None:
    for branch in branches():
        decided = resolve.flavour("auto", [gpu.pci_ids[0].id], kernel_module_table(), branch.branch)
        assert decided["flavour"] == kernel_modules_for(gpu, branch.branch).flavour
