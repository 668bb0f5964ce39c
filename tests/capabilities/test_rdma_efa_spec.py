"""EFA, known offline: what cannot be."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.rdma.efa import rules as efa_rules
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import rules as nccl_rules
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.capabilities.rdma.rules import stacks
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.efa_host import SHA256, block

HOST = HostSpec(name="gpu1")
URL = "https://site.example/aws-efa-installer-1.50.0.tar.gz"


def told(problems: Any) -> list[str]:
    return [f"{problem.severity}: {problem.message}" for problem in problems]


def test_a_good_spec(tmp_path: Path) -> None:
    archive = tmp_path / "aws-efa-installer-1.50.0.tar.gz"
    archive.write_bytes(b"an archive")
    for good in (
        block(),
        block(installer=""),
        block(stack="inbox"),
        block(mpi="openmpi5", gpudirect=True, plugin=False),
        block(sha256=SHA256.upper()),
        block(installer="", url=URL, sha256="0" * 64),
        block(installer="", file=str(archive), sha256=sha256(b"an archive").hexdigest()),
    ):
        assert told(efa_rules.rules(HOST, good)) == []
        assert told(stacks(good)) == []
        assert told(nccl_rules.rules(HOST, good)) == []
    assert told(efa_rules.rules(HOST, Rdma(fabric="roce"))) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (block(stack="doca-ofed"), "error: rdma.stack is doca-ofed"),
        (block(installer="1.2.3"), 'error: rdma.efa.installer is "1.2.3", whose checksum gpuprov does not know'),
        (block(sha256="0" * 64), "error: rdma.efa.sha256 is not the one that AWS publishes of 1.47.0"),
        (block(url=URL, sha256="0" * 64), "error: rdma.efa.url and installer both name the installer"),
        (block(installer="", url=URL), "error: rdma.efa.sha256 is missing: url names a program that is run as root"),
        (block(installer="", file="/no/such.tar.gz", sha256="0" * 64), "error: rdma.efa.file /no/such.tar.gz is not there"),
        (block(installer="", sha256="0" * 64), "error: rdma.efa.sha256 is of no file"),
        (block(installer="", mpi="both"), "error: rdma.efa.mpi has no effect"),
        (block(stack="inbox", gpudirect=True), "error: rdma.efa.gpudirect is true, and rdma.stack inbox"),
        (block(nccl=Nccl(net_plugin="none")), "error: rdma.nccl.net_plugin is none, and NCCL uses EFA by a plugin alone"),
        (block(nccl=Nccl(topo_file="/etc/t.xml")), "warning: rdma.nccl.topo_file overrules the topology"),
    ],
)  # fmt: skip
def test_what_cannot_be(asked: Rdma, message: str) -> None:
    found = told(efa_rules.rules(HOST, asked))
    assert any(one.startswith(message) for one in found), found


def test_neighbours() -> None:
    host = HostSpec(name="gpu1", capabilities={"kernel": Kernel(blacklist=("efa",))})
    assert told(efa_rules.rules(host, block())) == ["error: kernel.blacklist has efa, which EFA needs"]
    assert told(stacks(Rdma(fabric="roce", stack="efa-vendor"))) == [
        "error: rdma.stack is efa-vendor, and rdma.fabric is roce"
    ]
    (found,) = told(nccl_rules.rules(HOST, block(nccl=Nccl(gid="index"))))
    assert found == "error: rdma.nccl.gid has no effect: the plugin for EFA finds its devices itself"
    assert efa_rules.installer_sha256(block()) == SHA256
    assert efa_rules.installer_sha256(block(installer="", url=URL, sha256="A" * 64)) == "a" * 64
    assert efa_rules.installer_sha256(block(installer="")) == ""
