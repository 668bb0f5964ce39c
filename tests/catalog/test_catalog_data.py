"""The facts themselves: complete, sourced, consistent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpuprov.catalog import cuda, distributions, drivers, mig, packages, reader, symptoms
from gpuprov.catalog.chips import cards
from gpuprov.catalog.drivers.data import read_drivers_file
from gpuprov.catalog.gpus import GpusFile, list_gpus
from gpuprov.core.errors import GpuprovError
from tests.rows import run_each

DATA = Path(reader.__file__).parent / "data"
FILES = sorted(file.stem for file in DATA.glob("*.yaml"))


@cache
def raw(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.load((DATA / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return data


def mappings(data: object, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(data, dict):
        yield path, data
        for key, value in data.items():
            yield from mappings(value, f"{path}.{key}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from mappings(value, f"{path}[{number}]")


def facts(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    data = raw(name)
    yield from ((path, entry) for path, entry in mappings({k: v for k, v in data.items() if k != "sources"}))


def sources_of(name: str) -> set[str]:
    """The sources that the file's own facts name."""
    used: set[str] = set()
    for path, entry in facts(name):
        if "source" in entry:
            assert entry["source"], f"{name}{path} has no source"
            used.update(entry["source"])
    return used


def list_unknown_sources(name: str) -> Iterator[str]:
    """Yield sources that an entry names and no table has, each with its entry."""
    known = set(raw(name)["sources"]).union(*(raw(other)["sources"] for other in raw(name).get("sources_of", [])))
    for path, entry in facts(name):
        for source in entry.get("source", []):
            if source not in known:
                what = entry.get("key") or entry.get("name") or path.lstrip(".")
                yield f'{name}.yaml: {what}: source "{source}" is not in the table `sources` of this file: add it there'


def test_every_source_resolves() -> None:
    unknown = [problem for name in FILES for problem in list_unknown_sources(name)]
    assert not unknown, "\n".join(unknown)


@pytest.mark.install
@pytest.mark.parametrize("name", FILES)
def test_every_source_is_used(name: str) -> None:
    users = [name, *(other for other in FILES if name in raw(other).get("sources_of", []))]
    unused = set(raw(name)["sources"]) - set().union(*(sources_of(other) for other in users))
    assert not unused, f"{name}.yaml: no entry names {', '.join(sorted(unused))}: take it out of `sources`"


@run_each("name", FILES)
def test_every_entry_of_a_list_has_a_source(name: str) -> None:
    for table, entries in raw(name).items():
        if isinstance(entries, list):
            for entry in (row for row in entries if isinstance(row, dict)):
                assert entry.get("source"), f"{name}.{table}: {entry}"


def test_unsure_names_fields_that_exist_and_are_less_than_confirmed() -> None:
    data = read_drivers_file()
    tables: tuple[tuple[msgspec.Struct, ...], ...] = (
        list_gpus(),
        data.branches,
        data.package_sets,
        data.offers,
        data.origins,
        data.settings,
    )
    for entry in (entry for table in tables for entry in table):
        unsure: dict[str, str] = msgspec.to_builtins(entry)["unsure"]
        for field, confidence in unsure.items():
            assert field in entry.__struct_fields__
            assert confidence != "confirmed"


@pytest.mark.install
@pytest.mark.parametrize("name", FILES)
def test_python_reads_it_without_libyaml(name: str) -> None:
    """PyYAML is installed without its C library where there is no wheel, and its own scanner is the stricter one."""
    assert list(yaml.parse((DATA / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.SafeLoader))


@run_each("name", FILES)
def test_nothing_of_a_private_machine(name: str) -> None:
    text = (DATA / f"{name}.yaml").read_text(encoding="utf-8").replace("/tmp/nvidia-mps", "")
    for word in ("/tmp/", "/home/", "localhost:", "artifactory", "nexus"):
        assert word not in text


def test_complete() -> None:
    """No table was cut short: a row more needs no edit here."""
    assert len(list_gpus()) >= 100 + len(cards())
    assert len(mig.list_classes()) >= 15
    assert sum(len(entry.profiles) for entry in mig.list_classes()) >= 113
    assert len(drivers.list_branches()) >= 27
    assert len(cuda.list_toolkits()) >= 58
    assert len(cuda.list_families()) >= 3
    assert {x for s in symptoms.list_symptoms() for x in s.xids} >= {
        8,
        13,
        31,
        48,
        63,
        64,
        74,
        79,
        94,
        95,
        119,
        154,
        169,
    }
    assert sum(bool(s.xids) for s in symptoms.list_symptoms()) >= 67
    assert sum(not s.xids for s in symptoms.list_symptoms()) >= 179  # none is lost


def test_no_pci_id_or_name_twice() -> None:
    devices = [pci for gpu in list_gpus() for pci in gpu.pci_ids]
    shared = {pci.id for pci in devices if sum(other.id == pci.id for other in devices) > 1}
    assert shared == {"10de:2bb3", "10de:1e30", "10de:1e78"}
    known = [(pci.id, subsystem) for pci in devices for subsystem in pci.subsystems]
    assert len(known) == len(set(known)), "two models with one id are told apart by their subsystems"
    names = [name.casefold() for gpu in list_gpus() for name in {gpu.key, *(alias.name for alias in gpu.aliases)}]
    assert len(names) == len(set(names))


def test_pci_ids_have_their_form() -> None:
    for gpu in list_gpus():
        for pci in gpu.pci_ids:
            for text in (pci.id, *pci.subsystems):
                assert len(text) == 9
                assert text[4] == ":"
                assert text == text.lower()


def test_mig_classes_exist_and_are_used() -> None:
    known = {entry.name for entry in mig.list_classes()}
    used = {gpu.mig.profile_class for gpu in list_gpus() if gpu.mig.profile_class}
    assert used == known
    for gpu in list_gpus():
        assert gpu.mig.capable or not (gpu.mig.profile_class or gpu.mig.max_instances or gpu.mig.min_driver)


def test_mig_profiles_fit_their_grid() -> None:
    nvml = {entry.id for entry in reader.load("mig", mig.MigFile).nvml_profiles}
    for entry in mig.list_classes():
        names = [profile.name for profile in entry.profiles]
        assert len(names) == len(set(names))
        for profile in entry.profiles:
            assert (profile.size is None) == (not profile.starts) == (profile.nvsmi_id is None)
            assert profile.nvml_id is None or profile.nvml_id in nvml
            if profile.size:
                assert entry.grid_size
                assert min(profile.starts) >= 0
                assert max(profile.starts) + profile.size <= entry.grid_size
                limited = any(attribute.startswith("me") for attribute in profile.attributes)
                assert limited or profile.max_count <= len(profile.starts)
            else:
                assert profile.placement_confidence == "unconfirmed"


def test_branches_are_in_order_and_toolkits_name_known_branches() -> None:
    numbers = [int(entry.branch) for entry in drivers.list_branches()]
    assert numbers == sorted(set(numbers))
    for row in cuda.list_toolkits():
        branch = row.branch or drivers.derive_branch(row.driver)
        if int(branch) >= 418:
            reported = cuda.find_max_cuda(branch)
            assert reported
            assert row.cuda.startswith(reported), row


def test_gpus_name_known_branches() -> None:
    known = {entry.branch for entry in drivers.list_branches()}
    for gpu in list_gpus():
        for fact in (gpu.min_branch, gpu.last_branch):
            assert fact is None or fact.branch in known
        assert gpu.fabric_manager.min_branch in {"", *known}


def test_package_sets_name_known_things() -> None:
    data = read_drivers_file()
    places = {entry.key for entry in distributions.list_distributions()}
    archives = {entry.key for entry in data.origins} | {"distribution"}
    for entry in data.package_sets:
        assert set(entry.distributions) <= places
        assert entry.origin in archives
        assert packages.list_package_names(entry, "580.65.06", kernel="6.1.0-1-amd64", kernel_flavour="generic")
        assert not (entry.min_branch and entry.max_branch) or int(entry.min_branch) <= int(entry.max_branch)
    for offer in data.offers:
        assert offer.distribution in places
        assert offer.origin in archives


def test_broken_data_is_an_error_that_names_file_and_field() -> None:
    with pytest.raises(GpuprovError, match=r"x\.yaml: .*archh"):
        reader.convert_to({"sources": {}, "gpus": [{"key": "A", "archh": "B"}]}, GpusFile, "x.yaml")
    with pytest.raises(GpuprovError, match=r"x\.yaml: not YAML"):
        reader.read_yaml("a: [", "x.yaml")
    with pytest.raises(GpuprovError, match="cannot be read"):
        reader.load("none", GpusFile)


def test_import_is_light() -> None:
    code = (
        "import gpuprov.catalog, sys; print([m for m in ('ansible', 'testinfra', 'yaml', 'click') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
