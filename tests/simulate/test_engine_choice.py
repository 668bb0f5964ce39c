"""Which container engine runs simulated hosts, with engines that answer, that do not, and that are not there."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import engine, engine_choice, tools
from tests.rows import run_each

NO_DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts an engine on a PATH that holds nothing else: one that answers, or says this on stderr and fails."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(engine_choice.VARIABLE, raising=False)
    monkeypatch.setattr(engine_choice, "SBIN", "")
    engine_choice.forget()

    def put(name: str, fails: str = "") -> None:
        body = f"echo '{fails}' >&2; exit 1" if fails else "echo Server Version: 1"
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
        engine_choice.forget()

    yield put
    engine_choice.forget()


@pytest.mark.parametrize("why", [NO_DAEMON, DENIED])
def test_dockers_client_without_a_daemon_is_no_engine_and_podman_is_installed(install: Install, why: str) -> None:
    install("docker", fails=why)
    assert engine_choice.chosen() == "podman"
    assert "podman" in tools.missing("container")


def test_a_docker_that_answers_is_taken_where_podman_is_missing_or_does_not_answer(install: Install) -> None:
    install("docker")
    assert engine_choice.chosen() == "docker"
    assert "podman" not in tools.missing("container")
    install("podman", fails="cgroups in hybrid mode not supported")
    assert engine_choice.chosen() == "docker"


def test_the_variable_decides_and_setup_does_not_call_a_missing_podman_installed(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("docker")
    monkeypatch.setenv(engine_choice.VARIABLE, "podman")
    engine_choice.forget()
    assert "podman" in tools.missing("container")


def test_an_engine_that_is_named_and_does_not_answer_is_one_clear_error(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("docker", fails=NO_DAEMON)
    monkeypatch.setenv(engine_choice.VARIABLE, "docker")
    engine_choice.forget()
    with pytest.raises(GpuprovError, match="docker does not answer: Cannot connect") as caught:
        tools.require_engine()
    assert "podman" in str(caught.value.fix)


def test_an_unknown_engine_is_refused(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine_choice.VARIABLE, "lxc")
    engine_choice.forget()
    with pytest.raises(GpuprovError, match='GPUPROV_SIM_ENGINE is "lxc"; allowed: podman, docker'):
        engine_choice.chosen()


def test_a_host_keeps_its_address_and_no_two_hosts_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[str] = []

    def podman(*arguments: str, stdin: str | None = None) -> str:
        match arguments[0]:
            case "network":
                return '[{"subnets": [{"subnet": "10.88.0.0/16"}]}]'
            case "ps":
                return "\n".join(hosts)
        return json.dumps([{"NetworkSettings": {"Networks": {"podman": {"IPAddress": host}}}} for host in hosts])

    monkeypatch.setattr(engine, "chosen", lambda: "podman")
    monkeypatch.setattr(engine, "engine", podman)
    monkeypatch.setattr("shutil.which", lambda *_arguments, **_options: "/usr/bin/podman")
    flag, first = engine.address_flags("gpuprov-sim-a", "label")
    assert flag == "--ip"
    assert ipaddress.ip_address(first) in ipaddress.ip_network("10.88.128.0/17")
    assert engine.address_flags("gpuprov-sim-a", "label") == ("--ip", first)
    hosts.append(first)
    assert engine.address_flags("gpuprov-sim-a", "label")[1] != first
    monkeypatch.setattr(engine, "chosen", lambda: "docker")
    assert engine.address_flags("gpuprov-sim-a", "label") == ()


IMPROPER = (
    "Error: cannot remove container 3ba7 as it could not be stopped: sending SIGKILL to container 3ba7:"
    " container state improper: stopped"
)


@pytest.mark.parametrize(
    ("failures", "tries", "message"),
    [
        ([], 1, ""),
        ([IMPROPER], 2, ""),
        ([IMPROPER] * 3, 3, "state improper"),
        (["Error: no such container"], 1, "no such"),
    ],
)
def test_a_container_that_ends_while_it_is_killed_is_removed_at_the_next_try(
    monkeypatch: pytest.MonkeyPatch, failures: list[str], tries: int, message: str
) -> None:
    calls: list[tuple[str, ...]] = []

    def podman(*arguments: str, stdin: str | None = None) -> str:
        calls.append(arguments)
        if len(calls) <= len(failures):
            raise GpuprovError(failures[len(calls) - 1])
        return ""

    monkeypatch.setattr(engine, "chosen", lambda: "podman")
    monkeypatch.setattr(engine, "engine", podman)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with pytest.raises(GpuprovError, match=message) if message else nullcontext():
        engine.remove("gpuprov-sim-a")
    assert calls == [("rm", "--force", "--time", "0", "gpuprov-sim-a")] * tries


@run_each(
    ("described", "networks"),
    [
        ({"Config": {"Labels": None}, "NetworkSettings": {"Networks": None}}, 0),
        ({"NetworkSettings": {"Networks": {"podman": {"IPAddress": "10.88.0.2", "Gateway": "10.88.0.1"}}}}, 1),
        ({}, 0),
    ],
)
def test_labels_and_networks_that_a_container_lacks_are_null(described: dict[str, object], networks: int) -> None:
    container = msgspec.convert(described, engine.Container)
    assert (container.labels, len(container.networks)) == ({}, networks)
