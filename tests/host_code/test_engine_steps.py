"""Steps of a change of an engine's files: kept, begun, written, put back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.here import program
from tests.host_code.modules import on_host


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(on_host("engine_steps"), "BACKUP", f"{tmp_path}/kept")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))
    (tmp_path / "etc").mkdir()
    return tmp_path


def steps() -> Any:
    return on_host("engine_steps")


def paths(place: Path) -> list[str]:
    return [f"{place}/etc/config.toml", f"{place}/etc/conf.d/99-nvidia.toml"]


def test_what_was_kept_comes_back_with_its_mode_and_what_was_not_goes(place: Path) -> None:
    main, drop_in = map(Path, paths(place))
    main.write_text("ours\n")
    main.chmod(0o640)
    steps().keep("containerd", paths(place))
    steps().begin("containerd", paths(place))
    assert drop_in.parent.is_dir()
    steps().write({str(main): "changed\n", str(drop_in): "NVIDIA's\n"})
    assert (main.read_text(), main.stat().st_mode & 0o777, drop_in.stat().st_mode & 0o777) == (
        "changed\n",
        0o640,
        0o644,
    )
    assert steps().back("containerd", paths(place), False) == {"back": True}
    assert (main.read_text(), main.stat().st_mode & 0o777, drop_in.exists()) == ("ours\n", 0o640, False)


def test_a_new_attempt_begins_without_nvidias_file_and_loses_it_only_if_it_is_done(place: Path) -> None:
    main, drop_in = map(Path, paths(place))
    main.write_text("ours\n")
    drop_in.parent.mkdir()
    drop_in.write_text("of before\n")
    steps().keep("containerd", paths(place))
    steps().begin("containerd", paths(place))
    assert not drop_in.exists()
    steps().back("containerd", paths(place), False)
    assert drop_in.read_text() == "of before\n"


def test_what_the_site_wrote_since_is_not_overwritten_by_what_was_kept(place: Path) -> None:
    main = Path(paths(place)[0])
    main.write_text("ours\n")
    steps().keep("containerd", paths(place))
    main.write_text("with the runtime\n")
    assert steps().back("containerd", paths(place), True) == {"back": False}, "the change did not come to its end"
    steps().settled("containerd", paths(place))
    main.write_text("the site's own, weeks later\n")
    assert steps().back("containerd", paths(place), True) == {"back": False}
    assert main.read_text() == "the site's own, weeks later\n"
    main.write_text("with the runtime\n")
    assert steps().back("containerd", paths(place), True) == {"back": True}
    assert main.read_text() == "ours\n"


def test_a_link_to_a_sites_file_stays_one(place: Path) -> None:
    main, real = Path(paths(place)[0]), place / "site.toml"
    real.write_text("ours\n")
    main.symlink_to(real)
    steps().keep("containerd", paths(place))
    steps().write({str(main): "changed\n"})
    assert (main.is_symlink(), real.read_text()) == (True, "changed\n")
    steps().begin("containerd", paths(place))
    assert (main.is_symlink(), real.read_text()) == (True, "ours\n")


def test_nvidia_ctk_runs_and_its_own_words_are_told(place: Path) -> None:
    main = paths(place)[0]
    program(place, "nvidia-ctk", f'echo "$*" > {main}\necho \'time=now level=error msg="it broke"\' >&2\nexit 3\n')
    assert steps().run(["nvidia-ctk", "a b"], paths(place)) == {
        "status": 3,
        "error": '"it broke"',
        "texts": {main: "a b\n"},
    }


def test_the_probe_is_read_to_its_end_whatever_its_programs_read() -> None:
    assert steps().read("cat; echo '@engine docker'; cat\necho 'caf\\351'; false") == {
        "text": "@engine docker\ncaf\ufffd\n"
    }


def test_a_copy_is_changed_and_not_what_it_is_a_copy_of(place: Path) -> None:
    program(place, "nvidia-ctk", 'f=${2#--config=}; [ ! -e "$f" ] || cat "$f" >> $STATE/seen; echo "$1" >> "$f"\n')
    assert steps().run_on_copy(["nvidia-ctk", "more"], "{}\n") == {"status": 0, "error": "", "text": "{}\nmore\n"}
    assert steps().run_on_copy(["nvidia-ctk", "more"], "")["text"] == "more\n"
    assert (place / "seen").read_text() == "{}\n"


def test_a_daemon_that_failed_too_often_is_restarted_all_the_same(place: Path) -> None:
    program(place, "systemctl", 'echo "$*" >> $STATE/log\n')
    steps().tell("restart", "docker.service")
    steps().tell("reload", "docker.service")
    log = (place / "log").read_text().splitlines()
    assert log == ["reset-failed -- docker.service", "restart -- docker.service", "reload -- docker.service"]
