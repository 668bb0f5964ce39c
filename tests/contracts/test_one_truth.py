"""Facts that two rooms need are in one of them; if the other must repeat one, both are kept equal here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from gpuprov.capabilities import CAPABILITIES
from gpuprov.catalog.chips import ChipsFile
from gpuprov.catalog.drivers.data import read_drivers_file
from gpuprov.catalog.gpus import ARCHITECTURES, list_gpus
from gpuprov.catalog.reader import load
from gpuprov.core import assets
from gpuprov.host_code.mig import nvml
from gpuprov.host_code.packages import model
from gpuprov.render.variables import fleet_variables
from gpuprov.rules import resolve
from gpuprov.simulate import nvml_models
from gpuprov.spec.model import BLOCKS, SITE_VARIABLES


def test_what_a_site_may_set_is_what_the_roles_have_defaults_for() -> None:
    files = (assets.root() / "roles").glob("*/defaults/main.yml")
    names = {name for file in files for name in yaml.safe_load(file.read_text(encoding="utf-8")) or {}}
    assert names == SITE_VARIABLES


def test_roles_and_plans_use_package_managers_alike() -> None:
    defaults = yaml.safe_load((assets.root() / "roles/host/defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults["host_package_lists_max_age"] == model.LISTS_MAX_AGE
    assert defaults["host_package_lock_timeout"] == model.Settings.lock_timeout


def test_the_resolver_repeats_the_catalogues_branches() -> None:
    modules = read_drivers_file().modules
    assert int(modules.open_first_branch.branch) == resolve.OPEN_SINCE
    assert int(modules.open_default_since.branch) == resolve.DEFAULT_OPEN_SINCE
    assert [(int(one.below, 16), int(one.last_branch)) for one in modules.older] == list(resolve.OLDER)
    known = load("chips", ChipsFile)
    needs = {one.arch: one.flavour for one in known.generations}
    new = [int(chip.first, 16) for chip in known.chips if needs[chip.arch] == "open-required"]
    assert min(new) == resolve.NEWER > max(int(chip.last, 16) for chip in known.chips if int(chip.first, 16) not in new)
    for gpu in list_gpus():
        for pci in gpu.pci_ids:
            last = resolve.last_branch([pci.id])
            assert last == (int(gpu.last_branch.branch) if gpu.last_branch else resolve.NO_LIMIT), pci.id
            assert (last < resolve.NO_LIMIT) == (gpu.kernel_modules.flavour == "proprietary-required"), pci.id


def test_generations_have_the_numbers_of_nvml() -> None:
    assert [gpu.arch for gpu in list_gpus()] == sorted((gpu.arch for gpu in list_gpus()), key=ARCHITECTURES.index)
    assert nvml_models.NVML_MAXWELL + ARCHITECTURES.index("Ampere") == nvml.AMPERE


def test_no_table_for_roles_reads_as_a_template() -> None:
    """`${#x}` of a shell script has `{#` in it, which begins a comment in Jinja."""

    def strings(value: object, place: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for key, item in value.items():
                yield from strings(item, f"{place}.{key}")
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from strings(item, f"{place}[{index}]")
        elif isinstance(value, str):
            yield place, value

    read = [place for place, text in strings(fleet_variables(), "") if re.search(r"\{[{%#]", text)]
    assert not read


def test_no_check_takes_a_unit_that_no_probe_asks_for_for_one_that_is_missing() -> None:
    """`units[NAME]` tells them apart; with `units.get(NAME, MISSING)` such a check is red for ever."""
    package = Path(__file__).parents[2] / "gpuprov"
    sources = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert [path for path, text in sources.items() if re.search(r"\.get\([^()]*\bsystemd\.MISSING\)", text)] == []


def test_what_a_spec_may_ask_for_is_the_registry() -> None:
    names = {one.name for one in CAPABILITIES}
    assert not names - BLOCKS, f"add to BLOCKS in gpuprov/spec/model.py: {', '.join(sorted(names - BLOCKS))}"
    assert not BLOCKS - names, f"take out of BLOCKS in gpuprov/spec/model.py: {', '.join(sorted(BLOCKS - names))}"
