"""What roles read is followed once for one state of gpuprov's files, and anew for another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprov.render import reached
from gpuprov.render.reach import Reach


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A user who has nothing kept; the roles that were followed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(reached, "_known", {})
    monkeypatch.setattr(reached, "files_as_they_are", lambda: "as-they-are")
    followed: list[str] = []

    def of_role(name: str) -> Reach:
        followed.append(name)
        return Reach({"roles/mig/tasks/install.yml": name}, frozenset({"word", name}), ("table",))

    monkeypatch.setattr(reached, "of_role", of_role)
    return followed


def test_what_an_earlier_run_has_followed_is_taken_from_it(follow: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = reached.of_roles(["mig"])
    monkeypatch.setattr(reached, "_known", {})
    second = reached.of_roles(["mig", "dcgm"])
    assert follow == ["mig", "dcgm"]
    assert second["mig"] == first["mig"]
    assert second["mig"].words == {"word", "mig"}
    monkeypatch.setattr(reached, "_known", {})
    assert reached.of_roles(["dcgm", "mig"])["dcgm"] == second["dcgm"]
    assert follow == ["mig", "dcgm"]


def test_with_other_files_it_is_followed_anew(follow: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reached.of_roles(["mig"])
    monkeypatch.setattr(reached, "_known", {})
    monkeypatch.setattr(reached, "files_as_they_are", lambda: "others")
    reached.of_roles(["mig"])
    assert follow == ["mig", "mig"]


def test_what_is_damaged_is_followed_anew(follow: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reached.of_roles(["mig"])
    monkeypatch.setattr(reached, "_known", {})
    monkeypatch.setattr("gpuprov.keep.read", lambda *_: b"no msgpack")
    reached.of_roles(["mig"])
    assert follow == ["mig", "mig"]


def test_a_file_that_was_written_is_noticed_whatever_its_times_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "roles" / "a.yml"
    file.parent.mkdir()
    file.write_text("one")
    (file.parent / "dangling").symlink_to("nowhere")
    monkeypatch.setattr(reached, "_files", lambda: reached._below(tmp_path))
    before, status = reached.files_as_they_are.__wrapped__(), file.stat()
    assert reached.files_as_they_are.__wrapped__() == before
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert reached.files_as_they_are.__wrapped__() != before


def test_every_file_that_could_be_followed_counts() -> None:
    there = {str(file) for file in reached._files()}
    for part in (
        "gpuprov/onhost/mig/fit.py",
        "roles/mig/tasks/configure.yml",
        "playbooks/site.yml",
        "plugins/action/gpuprov_judge.py",
    ):
        assert any(file.endswith(f"/{part}") for file in there), part
