"""A bundle's packages on a host: the scripts that carry them, run here; and that nothing goes on without them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from gpuprov import __version__
from gpuprov.bundle import opened, placed
from gpuprov.bundle.model import Manifest
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.gather import gather
from gpuprov.facts.collect.script import compose
from gpuprov.facts.probes.base import Probe
from gpuprov.host_code import bundle
from gpuprov.host_code.packages import choice
from gpuprov.host_code.packages.model import Refused, Settings
from gpuprov.play.preflight.judging import facts_of
from gpuprov.rules import reach
from gpuprov.spec.model import PACKAGE_BUNDLE, RawHost
from tests.bundle.carried import NOW, REPOSITORY, Carried, fleet
from tests.here import play

NAMED = {"sha256": "b" * 64, "url": "https://example.org/nccl.tar.gz"}


def on_host(
    folder: Path, mark: str, archive: bytes | None = None, prepare: str = ":"
) -> subprocess.CompletedProcess[bytes]:
    """What runs on a host, with that folder in the place of its own."""
    text = placed.make_script("abc", mark, "suse" if archive else None).replace(placed.PLACE, str(folder))
    text = text.replace(placed.PREPARE["suse"], prepare)
    return subprocess.run(["sh", "-c", text], input=archive or b"", capture_output=True, check=False)


@pytest.fixture
def made(tmp_path: Path) -> Carried:
    return Carried(tmp_path)


@pytest.fixture
def manifest(made: Carried) -> Manifest:
    return opened.opened(made.place, made.signers, NOW)


@pytest.fixture
def load(made: Carried, manifest: Manifest) -> placed.Load:
    return placed.load(manifest, REPOSITORY, made.fleet.pairs[0][1])


@pytest.fixture
def archive(made: Carried, load: placed.Load, tmp_path: Path) -> bytes:
    return placed.pack(made.place, load, "abc", tmp_path).read_bytes()


def test_an_archive_that_is_cut_short_or_changed_on_its_way_leaves_nothing(
    load: placed.Load, archive: bytes, tmp_path: Path
) -> None:
    changed = archive.replace(b"a package", b"a virus!!")
    for bad, said in ((archive[:2000], b"tar"), (changed, b"FAILED")):
        ran = on_host(tmp_path / "host", load.mark, bad)
        assert ran.returncode
        assert said in ran.stderr
        assert list((tmp_path / "host").iterdir()) == []
    assert on_host(tmp_path / "host", load.mark, archive).stdout == b"there\n"
    assert (tmp_path / "host/abc/ready").exists()


def test_where_its_package_manager_cannot_be_prepared_nothing_is_left(
    load: placed.Load, archive: bytes, tmp_path: Path
) -> None:
    """A configuration that was half written, on a full disk, would have it see the host's own sources."""
    ran = on_host(tmp_path / "host", load.mark, archive, "false\n:")
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert list((tmp_path / "host").iterdir()) == []


def test_what_is_there_is_that_of_another_release(
    manifest: Manifest, load: placed.Load, archive: bytes, tmp_path: Path
) -> None:
    """A host that was upgraded, and whose packages of the release before are still there."""
    host = tmp_path / "host"
    other = msgspec.structs.replace(REPOSITORY, folder="debian13-amd64", release="13")
    upgraded = placed.load(manifest, other, fleet(tmp_path, {"persistence": {}}).pairs[0][1])
    assert on_host(host, load.mark).stdout.startswith(b"absent ")
    on_host(host, load.mark, archive)
    assert on_host(host, load.mark).stdout == b"there\n"
    assert on_host(host, upgraded.mark).stdout.startswith(b"absent ")
    assert on_host(host, upgraded.mark, archive).stdout == b"there\n"
    assert on_host(host, load.mark).stdout.startswith(b"absent ")
    (host / "abc/ready").write_text("")  # as an older gpuprov left it
    assert on_host(host, upgraded.mark).stdout.startswith(b"absent ")


def test_another_runs_bundle_stays_for_a_week(load: placed.Load, archive: bytes, tmp_path: Path) -> None:
    host = tmp_path / "host"
    ages = {"other": 2, "forgotten": 8, ".new.cut": 2, ".new.now": 0}
    for name, days in ages.items():
        (host / name).mkdir(parents=True)
        then = time.time() - days * 86_400 - 60
        os.utime(host / name, (then, then))
    on_host(host, load.mark, archive)
    assert {path.name for path in host.iterdir()} == {"abc", "other", ".new.now"}


def test_a_host_without_room_is_left_out_before_anything_is_carried(
    made: Carried, manifest: Manifest, load: placed.Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placed, "PLACE", str(tmp_path / "not/there/yet"))
    free = shutil.disk_usage(tmp_path).free
    said = on_host(tmp_path / "not/there/yet", load.mark).stdout.split()
    assert said[0] == b"absent"
    assert abs(int(said[1]) * 1024 - free) < free // 10 + (64 << 20)
    assert load.size == 2 * placed.BLOCK
    pairs = made.fleet.pairs
    monkeypatch.setattr(placed, "MARGIN", 3 * free)
    placed_there, refused = placed.place(made.place, manifest, pairs, {"gpu1": REPOSITORY})
    assert placed_there == ()
    told = (
        rf"gpu1 has \d+ MB free for {placed.PLACE}, and the bundle's packages need "
        rf"{(3 * free + load.size) / 1e6:.0f} MB"
    )
    assert re.fullmatch(told, refused["gpu1"].message)
    assert not (tmp_path / "not").exists()


def test_a_host_gets_the_files_that_its_own_spec_names(made: Carried, tmp_path: Path) -> None:
    (made.place / "files").mkdir()
    for digit in "bc":
        (made.place / "files" / (digit * 64)).touch()
    manifest = Manifest(
        made_at="", expires_at="", key="A", specs=(), repositories=(REPOSITORY,), files=opened.list_files(made.place)
    )
    plain = placed.load(manifest, REPOSITORY, made.fleet.pairs[0][1])
    spec = fleet(tmp_path, {"nvidia_driver": {}, "acceptance": {"nccl": {"source": NAMED}}}).pairs[0][1]
    named = placed.load(manifest, REPOSITORY, spec)
    assert named.names.keys() - plain.names.keys() == {f"files/{'b' * 64}"}
    assert plain.mark != named.mark


SEEN = Probe("seen", "echo seen", lambda output: output.text)


def test_a_host_is_not_read_without_its_bundle(tmp_path: Path) -> None:
    """Its own sources would answer: apt only warns of a configuration that is not there, and zypper says nothing."""
    raw = RawHost(
        name="gpu1",
        connection={"ansible_connection": "local", "ansible_become": False, PACKAGE_BUNDLE: str(tmp_path)},
    )
    found = gather([(raw, (SEEN,))])["gpu1"]
    assert isinstance(found, UnreachableError)
    assert (found.message, found.fix) == (f"gpu1 (local): {bundle.MISSING}", bundle.FIX)
    (tmp_path / bundle.READY).touch()
    there = gather([(raw, (SEEN,))])["gpu1"]
    assert not isinstance(there, UnreachableError)
    assert there.get(SEEN) == "seen\n"


def test_nor_judged_in_a_play(tmp_path: Path) -> None:
    env = {**os.environ, **reach.of_bundle(str(tmp_path))}
    ran = subprocess.run(["sh"], input=compose((SEEN,)), env=env, capture_output=True, text=True, check=False)
    with pytest.raises(GpuprovError, match="not on this host any more"):
        facts_of(f"{ran.stdout}\n{ran.stderr}".encode())


def test_nor_are_packages_asked_of_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bundle.VARIABLE, str(tmp_path))
    with pytest.raises(Refused, match="not on this host any more"):
        choice.choose_manager(Settings())
    (tmp_path / bundle.READY).touch()
    assert choice.choose_manager(Settings()).name


@pytest.mark.install
def test_nor_does_a_play_begin(tmp_path: Path) -> None:
    gone = str(tmp_path / "it's gone")
    beside = {"environment": reach.of_bundle(gone), "ignore_errors": True}
    tasks = [
        {"gpuprov_reach": {}, "ignore_errors": True},
        {"gpuprov_packages": {"action": "read"}, **beside},
        {"gpuprov_judge": {"capabilities": [], "moment": "now"}, **beside},
    ]
    known = {
        "host_package_bundle": gone,
        "gpuprov_version": __version__,
        "gpuprov_capabilities": [],
        "gpuprov_only": {},
    }
    done = play(tmp_path, {"vars": known, "tasks": tasks})
    told = f"{bundle.MISSING}. Fix: {bundle.FIX}"
    assert done.stdout.count("...ignoring") == 3, done
    assert f'"msg": "gpu1: {told}"' in done.stdout, done
    assert done.stdout.count(f'"msg": "{told}') == 2, done
