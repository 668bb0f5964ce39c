"""The stand-in of nvidia-imex: what its control program says of a domain, which is what the real one says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from gpuprov.facts.probes.gpus.imex import parse_domain
from gpuprov.simulate.parts import fabric


@pytest.fixture
def imex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with a domain of this machine's loopback addresses and ports of its own."""
    loader = SourceFileLoader("nvidia_imex", str(fabric.ASSETS / "nvidia-imex"))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader.exec_module(module)
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    (tmp_path / "nodes").write_text("127.0.0.1\n127.0.0.2\n")
    rows = (
        f"SERVER_PORT={ports[0]}",
        f"IMEX_CMD_PORT={ports[1]}",
        f"IMEX_NODE_CONFIG_FILE={tmp_path}/nodes",
        "IMEX_CMD_ENABLED=1",
    )
    (tmp_path / "config").write_text("# comment\n" + "\n".join(rows) + "\n")
    monkeypatch.setattr(module, "CONFIG", str(tmp_path / "config"))
    return module


def listen(imex: ModuleType, members: list[str]) -> None:
    config = imex.settings(imex.CONFIG)
    imex.serve(int(config["SERVER_PORT"]), lambda: json.dumps([imex.VERSION, members]))
    imex.serve(
        int(config["IMEX_CMD_PORT"]),
        lambda: json.dumps({"status": "READY", "connections": imex.connections(config)}),
    )


def test_nobody_lives(imex: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert imex.control(["-q"]) == 1
    assert imex.control(["-N", "-j"]) == ""
    first, _, second = capsys.readouterr().out.partition("\n")
    assert first == "UNAVAILABLE"
    domain = parse_domain(second)
    assert domain
    assert (domain.status, {one.status for one in domain.members}) == ("DOWN", {"UNAVAILABLE"})


def test_all_live(imex: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    listen(imex, ["127.0.0.1", "127.0.0.2"])
    assert imex.control(["-q"]) == ""
    imex.control(["-N", "-j"])
    first, _, second = capsys.readouterr().out.partition("\n")
    domain = parse_domain(second)
    assert first == "READY"
    assert domain
    assert domain.status == "UP"
    assert [(one.host, one.status, one.lost) for one in domain.members] == [
        ("127.0.0.1", "READY", ()),
        ("127.0.0.2", "READY", ()),
    ]


def test_another_list_of_nodes_is_another_domain(imex: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    listen(imex, ["127.0.0.2", "127.0.0.1"])
    imex.control(["-N", "-j"])
    domain = parse_domain(capsys.readouterr().out)
    assert domain
    assert (domain.status, domain.members[0].lost) == ("DOWN", ("127.0.0.1", "127.0.0.2"))


def test_the_daemon_refuses_what_the_real_one_refuses(
    imex: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tmp_path / "version"
    loaded.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n")
    monkeypatch.setattr(imex, "LOADED", str(loaded))
    assert imex.daemon(imex.CONFIG) == "driver 580.95.05, and this is @VERSION@"
    (tmp_path / "nodes").write_text("")
    assert imex.daemon(imex.CONFIG) == "no nodes are configured"


def test_its_exit_statuses(imex: ModuleType, tmp_path: Path) -> None:
    """systemd takes a parent that ends with 0 for a daemon that runs."""
    program = (fabric.ASSETS / "nvidia-imex").read_text(encoding="utf-8")
    loaded = tmp_path / "version"
    loaded.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n")
    ended = []
    for version in ("580.95.05", "570.133.20"):
        text = program.replace("@VERSION@", version).replace("/proc/driver/nvidia/version", str(loaded))
        # The child, which would serve for ever, ends at once.
        file = tmp_path / "nvidia-imex"
        file.write_text(text.replace("    os.setsid()\n", "    os._exit(0)\n"))
        command = [sys.executable, str(file), "-c", imex.CONFIG]
        ended.append(subprocess.run(command, capture_output=True, text=True, check=False, timeout=20))
    assert [(done.returncode, done.stderr) for done in ended] == [
        (0, ""),
        (1, "driver 580.95.05, and this is 570.133.20\n"),
    ]
