"""The parts of gpuprov.simulate that need no container."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import container, engine, image, inventory, sources, tools
from gpuprov.simulate.__main__ import main
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import SimulatedHost
from gpuprov.spec.repository import Repository, find_problems
from tests import public_keys
from tests.rows import run_each

DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
"""
MIRRORS = sources.Mirrors("http://mirror.example/debian", "http://mirror.example/debian-security")


def etc_apt(tmp_path: Path, **files: str) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    for name, text in files.items():
        folder = tmp_path if name == "sources_list" else tmp_path / "sources.list.d"
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return tmp_path


def test_mirrors_from_deb822(tmp_path: Path) -> None:
    assert sources.read(etc_apt(tmp_path, debian_sources=DEB822)) == MIRRORS


@run_each("text", ["", "deb http://mirror.example/debian bookworm main\n", "deb http://u/ noble main\n"])
def test_no_debian_mirror_is_one_clear_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(GpuprovError, match="no http source names a Debian"):
        sources.read(etc_apt(tmp_path, sources_list=text))


def test_mirrors_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUPROV_SIM_MIRROR", "http://mirror.example/debian/")
    with pytest.raises(GpuprovError, match="only one of"):
        sources.read(tmp_path)
    monkeypatch.setenv("GPUPROV_SIM_SECURITY_MIRROR", "http://mirror.example/debian-security")
    assert sources.read(tmp_path) == MIRRORS


def test_unknown_distribution() -> None:
    with pytest.raises(GpuprovError, match='"debian11"') as caught:
        image.Recipe("debian11", MIRRORS).key  # noqa: B018
    assert caught.value.fix.startswith("allowed: debian12, debian13")


def test_inventory_is_yaml_that_ansible_reads() -> None:
    hosts = [
        SimulatedHost("gpu01", "10.88.0.2", 22, "gpuadmin", "/k"),
        SimulatedHost("gpu02", "10.88.0.3", 22, "root", "/k"),
    ]
    found = yaml.safe_load(inventory.text(hosts))["all"]["hosts"]
    assert found["gpu01"]["ansible_host"] == "10.88.0.2"
    assert found["gpu01"]["ansible_become"] is True
    assert "ansible_become" not in found["gpu02"]
    assert "StrictHostKeyChecking=no" in found["gpu02"]["ansible_ssh_common_args"]


def test_inventory_of_hosts_that_serve_a_mirror(tmp_path: Path) -> None:
    (tmp_path / "nvidia.asc").write_text(public_keys.GOOD, encoding="utf-8")
    spec = inventory.mirror(Description(distribution="rocky9", mirror=True), tmp_path)
    found = yaml.safe_load(inventory.text([SimulatedHost("gpu01", "10.88.0.2", 22, "root", "/k")], spec))
    driver = found["all"]["hosts"]["gpu01"]["gpuprov"]["nvidia_driver"]
    assert driver["source"] == "mirror"
    block = msgspec.convert(driver["repository"], Repository)
    assert block.url == "http://127.0.0.1:8099/nvidia/rhel9/x86_64"
    assert list(find_problems(block, ("nvidia_driver", "repository"))) == []


@run_each("name", ["", "Upper", "-a", "a-", "a b", "a" * 43, "../x"])
def test_host_names(name: str) -> None:
    with pytest.raises(GpuprovError, match="allowed: lower-case letters"):
        container.up(name)


def test_failed_commands_are_one_line() -> None:
    with pytest.raises(GpuprovError, match=r"sh -c .* failed \(exit status 3\): E: why"):
        tools.run(["sh", "-c", "echo noise >&2; echo 'E: why' >&2; exit 3"])
    with pytest.raises(GpuprovError, match="no-such-program: not installed"):
        tools.run(["no-such-program"])
    with pytest.raises(GpuprovError, match="still running"):
        tools.run(["sleep", "5"], timeout=0.1)


@pytest.mark.install
def test_missing_programs_exit_with_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tools, "missing", lambda *_kinds: ["podman"])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main(["up", "gpu01"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: not installed: podman"


def test_not_root_exits_with_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["up", "gpu01"]) == 2
    assert "need root" in capsys.readouterr().err


def test_only_hosts_with_our_label_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def podman(*arguments: str, stdin: str | None = None) -> str:
        calls.append(arguments)
        return ""

    monkeypatch.setattr(engine, "engine", podman)
    monkeypatch.setattr(
        "shutil.which", lambda *_arguments, **_options: "/usr/bin/podman"
    )  # also where none is installed
    assert container.down("someone-elses") is False
    assert [call[0] for call in calls] == ["ps"]
    assert f"label={container.LABEL}" in calls[0]


def test_a_host_of_another_version_is_listed_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    label = '{"distribution": "debian13", "colour": "of a later version"}'
    config, state = engine.Config({container.LABEL: label}), engine.State(status="running")
    entry = engine.Container(f"{container.PREFIX}later", config=config, state=state)
    done: list[str] = []

    def podman(*words: str, **_given: str) -> str:
        done.append(words[-1])
        return ""

    monkeypatch.setattr(engine, "labelled", lambda _label: [entry])
    monkeypatch.setattr(engine, "engine", podman)
    assert [(row.name, row.distribution) for row in container.listing()] == [("later", "debian13")]
    with pytest.raises(GpuprovError, match="made by another version of gpuprov"):
        container.describe("later")
    assert container.down("later")
    assert done[-1] == f"{container.PREFIX}later"
    assert not container.down("earlier")


def test_hosts_that_others_remove_meanwhile_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a killed process was removing: it stays listed, and the engine knows nothing of it."""
    known = {"c"}

    def podman(*words: str, **_given: str) -> str:
        if words[0] == "ps":
            return "a\nb\nc\n"
        if gone := [name for name in words[3:] if name not in known]:
            raise GpuprovError(f"no such container {gone[0]}")
        return msgspec.json.encode([{"Name": name} for name in words[3:]]).decode()

    monkeypatch.setattr(engine, "engine", podman)
    assert [entry.name for entry in engine.labelled(container.LABEL)] == ["c"]
    known.clear()
    assert engine.labelled(container.LABEL) == []
