"""Checkpoints in a folder of the test's own, without packages."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpuprov.host_code import checkpoints, files, kept_debs, kept_files, kept_rpms, lock, process
from gpuprov.host_code.fence import Owner
from gpuprov.host_code.kept_files import Answer, Request
from gpuprov.host_code.packages.model import Refused
from tests.here import program

MINE, OTHERS = (process.describe(run, "0.1.0") for run in ("mine", "others"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "checkpoints"
    names = {
        "FOLDER": folder,
        "POOL": tmp_path / "packages",
        "TARGET": folder / "target.json",
        "LAST": folder / "last.json",
    }
    for name, path in names.items():
        monkeypatch.setattr(checkpoints, name, str(path))
    for name, file in {"BASE": "run", "LOCK": "run/lock", "KEPT": "lock"}.items():
        monkeypatch.setattr(lock, name, str(tmp_path / file))
    monkeypatch.setattr("gpuprov.host_code.family.read_family", lambda: "")  # no package manager that is known
    return folder


def keep(run: str, **spec: Any) -> None:
    checkpoints.keep({"run": run, "owner": MINE, "checkpoint": {"schema": 1, "spec": spec, "digests": []}})


def begin(run: Any, owner: Owner = MINE) -> Answer:
    return checkpoints.begin({"run": run, "owner": owner})


def end(owner: Owner = MINE, *, over: bool = False, arrived: str = "") -> None:
    checkpoints.end_request({"owner": owner, "over": over, "arrived": arrived})


def target(place: Path) -> str:
    """The checkpoint that a rollback goes to."""
    file = place / "target.json"
    return str(json.loads(file.read_text())["run"]) if file.exists() else ""


def there(place: Path) -> set[str]:
    return {path.name for path in place.iterdir() if path.is_dir()}


def test_the_newest_three_stay_each_state_once(place: Path) -> None:
    for number, run in enumerate(("a", "b", "c", "d")):
        keep(run, number=number)
    assert there(place) == {"b", "c", "d"}
    keep("e", number=2)
    assert there(place) == {"b", "d", "e"}, "c was the like of e"
    assert json.loads((place / "last.json").read_text())["run"] == "e"
    assert (place.stat().st_mode & 0o777, (place / "e" / "checkpoint.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_where_a_rollback_goes_is_noted_until_it_is_there(place: Path) -> None:
    keep("a", number=1)
    keep("b", number=2)
    assert begin("a") == {"offered": [], "missing": [], "unasked": ""}
    end()
    assert target(place) == "a", "it failed, or waits for a reboot: the next one goes on"
    begin("b", OTHERS)
    end(OTHERS, over=True)
    assert target(place) == "a", "the second was left alone: the first has not ended"
    begin("a")
    end(arrived="a")
    assert target(place) == "a", "it may be killed before it says so: done again it goes there, and no further"
    checkpoints.forget_target({"owner": OTHERS})
    assert target(place) == "a"
    checkpoints.forget_target({"owner": MINE})
    checkpoints.forget_target({"owner": MINE})
    assert target(place) == ""
    last = json.loads((place / "last.json").read_text())
    assert (last["run"], last["at"] > json.loads((place / "b/checkpoint.json").read_text())["at"]) == ("a", True)
    begin("b")
    end(over=True)
    assert target(place) == ""


def test_a_second_operator_has_no_part_in_a_rollback(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("a", number=1)
    keep("b", number=2)
    source = tmp_path / "kept.sources"
    monkeypatch.setattr(kept_debs, "SOURCE", str(source))
    monkeypatch.setattr("gpuprov.host_code.family.read_family", lambda: "debian")
    monkeypatch.setattr(kept_debs, "offered", lambda _: {})
    assert "locked" not in begin("a")
    source.write_text("of the first")
    locked = begin("b", OTHERS)["locked"]
    assert locked["holder"]
    assert (locked["taken"], locked["holder"]["run"]) == (False, "mine")
    end(OTHERS, over=True)
    assert (target(place), source.exists(), (lock.read_owner_file() or "") != "") == ("a", True, True)
    request: Request = {"run": "c", "owner": OTHERS, "checkpoint": {"spec": {}, "digests": []}}
    with pytest.raises(ValueError, match=r"another run has the host's lock by now \(mine\)"):
        checkpoints.keep(request)
    assert source.exists()
    end(arrived="a")
    assert (target(place), source.exists(), lock.read_owner_file()) == ("a", False, None)
    assert "locked" not in begin("b", OTHERS)


def test_a_name_is_no_way_out_of_the_folder(place: Path) -> None:
    for name in ("../x", "", ".", "a/b", 7):
        with pytest.raises(ValueError, match="not a name of a run"):
            begin(name)


@pytest.mark.parametrize(("family", "kind"), [("debian", kept_debs), ("redhat", kept_rpms), ("suse", kept_rpms)])
def test_what_offered_the_files_goes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, kind: ModuleType
) -> None:
    source = tmp_path / "kept.sources"
    source.write_text("Types: deb\n")
    monkeypatch.setattr(kept_debs, "SOURCE", str(source))
    monkeypatch.setattr(kept_rpms, "SOURCES", {family: str(source)})
    monkeypatch.setattr(kept_rpms, "FOLDER", str(tmp_path / "offered"))
    monkeypatch.setattr("gpuprov.host_code.family.read_family", lambda: family)
    monkeypatch.setattr(kind, "list_kept", list)
    (tmp_path / "offered").mkdir()
    keep("a")
    assert not source.exists(), "a rollback that was killed had left it"
    assert kind is kept_debs or not (tmp_path / "offered").exists()


def test_a_file_that_was_cut_off_is_brought_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = kept_files.Kept("libcuda1", "570.1-1", kept_files.make_file_name("libcuda1", "570.1-1", "amd64", "deb"))
    file, brought = place.parent / "packages" / package.file, []

    def bring(lacking: list[kept_files.Kept], pool: str, free: int) -> None:
        brought.append([one.name for one in lacking])
        for one in lacking:
            Path(pool, one.file).write_text("whole")

    monkeypatch.setattr("gpuprov.host_code.family.read_family", lambda: "debian")
    monkeypatch.setattr(kept_debs, "list_kept", lambda: [package])
    monkeypatch.setattr(kept_debs, "bring", bring)
    file.parent.mkdir()
    file.write_text("who")  # a kill or a loss of power, before any checkpoint named it
    for number, run in enumerate("ab"):
        keep(run, number=number)
    assert (brought, file.read_text()) == ([["libcuda1"], []], "whole"), "what a checkpoint names is not brought again"
    file.write_text("")
    keep("c", number=2)
    told = json.loads((place / "c" / "checkpoint.json").read_text())
    assert (brought[2], told["files"]) == (["libcuda1"], {package.file: files.compute_digest(str(file))})


def test_a_rollback_that_cannot_begin_leaves_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("a")
    source = tmp_path / "kept.sources"

    def offered(names: list[str]) -> None:
        source.write_text("Trusted: yes\n")
        raise ValueError("apt-get update fails")

    monkeypatch.setattr(kept_debs, "SOURCE", str(source))
    monkeypatch.setattr("gpuprov.host_code.family.read_family", lambda: "debian")
    monkeypatch.setattr(kept_debs, "offered", offered)
    with pytest.raises(ValueError, match="update fails"):
        begin("a")
    assert (source.exists(), target(place), lock.read_owner_file()) == (False, "", None)


@pytest.mark.parametrize(("kept", "missing"), [(True, ["nvidia-smi"]), (False, ["libcuda1", "nvidia-smi"])])
def test_repositories_that_do_not_answer_keep_no_rollback_from_the_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, missing: list[str]
) -> None:
    file, offers = kept_files.make_file_name("libcuda1", "3:570-1", "x86_64", "rpm"), []
    pool = place.parent / "packages"
    pool.mkdir()
    (pool / file).write_text("whole")
    (place / "a").mkdir(parents=True)
    told = {"run": "a", "packages": {"libcuda1": "3:570-1", "nvidia-smi": "3:570-1"}}
    told["files"] = {file: files.compute_digest(str(pool / file))} if kept else {}
    (place / "a" / "checkpoint.json").write_text(json.dumps(told))

    def offered(_names: list[str]) -> None:
        raise Refused("dnf: Failed to download metadata for repo 'cuda'")

    monkeypatch.setattr("gpuprov.host_code.family.read_family", lambda: "redhat")
    monkeypatch.setattr(kept_rpms, "withdraw", lambda: None)
    monkeypatch.setattr(kept_rpms, "offered", offered)
    monkeypatch.setattr(kept_rpms, "offer", lambda files, _pool: offers.extend(files))
    assert begin("a") == {
        "offered": ["libcuda1"] if kept else [],
        "missing": missing,
        "unasked": "dnf: Failed to download metadata for repo 'cuda'",
    }
    assert offers == ([file] if kept else [])


def test_what_there_is_no_room_for_is_not_downloaded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"a": 600, "b": 500, "c": 300, "d": 0}
    mine = [
        kept_files.Kept(name, "1", kept_files.make_file_name(name, "1", "all", "deb"), size)
        for name, size in sizes.items()
    ]
    brought: list[str] = []

    def bring(lacking: list[kept_files.Kept], pool: str, _free: int) -> None:
        for one in lacking:
            brought.append(one.name)
            Path(pool, one.file).write_text("x" * (one.size or 200))

    monkeypatch.setattr("gpuprov.host_code.family.read_family", lambda: "debian")
    monkeypatch.setattr(kept_debs, "list_kept", lambda: mine)
    monkeypatch.setattr(kept_debs, "bring", bring)
    monkeypatch.setattr(checkpoints, "BYTES", 1000)
    answer = checkpoints.keep({"run": "a", "owner": MINE, "checkpoint": {"schema": 1, "spec": {}, "digests": []}})
    assert brought == ["a", "c", "d"]
    assert answer["left_out"] == ["b", "d"], "of d nobody said how large it is"


def test_repositories_that_do_not_answer_keep_no_checkpoint_from_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ["libcuda1", "3", "570-1", "x86_64", "nvidia-570-1.src.rpm", "abc", "def", "1000"]
    asked = []

    class Unanswered:
        def read(self, names: list[str]) -> None:
            asked.extend(names)
            raise Refused("dnf: Failed to download metadata for repo 'cuda'")

    monkeypatch.setattr(kept_rpms, "list_rows", lambda: [row])
    monkeypatch.setattr(kept_rpms, "list_cached", list)
    monkeypatch.setattr(kept_rpms, "get_manager", Unanswered)
    kept_rpms.bring([kept_files.Kept("libcuda1", "3:570-1", kept_rpms.find_file(row), 1000)], str(tmp_path), 0)
    assert asked == ["libcuda1"]
    assert not list(tmp_path.iterdir())


SHOWN = """Package: libcuda1
Architecture: amd64
Version: 570.1-1
Size: 1234
Description: a
 Size: 5

Package: libcuda1
Architecture: i386
Version: 570.1-1
Size: 77

Package: nvidia-smi
Status: install ok installed
Architecture: amd64
Version: 570.1-1
"""


def test_debs_are_as_large_as_apts_lists_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(
        tmp_path,
        "dpkg-query",
        """printf '%s\\n' 'hi |libcuda1|570.1-1|nv|570.1-1|amd64' 'ii |nvidia-smi|570.1-1|nv|570.1-1|amd64'""",
    )
    program(tmp_path, "apt-mark", "echo libcuda1")
    program(
        tmp_path,
        "apt-cache",
        f"[ \"$*\" = 'show libcuda1=570.1-1 nvidia-smi=570.1-1' ] && cat << 'END'\n{SHOWN}END\nexit 100",
    )
    assert [(one.name, one.size) for one in kept_debs.list_kept()] == [("libcuda1", 1234), ("nvidia-smi", 0)]


def test_nobody_else_can_keep_the_program_from_its_work(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"action": "end", "owner": MINE})))
    checkpoints.main()
    assert json.loads(capsys.readouterr().out) == {}
    assert ((tmp_path / "run/.checkpoints.guard").stat().st_mode & 0o777) == 0o600
