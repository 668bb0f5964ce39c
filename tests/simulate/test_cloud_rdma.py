"""RDMA of clouds on simulated containers: the program in a folder, read by the probes of real hosts; the installers'
archives."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.rdma.efa import EFA
from gpuprov.host_code import efa as onhost
from gpuprov.host_code import files
from gpuprov.simulate.description import Description, Gpus, convert
from gpuprov.simulate.parts import cloud_rdma, efa, erdma
from gpuprov.simulate.parts.cloud_rdma_files import cloud_rdma_container as program
from gpuprov.simulate.standins import efa as standins_efa
from gpuprov.simulate.standins import installers
from tests.rows import run_each

pytestmark = pytest.mark.install  # programs, started again and again

T = TypeVar("T")
GPU = Gpus(model="A100-SXM4-40GB")
FOUR = Description(gpu=GPU, efa=4)
NAMES = ("rdmaP2p16s27", "rdmaP2p17s27", "rdmaP2p18s27", "rdmaP2p19s27")
ADDRESSES = tuple(f"0002:{bus}:1b.0" for bus in (10, 11, 12, 13))
MODINFO = """case "$*" in
  *"-n "*) echo /lib/modules/6.1.0-47-amd64/updates/dkms/x.ko ;;
  *"-F version "*) echo 3.1.0g ;;
  *"-F srcversion "*) echo ABC ;;
  *"-F parm erdma") echo 'compat_mode:compat mode support (bool)'; echo 'vector_num:uint' ;;
  *"-F gpuprov_default erdma") echo compat_mode=Y ;;
esac"""


class Host:
    """The program's places below a folder."""

    def __init__(self, folder: Path, description: Description, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.sys, self.on_disk = folder, folder / "sys", True
        self.program("modinfo", MODINFO)
        self.program("modprobe", "echo 'options erdma vector_num=8'; echo 'options other vector_num=9'")
        part = (efa if description.efa else erdma).part("h", description)
        content = part.files[cloud_rdma.TOLD].content
        assert isinstance(content, bytes)
        (folder / "told.json").write_bytes(content)
        for name in ("module", "class/infiniband", "class/infiniband_verbs", "class/dmi", "class/net/eth1"):
            (self.sys / name).mkdir(parents=True)
        (self.sys / "bus/pci/devices").mkdir(parents=True)
        (folder / "etc/modules-load.d").mkdir(parents=True)
        places = {
            "RUN": "run",
            "TOLD": "told.json",
            "SYS": "sys",
            "NVIDIA": "nvidia",
            "NODES": "dev",
            "ETC": "etc",
            "MODPROBE": "bin/modprobe",
            "USR": "usr",
        }
        for name, place in places.items():
            patch.setattr(program, name, folder / place)
        patch.setattr(program, "cover", lambda *_: None)
        patch.setattr(program, "kernel_with", lambda _: "6.1.0-47-amd64" if self.on_disk else "")
        patch.setattr(os, "mknod", lambda node, *_: Path(node).touch())
        patch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        self.run("boot")

    def program(self, name: str, script: str) -> None:
        (self.folder / "bin").mkdir(exist_ok=True)
        (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def run(self, verb: str, *words: str) -> None:
        program.main(verb, list(words))

    def read(self, probe: Probe[T]) -> T:
        script = probe.script.replace("/sys/", f"{self.sys}/")
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        return probe.parse(Output(done.stdout, done.returncode, done.stderr))

    def text(self, name: str) -> str:
        return (self.sys / name).read_text()


Make = Callable[[Description], Host]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda description: Host(tmp_path, description, monkeypatch)


@run_each(
    ("values", "said"),
    [
        ({"erdma": True}, "erdma is true and there is no gpu: eRDMA is simulated as files"),
        ({"efa": 4}, "efa is 4 and there is no gpu: EFA is simulated as files"),
        ({"efa": 4, "kind": "machine", "gpu": {"model": "T4"}}, 'efa is 4 and kind is "machine"'),
        ({"efa": 4, "hcas": 2, "gpu": {"model": "T4"}}, "efa is 4 and hcas is 2"),
        ({"efa": 4, "erdma": True, "gpu": {"model": "T4"}}, "no instance has the adapters of two clouds"),
        ({"efa": 33, "gpu": {"model": "T4"}}, "<= 32"),
    ],
)
def test_what_no_host_has(values: object, said: str) -> None:
    with pytest.raises(GpuprovError, match=said) as caught:
        convert(values, "host.yaml")
    assert caught.value.fix


def test_efa_before_and_while_its_driver_is_loaded(make: Make) -> None:
    host = make(FOUR)
    before = host.read(EFA)
    assert before.product == "p4d.24xlarge"
    assert before.functions == tuple((address, "") for address in ADDRESSES)
    assert (before.loaded, host.read(rdma.DEVICES)) == (False, ())
    host.run("load", "efa")
    state, devices = host.read(EFA), host.read(rdma.DEVICES)
    assert state.functions == tuple((address, "efa") for address in ADDRESSES)
    assert (state.loaded, state.version, host.text("module/efa/srcversion")) == (True, "3.1.0g", "ABC\n")
    assert state.p2p == dict.fromkeys(NAMES, ""), "NVIDIA's driver is not loaded"
    assert tuple(device.name for device in devices) == NAMES
    assert {(one.driver, one.identifier, one.node_type) for one in devices} == {("efa", "1d0f:efa2", "unspecified")}
    assert {(port.state, port.link_layer, port.rate) for one in devices for port in one.ports} == {
        ("ACTIVE", "Unknown", 100.0)
    }
    assert [device.numa_node for device in devices] == [0, 0, 1, 1]
    assert len({device.node_guid for device in devices}) == 4
    assert len((host.sys / "bus/pci/devices" / ADDRESSES[0] / "config").read_bytes()) == 4096
    host.run("unload")
    assert host.read(EFA) == before
    (host.folder / "nvidia").touch()
    host.run("load", "efa")
    assert host.read(EFA).p2p == dict.fromkeys(NAMES, "NVIDIA")


@pytest.mark.parametrize(
    ("words", "node_type", "gids"), [((), "CA", 2), (("compat_mode=N",), "RNIC", 1), (("compat_mode=x",), "CA", 2)]
)
def test_erdma_is_roce_or_iwarp_by_its_parameter(make: Make, words: Iterable[str], node_type: str, gids: int) -> None:
    host = make(Description(gpu=GPU, erdma=True))
    host.run("load", "erdma", *words)
    (device,) = host.read(rdma.DEVICES)
    assert (device.name, device.driver, device.node_type) == ("erdma_0", "erdma", node_type)
    assert len(device.ports[0].gids) == gids
    assert host.text("module/erdma/parameters/vector_num") == "8\n"
    assert not (host.sys / "module/erdma/parameters/wwi_perf").exists(), "the module on disk does not take it"


def test_efas_installer_is_one_to_the_program_that_runs_it(tmp_path: Path) -> None:
    file, digest = standins_efa.write(tmp_path, "1.49.0")
    assert file.name == "aws-efa-installer-1.49.0.tar.gz"
    assert files.compute_digest(str(file)) == digest
    folder = Path(onhost.unpack_installer(str(file), str(tmp_path)))
    assert "version=1.49.0 " in (folder / "efa_installer.sh").read_text()
    for script in folder.rglob("*"):
        if script.is_file() and script.read_bytes().startswith(b"#!"):
            subprocess.run(["bash", "-n", str(script)], check=True)
    for name in standins_efa.PACKAGES:
        assert "gpuprov stand-in" in (folder / "packages" / name / "DEBIAN/control").read_text()


@run_each("file", sorted(one for one in installers.FILES.rglob("*") if one.is_file() and one.suffix != ".pyc"), ids=str)
def test_each_file_says_that_it_stands_in(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "stand-in" in text or "gpuprov simulat" in text or file.name in ("__init__.py", "postinst", "prerm")
