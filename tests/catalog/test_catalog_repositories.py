"""NVIDIA's repositories and keys: nothing is trusted by default that no public source confirms."""

from __future__ import annotations

import re

import pytest

from gpuprov.catalog import repositories as catalogue
from gpuprov.catalog.distributions import list_distributions
from gpuprov.spec.build import convert
from gpuprov.spec.repository import Repository, find_problems
from tests.rows import run_each

FILE = catalogue.read_repositories_file()


@run_each("key", FILE.keys, ids=lambda key: str(key.id))
def test_a_key_has_a_whole_fingerprint_or_none(key: catalogue.Key) -> None:
    assert re.fullmatch(r"([0-9A-F]{40})?", key.fingerprint)
    assert key.fingerprint.endswith(key.id) or not key.fingerprint
    assert bool(key.fingerprint) == (key.confidence == "confirmed")


@run_each("entry", [*FILE.keys, *FILE.retired, *FILE.notes], ids=str)
def test_sources_are_known(entry: catalogue.Key) -> None:
    assert entry.source
    assert set(entry.source) <= set(FILE.sources)


def test_repositories_are_signed_by_known_keys() -> None:
    assert {row.cuda.signed_by for row in list_distributions() if row.cuda} <= {key.id for key in FILE.keys}
    assert {name for entry in FILE.retired for name in entry.successors} <= {key.id for key in FILE.keys}


FOUND = {
    **{f"cuda {row.key} {m}": catalogue.find_cuda_repository(row.key,
                                                             m) for row in list_distributions() for m in catalogue.FOLDERS},
    **{f"toolkit {f} {m}": catalogue.find_toolkit_repository(f, m) for f in ("debian",
                                                                             "redhat") for m in catalogue.DEBIAN},
}  # fmt: skip
BLOCKS = [(name, block) for name, block in FOUND.items() if block]


@run_each("block", [pytest.param(block, id=name) for name, block in BLOCKS])
def test_every_block_is_one_that_a_spec_could_have(block: dict[str, object]) -> None:
    typed, findings = convert(block, Repository)
    assert findings == []
    found = list(find_problems(typed, ("repository",)))
    assert [problem.path for problem in found] == ([] if block["fingerprint"] else [("repository", "key_url")])
    assert str(block["key_url"]).startswith("https://")


@run_each(
    ("distribution", "key"),
    [
        *(("ubuntu2404", "3bf863cc"), ("debian12", "3bf863cc"), ("debian13", "8793F200")),
        *(("amzn2023", "D42D0685"), ("azl3", "D42D0685")),
    ],
)
def test_arm_servers_have_a_folder_of_their_own(distribution: str, key: str) -> None:
    found = catalogue.find_cuda_repository(distribution, "aarch64")
    assert found
    assert found["url"] == f"https://developer.download.nvidia.com/compute/cuda/repos/{distribution}/sbsa/"
    assert found["key_url"] == found["url"] + f"{key}.pub"
    assert str(found["fingerprint"]).endswith(key.upper())


@run_each(("distribution", "machine"), [("leap15", "aarch64"), ("ubuntu1604", "x86_64"), ("rhel9", "riscv64")])
def test_no_repository(distribution: str, machine: str) -> None:
    assert catalogue.find_cuda_repository(distribution, machine) is None


def test_the_toolkits_rpm_packages_are_not_signed_but_their_index_is() -> None:
    found = catalogue.find_toolkit_repository("redhat")
    assert found
    assert found["signed"] == "index"
    assert catalogue.find_toolkit_repository("debian", "s390x") is None


def test_what_no_source_confirms_is_no_default() -> None:
    found = catalogue.find_cuda_repository("rhel10")
    assert found
    assert found["fingerprint"] == ""
