"""The stand-in of nvidia-imex: what its control program says of a domain, which is what the real one says."""

from __future__ import annotations

import json
import socket
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
        int(config["IMEX_CMD_PORT"]), lambda: json.dumps({"status": "READY", "connections": imex.connections(config)})
    )


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
