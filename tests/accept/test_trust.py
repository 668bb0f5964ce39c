"""What one host says of itself runs on another as a word, or not at all."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuprov.accept.model import Host, Ran
from gpuprov.accept.single import _explain_unreached
from gpuprov.capabilities.acceptance.fragment import Acceptance
from gpuprov.facts.probes.acceptance import Network, parse_network
from gpuprov.facts.probes.base import Output
from gpuprov.spec.model import HostSpec, RawHost
from tests.taint.canary import Nest


def host(name: str, main: str) -> Host:
    return Host(raw=RawHost(name=name), spec=HostSpec(name=name), block=Acceptance(), network=Network(main=main))


class Here:
    """A lock whose hosts are this machine, without ssh."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def phase(self, steps: Mapping[str, tuple[str, float]]) -> dict[str, Ran]:
        return {name: self._run(script) for name, (script, _) in steps.items()}

    def _run(self, script: str) -> Ran:
        done = subprocess.run(
            ["/bin/sh", "-c", script], env={"PATH": str(self._folder)}, capture_output=True, text=True, check=False
        )
        return Ran(text=done.stdout, status=done.returncode)


def test_an_address_is_no_shell_on_the_first_host(tmp_path: Path) -> None:
    nest = Nest(tmp_path / "nest")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "touch").symlink_to("/bin/touch")
    canaries = nest.all()
    lock: Any = Here(tmp_path / "bin")
    for canary in canaries:
        told = _explain_unreached(host("gpu1", "192.0.2.1"), [host("gpu2", canary)], lock)
        assert " ".join(canary.split()) in told
    assert nest.flown() == []


def test_only_an_address_is_taken_for_one(tmp_path: Path) -> None:
    nest = Nest(tmp_path / "nest")
    for canary in (*nest.all(), "192.0.2.1;id", "--out_json_file", "192.0.2.1 -x", "::1", "999.0.2.1", "١٩٢.0.2.1"):
        said = f"address|ib0|{canary}/24\nmain|{canary}\nhca|mlx5_0|{canary.replace('/', '')}\n"
        found = parse_network(Output(said))
        assert found == Network(), canary
    assert parse_network(Output("address|ib0|10.0.0.1/24\nmain|192.0.2.1\nhca|mlx5_0|/sys/devices/x\n")) == Network(
        {"ib0": ("10.0.0.1",)}, "192.0.2.1", {}, {"mlx5_0": "/sys/devices/x"}
    )
