"""The block `repository`: what may be written, and what is found out before any host is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Origin, format_path
from gpuprov.spec.problem import Path as SpecPath
from gpuprov.spec.repository import Repository, find_problems, list_fingerprints, locate_files
from tests import public_keys as made
from tests.rows import run_each

URL = "https://mirror.example/cuda/"
KEY_URL = "https://mirror.example/key.asc"


class Block(Fragment, frozen=True):
    """A capability's fragment."""

    version: str = "any"
    repository: Repository = Repository()


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "site.asc"
    file.write_text(made.GOOD)
    return str(file)


def told(**fields: Any) -> list[str]:
    return [
        f"{format_path(p.path)}: {p.message} | {p.fix}"
        for p in find_problems(Repository(**fields), ("dcgm", "repository"))
    ]


REFUSED = {
    "user name and password": {"url": "https://user:secret@mirror.example/"},
    "no scheme": {"url": "mirror.example/cuda"},
    "ftp": {"url": "ftp://mirror.example/cuda"},
    "a relative file": {"url": "file://cuda"},
    "two lines": {"url": "https://mirror.example/\nTrusted: yes"},
    "two suites": {"suite": "stable\nTrusted:yes"},
    "an option among components": {"components": ["main [trusted=yes]"]},
    "a key over plain http": {"key_url": "http://mirror.example/key.asc"},
    "a short id": {"fingerprint": "3BF863CC"},
    "a long id": {"fingerprint": "A4B469963BF863CC"},
    "no check": {"signed": "no"},
    "a misspelling": {"fingerprints": made.GOOD_FINGERPRINT},
}


@run_each("fields", REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_written(fields: dict[str, Any]) -> None:
    _, findings = convert(fields, Repository, ("repository",))
    assert len(findings) == 1
    assert findings[0][2], "a refusal without what is allowed"


TAKEN = [
    {"url": "http://mirror.example"},
    {"url": "file:///srv/mirror"},
    {"url": "https://mirror.example:8443/a/b/"},
    {"fingerprint": made.GOOD_FINGERPRINT.lower()},
    {"fingerprint": "EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC"},
    {"fingerprint": f"{made.GOOD_FINGERPRINT}, {made.OTHER_FINGERPRINT}"},
    {"fingerprint": "AB" * 32},
]


@run_each("fields", TAKEN, ids=str)
def test_what_can(fields: dict[str, Any]) -> None:
    assert convert(fields, Repository)[1] == []


def test_nothing_is_asked_for() -> None:
    assert told() == []


def test_good_ones(key: str) -> None:
    assert told(url=URL, key_file=key) == []
    assert told(url=URL, key_file=key, fingerprint=made.GOOD_FINGERPRINT) == []
    assert told(url=URL, key_url=KEY_URL, fingerprint=made.GOOD_FINGERPRINT) == []
    assert told(url=URL, suite="stable", components=("main",), key_file=key) == []


@run_each(
    ("fields", "words"),
    [
        ({"key_url": KEY_URL}, "dcgm.repository: dcgm.repository has no url"),
        ({"url": URL}, "dcgm.repository: dcgm.repository has no key"),
        ({"url": URL, "key_url": KEY_URL}, "dcgm.repository.key_url: dcgm.repository.key_url without a fingerprint"),
        ({"url": URL, "key_file": "/nowhere/k.asc"}, "key_file /nowhere/k.asc cannot be read: No such file"),
    ],
)
def test_bad_ones(fields: dict[str, Any], words: str) -> None:
    (problem,) = told(**fields)
    assert words in problem


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"key_url": KEY_URL}, "both key_file and key_url"),
        ({"suite": "stable"}, 'suite is "stable", and there are no components'),
        ({"components": ("main",)}, "components of a flat repository"),
        (
            {"fingerprint": made.OTHER_FINGERPRINT},
            f"its fingerprint is {made.GOOD_FINGERPRINT}, expected is {made.OTHER_FINGERPRINT}",
        ),
    ],
)
def test_bad_ones_with_a_key(key: str, fields: dict[str, Any], words: str) -> None:
    (problem,) = told(**{"url": URL, "key_file": key, **fields})
    assert words in problem


def test_an_expired_key_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "k.asc"
    file.write_text(made.EXPIRED)
    (problem,) = find_problems(Repository(url=URL, key_file=str(file)), ("dcgm", "repository"))
    assert problem.severity == "warning"
    assert "expired on 2020-01-02" in problem.message


def test_the_key_lies_beside_the_file_that_names_it() -> None:
    block = Block(repository=Repository(url=URL, key_file="keys/site.asc"))
    origins: dict[SpecPath, Origin] = {("dcgm", "repository", "key_file"): Origin("/fleet/group_vars/gpu.yml", 3, 5)}
    assert locate_files(block, "dcgm", origins).repository.key_file == "/fleet/group_vars/keys/site.asc"
    absolute = msgspec.structs.replace(block, repository=Repository(url=URL, key_file="/etc/site.asc"))
    assert locate_files(absolute, "dcgm", origins) is absolute
    assert locate_files(block, "dcgm", {}).repository.key_file == str(Path.cwd() / "keys/site.asc")


def test_expected_fingerprints(key: str) -> None:
    block = msgspec.to_builtins(Repository(url=URL, key_file=key))
    assert list_fingerprints(block) == [made.GOOD_FINGERPRINT]
    assert list_fingerprints(block | {"fingerprint": made.OTHER_FINGERPRINT.lower()}) == [made.OTHER_FINGERPRINT]
    with pytest.raises(OSError, match="No such file"):
        list_fingerprints(block | {"key_file": "/nowhere/k.asc"})
