"""Text files as they should be."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code import files
from gpuprov.host_code.files import PYTHON, Difference, Refused, Wanted, bring_about, list_differences, merge_lines
from tests import here
from tests.host_code.modules import on_host, ran
from tests.rows import run_each


def test_a_file_is_written_once_with_its_folders(tmp_path: Path) -> None:
    place = str(tmp_path / "etc/gpuprov/a.conf")
    wanted = [Wanted(place, "a = 1\n")]
    assert list_differences(wanted) == [Difference(place, None, "a = 1\n")]
    assert not Path(place).exists(), "asking changes nothing"
    assert bring_about(wanted) == [Difference(place, None, "a = 1\n")]
    assert Path(place).read_text() == "a = 1\n"
    assert Path(place).stat().st_mode & 0o7777 == 0o644
    assert Path(place).parent.stat().st_mode & 0o7777 == 0o755
    assert bring_about(wanted) == [], "a second run changes nothing"
    assert os.listdir(Path(place).parent) == ["a.conf"], "nothing is left beside it"


def test_empty_folders_of_its_own_go_with_their_last_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ABOVE", str(tmp_path / "lib/gpuprov"))
    monkeypatch.setattr(files, "SETTINGS", str(tmp_path / "etc/gpuprov"))
    there = [tmp_path / name for name in ("lib/gpuprov/mps/a.py", "etc/gpuprov/a.json", "etc/profile.d/a.sh")]
    bring_about([Wanted(str(place), "a\n") for place in there])
    beside = tmp_path / "etc/gpuprov/kubernetes/b.yaml"
    bring_about([Wanted(str(beside), "b\n")])
    bring_about([Wanted(str(place), None) for place in there])
    assert not (tmp_path / "lib/gpuprov").exists()
    assert beside.exists()
    assert (tmp_path / "etc/profile.d").is_dir(), "a folder of others stays"


def test_a_file_is_removed_only_as_it_was_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs, link = (tmp_path / name for name in ("mine", "theirs", "link"))
    for one in (mine, theirs):
        one.write_text("a\n")
    digest = hashlib.sha256(b"a\n").hexdigest()
    theirs.write_text("b\n")
    link.symlink_to(theirs)
    given = {str(one): digest for one in (mine, theirs, link, tmp_path / "gone")}
    done = ran(capsys, "gpuprov_files", absent_if=given)
    assert done["paths"] == [str(mine)]
    assert [one.name for one in sorted(tmp_path.iterdir())] == ["link", "theirs"]
    assert len(done["warnings"]) == 2
    assert "changed by others" in str(done["warnings"])


def test_a_mode_alone_is_put_right_without_writing(tmp_path: Path) -> None:
    place = tmp_path / "run.sh"
    place.write_text("#!/bin/sh\n")
    place.chmod(0o600)
    before = place.stat().st_ino
    (changed,) = bring_about([Wanted(str(place), "#!/bin/sh\n", 0o755)])
    assert changed.shown()["before"] == "mode 0600\n"
    assert changed.shown()["after"] == "mode 0755\n"
    assert (place.stat().st_ino, place.stat().st_mode & 0o7777) == (before, 0o755)


def test_what_should_not_be_there_goes(tmp_path: Path) -> None:
    place = tmp_path / "old.conf"
    place.write_text("x\n")
    gone = Wanted(str(place), None)
    assert bring_about([gone])[0].shown()["after"] == ""
    assert not place.exists()
    assert bring_about([gone, Wanted(str(place / "below"), None)]) == []


def test_a_folder_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(Refused, match=r"is a folder, where gpuprov keeps a file\. Fix: move it away"):
        bring_about([Wanted(str(tmp_path / "first"), "x"), Wanted(str(place), "mine\n")])
    assert not (tmp_path / "first").exists()


def test_a_link_gives_way_to_a_file_and_is_never_followed(tmp_path: Path) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    other.write_text("of somebody\n")
    place.symlink_to(other)
    (changed,) = bring_about([Wanted(str(place), "ours\n")])
    assert changed.shown()["before"] == f"a link to {other}\n"
    assert (place.is_symlink(), place.read_text(), other.read_text()) == (False, "ours\n", "of somebody\n")
    place.unlink()
    place.symlink_to(other)
    bring_about([Wanted(str(place), None)])
    assert (place.is_symlink(), other.read_text()) == (False, "of somebody\n")


def test_lines_are_set_in_no_file_that_a_site_has_linked_elsewhere(tmp_path: Path) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    other.write_text("A=1\n")
    place.symlink_to(other)
    with pytest.raises(Refused, match="is a symbolic link, where gpuprov keeps a file"):
        bring_about([merge_lines(str(place), {"A": "2"})])
    assert other.read_text() == "A=1\n"


def test_a_file_with_lines_of_gpuprovs_is_not_left_for_others_to_write(tmp_path: Path) -> None:
    place = tmp_path / "daemon.cfg"
    place.write_text("A=1\n")
    place.chmod(0o666)
    bring_about([merge_lines(str(place), {"A": "1"})])
    assert place.stat().st_mode & 0o7777 == 0o644


def test_bytes_that_are_no_text_are_kept_apart(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_bytes(b"\xff\n")
    (changed,) = list_differences([Wanted(str(place), "x\n")])
    assert changed.before == "\udcff\n"


def test_keys_of_a_file_are_set_and_all_else_is_left(tmp_path: Path) -> None:
    place = tmp_path / "daemon.cfg"
    place.write_text("# FABRIC_MODE=9\nFABRIC_MODE=1\nLOG_LEVEL=4\n FABRIC_MODE = 2\nA.B=1")
    place.chmod(0o640)
    wanted = merge_lines(str(place), {"FABRIC_MODE": "0", "A.B": "2", "NEW": "x y"})
    bring_about([wanted])
    assert place.read_text() == "# FABRIC_MODE=9\nFABRIC_MODE=1\nLOG_LEVEL=4\nFABRIC_MODE=0\nA.B=2\nNEW=x y\n"
    assert place.stat().st_mode & 0o7777 == 0o640
    assert list_differences([merge_lines(str(place), {"FABRIC_MODE": "0", "NEW": "x y"})]) == []
    with pytest.raises(Refused, match=r"none\.cfg does not exist\. Fix: install what brings it"):
        merge_lines(str(tmp_path / "none.cfg"), {"A": "1"})
    assert merge_lines(str(tmp_path / "none.cfg"), {"A": "1"}, made=True).content == "A=1\n"


def test_a_pipe_in_the_place_of_such_a_file_is_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="is not a file"):
        bring_about([merge_lines(str(tmp_path / "pipe"), {"A": "2"})])


def test_the_module_sets_lines_and_in_check_mode_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "daemon.cfg"
    lines = [{"path": str(place), "keys": {"FABRIC_MODE": 0}}]
    planned = ran(capsys, "gpuprov_files", check=True, lines=lines)
    assert (planned["changed"], planned["diff"][0]["after"]) == (True, "FABRIC_MODE=0\n")
    assert "does not exist" in ran(capsys, "gpuprov_files", lines=lines)["msg"]
    place.write_text("FABRIC_MODE=1\n")
    assert ran(capsys, "gpuprov_files", lines=lines)["paths"] == [str(place)]
    assert place.read_text() == "FABRIC_MODE=0\n"
    assert not ran(capsys, "gpuprov_files", lines=lines)["changed"]
    relative = [{"path": "daemon.cfg", "keys": {}}]
    assert ran(capsys, "gpuprov_files", lines=relative)["msg"] == "daemon.cfg is not an absolute path"


def test_a_unit_is_started_by_the_python_of_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unit, other = tmp_path / "a.service", tmp_path / "a.conf"
    line = f"ExecStart={PYTHON} -B /a.py\n"
    done = ran(capsys, "gpuprov_files", units={str(unit): line}, files={str(other): line})
    assert done["changed"]
    assert unit.read_text() == f"ExecStart={sys.executable} -B /a.py\n"
    assert other.read_text() == line, "nothing else is a unit"


def test_a_program_is_no_difference_to_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task that says `diff: false`: plan prints what the module answers."""
    given: dict[str, Any] = {"programs": {str(tmp_path / "build.sh"): "#!/bin/sh\n"}, "check": True}
    assert ran(capsys, "gpuprov_files", **given)["diff"]
    found = ran(capsys, "gpuprov_files", diff=False, **given)
    assert (found["changed"], found["diff"]) == (True, [])


def test_a_problem_stops_it_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, Any] = {"files": {str(tmp_path / "a"): "x\n"}, "problem": "no module loads. Fix: build one"}
    assert ran(capsys, "gpuprov_files", **given)["msg"] == "no module loads. Fix: build one"
    assert not (tmp_path / "a").exists()
    planned = ran(capsys, "gpuprov_files", check=True, **given)
    assert (planned["changed"], planned["warnings"]) == (True, ["no module loads. Fix: build one"])


@run_each(
    ("number", "fix"),
    [
        (errno.EPERM, "chattr -i takes away"),
        (errno.EROFS, "findmnt -T"),
        (errno.ENOSPC, "df -i"),
        (errno.EIO, "see the file system of the host"),
    ],
)
def test_what_cannot_be_written_is_named_with_what_to_look_at(number: int, fix: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(number, os.strerror(number), f"{folder}/.gpuprov-abc")

        patch.setattr(os, "rename", refuse)
        with pytest.raises(OSError, match=r"Operation|Read-only|No space|Input") as refused:
            files.write(f"{folder}/a.conf", "a\n")
        told = files.explain(refused.value)
        assert told.startswith(f"{folder}/a.conf: {os.strerror(number)}. Fix: ")
        assert fix in told
        assert os.listdir(folder) == []


def test_lines_come_into_a_file_that_may_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "etc" / "refresh.env"
    given: dict[str, Any] = {"lines": [{"path": str(place), "keys": {"OUTPUT": "/etc/cdi/nvidia.yaml"}, "made": True}]}
    assert ran(capsys, "gpuprov_files", **given)["changed"]
    assert place.read_text() == "OUTPUT=/etc/cdi/nvidia.yaml\n"
    assert not ran(capsys, "gpuprov_files", **given)["changed"]


def test_files_of_a_role_are_brought_without_a_difference_to_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "part.py"
    done = ran(capsys, "gpuprov_files", role_files={str(file): "a\n"})
    assert (done["changed"], done["paths"], done["diff"]) == (True, [str(file)], [])
    assert file.stat().st_mode & 0o7777 == 0o644


def test_systemd_reads_its_files_anew_where_one_of_them_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = on_host("systemd")
    told: list[tuple[str, ...]] = []

    def systemctl(*words: str) -> tuple[int, str, str]:
        told.append(words)
        return 0, "", ""

    monkeypatch.setattr(systemd, "FILES", f"{tmp_path}/units/")
    monkeypatch.setattr(systemd, "systemctl", systemctl)
    unit = str(tmp_path / "units/a.service.d/50.conf")
    ran(capsys, "gpuprov_files", files={str(tmp_path / "other"): "x\n"})
    assert told == []
    ran(capsys, "gpuprov_files", files={unit: "[Service]\n"}, check=True)
    assert ("daemon-reload",) not in told
    ran(capsys, "gpuprov_files", files={unit: "[Service]\n"})
    ran(capsys, "gpuprov_files", files={unit: "[Service]\n"})
    assert told.count(("daemon-reload",)) == 1
    ran(capsys, "gpuprov_files", absent=[unit])
    assert told.count(("daemon-reload",)) == 2
    monkeypatch.setattr(systemd, "SETTINGS", f"{tmp_path}/system.conf.d/")
    limits = f"{tmp_path}/system.conf.d/90-gpuprov.conf"
    ran(capsys, "gpuprov_files", files={limits: "[Manager]\n"})
    ran(capsys, "gpuprov_files", absent=[limits], check=True)
    assert ("daemon-reexec",) not in told, "step running_kernel does that, where a limit differs"
    ran(capsys, "gpuprov_files", absent=[limits])
    assert told.count(("daemon-reexec",)) == 1


@pytest.mark.install
def test_each_file_system_is_flushed_once_and_what_does_not_answer_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.program(tmp_path, "sync", f'echo "$*" >> {tmp_path}/asked; sleep 30\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(files, "SETTLES", 0.5)
    files.settle([str(tmp_path), "/no/such/place", f"{tmp_path}/."])
    assert (tmp_path / "asked").read_text() == f"--file-system {tmp_path}\n"


def test_what_a_network_brings_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts, flushed = tmp_path / "mounts", []
    lines = [
        "srv:/root / nfs4 rw 0 0",
        "/dev/sda2 {}/var ext4 rw 0 0",
        "auto {}/opt autofs rw 0 0",
        "srv:/o {}/opt nfs4 rw 0 0",
    ]
    mounts.write_text("".join(f"{line.format(tmp_path)}\n" for line in lines))
    for name in ("opt/amazon", "var", "etc"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(files, "MOUNTS", str(mounts))
    monkeypatch.setattr("subprocess.run", lambda argv, **_: flushed.append(argv[-1]))
    for name in ("opt", "opt/amazon", "var", "etc"):
        files.settle([str(tmp_path / name)])
    assert [path.rpartition("/")[2] for path in flushed] == ["var", "etc"], "a root of the network is the host's own"
