"""The image as a place: what is taken for one, where its files lie, and the programs that stand before its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.bake import place
from gpuprov.core import chroot
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.command import build
from gpuprov.facts.collect.settings import Settings
from gpuprov.spec.model import RawHost


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder that looks like the root of an image."""
    for name in ("proc", "sys", "dev", "run", "etc", "var", "usr/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    for name in ("etc/os-release", "usr/bin/sh", "usr/bin/env"):
        (tmp_path / name).touch()
    return tmp_path


def test_the_root_of_an_image_is_taken(image: Path) -> None:
    assert place.check(image) == image


def test_a_folder_that_leads_elsewhere_is_refused(image: Path) -> None:
    (image / "run").rmdir()
    (image / "run").symlink_to("/run")
    with pytest.raises(GpuprovError, match="run is not a folder"):
        place.check(image)


def test_what_is_no_image_is_refused(image: Path) -> None:
    (image / "usr/bin/sh").unlink()
    with pytest.raises(GpuprovError, match="has no /bin/sh"):
        place.check(image)


def test_links_of_an_image_stay_in_it(image: Path) -> None:
    (image / "etc/shadowed").symlink_to("/etc/passwd")
    (image / "etc/up").symlink_to("../../../../etc/passwd")
    (image / "etc/loop").symlink_to("loop")
    assert place.inside(image, "/etc/shadowed") == image / "etc/passwd"
    assert place.inside(image, "/etc/up") == image / "etc/passwd"
    with pytest.raises(GpuprovError, match="loop of links"):
        place.inside(image, "/etc/loop")


def test_only_root_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(GpuprovError, match="only root may"):
        place.enter()


def test_the_command_starts_again_in_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "execvpe", lambda _, words, environment: started.append((words, environment)))
    monkeypatch.setattr(sys, "argv", ["gpuprov", "bake", "x.yaml"])
    monkeypatch.setenv(place.INSIDE, "1")  # set by hand: this process is not the first of a namespace
    place.enter()
    ((words, environment),) = started
    assert {"--mount", "--pid", "--fork", "--kill-child"} <= set(words)
    assert words[-2:] == ["bake", "x.yaml"]
    assert environment[place.INSIDE] == "1"


def test_programs_in_an_image_get_no_environment_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "x")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    words = chroot.command("/srv/image", "true")
    assert words[:5] == ["chroot", "--", "/srv/image", "/usr/bin/env", "-i"]
    assert "http_proxy=http://proxy.example:3128" in words
    assert "SYSTEMD_OFFLINE=1" in words
    assert f"XDG_CACHE_HOME={chroot.PLACE}/cache" in words, "the image would keep it"
    assert not any("SECRET" in word for word in words)


def test_an_image_is_read_in_its_chroot() -> None:
    raw = RawHost(name="image", connection={"ansible_connection": chroot.CONNECTION, "ansible_host": "/srv/image"})
    command = build(Settings(raw), "echo read")
    assert command.argv[:3] == ["chroot", "--", "/srv/image"]
    assert command.stdin == b"echo read"
    assert Settings(raw).address == "chroot /srv/image"


def shim(name: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a shim with the folder's programs behind it."""
    path = f"{place.SHIMS}:{folder}:/usr/bin:/bin"
    return subprocess.run(
        [sys.executable, str(place.SHIMS / name), *words] if name == "systemctl" else ["sh", str(place.SHIMS / name),
                                                                                       *words],
        env={"PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_a_unit_is_described_without_systemd(tmp_path: Path) -> None:
    program(tmp_path, "systemctl", 'echo "called $*" >> "${0%/*}/calls"; [ "$1" != is-enabled ] || echo enabled')
    done = shim(
        "systemctl", tmp_path, "show", "-p", "Id", "-p", "LoadState", "-p", "ActiveState", "--", "no-such.service"
    )
    assert done.stdout == "Id=no-such.service\nLoadState=not-found\nActiveState=inactive\n"
    assert shim("systemctl", tmp_path, "show", "-p", "MainPID", "--value", "no-such").stdout == "0\n"


def test_nothing_is_started_and_the_rest_is_systemctls_own(tmp_path: Path) -> None:
    program(tmp_path, "systemctl", 'echo "called $*"; exit 4')
    for verb in ("start", "restart", "daemon-reload"):
        done = shim("systemctl", tmp_path, verb, "x.service")
        assert (done.returncode, done.stdout) == (0, "")
    assert shim("systemctl", tmp_path, "is-active", "x.service").returncode == 3
    done = shim("systemctl", tmp_path, "enable", "--", "x.service")
    assert (done.returncode, done.stdout) == (4, "called enable -- x.service\n")


def test_the_kernel_is_the_images(tmp_path: Path) -> None:
    program(tmp_path, "ls", "printf '6.1.0-9-amd64\\n6.1.0-10-amd64\\n'")
    assert shim("uname", tmp_path, "-r").stdout == "6.1.0-10-amd64\n"
    assert shim("uname", tmp_path, "-srm").stdout == f"Linux 6.1.0-10-amd64 {os.uname().machine}\n"
    assert shim("uname", tmp_path, "-m").stdout == f"{os.uname().machine}\n"
    program(tmp_path, "ls", "exit 2")
    assert shim("uname", tmp_path, "-r").stdout == f"{os.uname().release}\n"
