"""What is of one machine: removed by the scripts that run in the image, and by their paths alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpuprov.bake import clean, place

KEY = "/etc/ssh/ssh_host_rsa_key"


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of an image whose scripts run without a chroot: the absolute paths in them lie in the folder."""
    for name in ("etc/ssh", "etc/init.d", "var/log/journal/x", "var/lib/gpuprov/lock", "usr/sbin", "root", "run"):
        (tmp_path / name).mkdir(parents=True)

    def run(root: Path, script: str, data: bytes | None = None) -> str:
        moved = re.sub(r"(?<![\w'\"$/.*])/(?=(?:etc|var|usr|root|run)/)", f"{root}/", script)
        lines = (data or b"").decode().splitlines()
        given = "\n".join(f"{root}{line}" if line.startswith("/") else line for line in lines)
        done = subprocess.run(["sh", "-euc", moved], input=f"{given}\n", capture_output=True, text=True, check=True)
        return done.stdout.replace(str(root), "")

    monkeypatch.setattr(place, "run", run)
    return tmp_path


def test_what_is_of_one_machine_goes_and_the_keys_of_before_stay(image: Path) -> None:
    (image / "etc/machine-id").write_text("a" * 32 + "\n", encoding="utf-8")
    for name in (
        "var/lib/gpuprov/receipt.json",
        "var/lib/gpuprov/written.json",
        "var/log/journal/x/system.journal",
        "var/log/dpkg.log",
        KEY[1:],
    ):
        (image / name).write_text("x", encoding="utf-8")
    before = clean.before(image)
    assert before.paths == {KEY}
    assert (image / "usr/sbin/policy-rc.d").stat().st_mode & 0o111
    (image / "etc/ssh/ssh_host_ed25519_key").write_text("made while it was baked", encoding="utf-8")
    gone = clean.clean(image, before)
    assert {
        "/etc/machine-id",
        "/var/lib/gpuprov/receipt.json",
        "/var/lib/gpuprov/written.json",
        "/var/lib/gpuprov/lock",
        "/etc/ssh/ssh_host_ed25519_key",
    } <= set(gone)
    assert (image / "etc/machine-id").read_text(encoding="utf-8") == ""
    assert not (image / "usr/sbin/policy-rc.d").exists()
    assert not (image / "var/lib/gpuprov/lock").exists()
    assert not (image / "etc/ssh/ssh_host_ed25519_key").exists()
    assert (image / KEY[1:]).exists()
    assert (image / "var/log/dpkg.log").exists()
    assert clean.left(image, before) == ()


def test_what_is_left_is_named(image: Path) -> None:
    (image / "var/lib/gpuprov/applying.json").touch()
    (image / "etc/machine-id").write_text("a" * 32 + "\n", encoding="utf-8")
    (image / KEY[1:]).touch()
    left = clean.left(image, clean.Kept())
    assert any(line.startswith("/var/lib/gpuprov/applying.json: the mark of an apply") for line in left)
    assert any(line.startswith("/etc/machine-id") for line in left)
    assert any(line.startswith(KEY) for line in left)


def test_a_policy_of_the_image_stays(image: Path) -> None:
    (image / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    before = clean.before(image)
    clean.clean(image, before)
    assert (image / "usr/sbin/policy-rc.d").read_text(encoding="utf-8") == "#!/bin/sh\nexit 101\n"


def test_a_name_with_a_line_break_removes_nothing_else(image: Path) -> None:
    (image / "usr/gpuprov-x").touch()
    (image / "var/log/journal/x\n/usr").mkdir(parents=True)
    (image / "var/log/journal/x\n/usr/gpuprov-x").write_text("x", encoding="utf-8")
    clean.clean(image, clean.Kept())
    assert (image / "usr/gpuprov-x").exists()


@pytest.fixture
def machine(image: Path) -> Path:
    """A machine that runs: it has an identity, and files that gpuprov left."""
    for name in (
        "etc/machine-id",
        "var/log/journal/x/system.journal",
        "var/lib/gpuprov/pull",
        KEY[1:],
        f"{KEY[1:]}.pub",
    ):
        (image / name).write_text("a" * 32 + "\n", encoding="utf-8")
    (image / "root/.ansible/collections").mkdir(parents=True)
    return image


def test_the_identity_of_a_machine_that_runs_stays_and_is_named(machine: Path) -> None:
    before = clean.before(machine, own_root=True)
    (machine / "var/log/journal/x/new.journal").write_text("x", encoding="utf-8")
    assert set(clean.clean(machine, before)) == {"/var/lib/gpuprov/lock", "/var/lib/gpuprov/pull"}
    assert (machine / "etc/machine-id").read_text(encoding="utf-8").strip() == "a" * 32
    assert (machine / "root/.ansible/collections").is_dir()
    assert not (machine / "usr/sbin/policy-rc.d").exists()
    assert clean.left(machine, before) == ()
    assert clean.describe(before) == ("/etc/machine-id", KEY, "/var/log/journal")


def test_all_of_it_goes_if_that_is_asked_for(machine: Path) -> None:
    before = clean.before(machine, own_root=True, everything=True)
    assert {"/etc/machine-id", KEY, f"{KEY}.pub", "/var/log/journal/x/system.journal"} <= set(
        clean.clean(machine, before)
    )
    assert (machine / "etc/machine-id").read_text(encoding="utf-8") == ""
    assert not (machine / KEY[1:]).exists()
    assert (machine / "root/.ansible/collections").is_dir()
    assert clean.left(machine, before) == clean.describe(before) == ()
