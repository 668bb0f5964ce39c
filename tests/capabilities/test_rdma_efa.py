"""EFA: the installer that ran, the driver, libfabric, NCCL's plugin, where one of them is not there; and what a spec
may say."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.rdma.efa import checks as efa
from gpuprov.capabilities.rdma.efa import rules as efa_rules
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import conf
from gpuprov.capabilities.rdma.nccl import rules as nccl_rules
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.capabilities.rdma.rules import stacks
from gpuprov.catalog.rdma import efa as catalogue
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.host_code.at_boot.devices import is_of_fabric
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities import contexts
from tests.capabilities.asking import CHECKS, expect
from tests.capabilities.efa_host import CORE, KERNEL, KO, NAMES, PLUGIN, RECORD, SHA256, block, devices, fi_info, said
from tests.rows import run_each

ASKED = block()
INBOX = block(stack="inbox", installer="")
BROUGHT = block(installer="")
IN_TREE = f"/lib/modules/{KERNEL}/kernel/drivers/infiniband/hw/efa/efa.ko.zst"
OFED = f"/lib/modules/{KERNEL}/updates/dkms/ib_core.ko"
OTHER = RECORD.replace("2df4", "ffff")


def ask(check: str, wanted: Rdma, text: str, devs: str = devices()) -> Outcome:
    return contexts.answer(f"rdma.efa_{check}", contexts.spec(rdma=wanted), {"efa": text, "rdma_devices": devs})


ROWS: list[tuple[str, str, Rdma, str, str, str, str]] = [
    ("four interfaces", "function", ASKED, said(), "pass", "4 functions", ""),
    ("none", "function", ASKED, said(bound=()), "fail", "none",
     "p4d.24xlarge: launch it with network interfaces of type efa"),
    ("no driver, but an installer", "function", ASKED, said(version=None, kernels=(f"{KERNEL}|1||",)), "pass",
     "4 functions", ""),
    ("no driver, and none comes", "function", BROUGHT, said(version=None, kernels=(f"{KERNEL}|1||",)),
     "fail", "the kernel has none, and the spec names no installer", "rdma.efa.installer"),
    ("no driver, and the kernel's is asked for", "function", block(stack="inbox"),
     said(version=None, kernels=(f"{KERNEL}|1||",)),
     "fail", "the kernel has none", "installer"),
    ("the kernel's own ib_core", "ofed", ASKED, said(), "pass", CORE, ""),
    ("none on disk", "ofed", ASKED, said(core=""), "pass", "not on disk", ""),
    ("built in", "ofed", ASKED, said(core="(builtin)"), "pass", "builtin", ""),
    ("OFED's", "ofed", ASKED, said(core=OFED), "fail", OFED, "remove OFED"),
    ("as asked for", "source", ASKED, said(), "pass", "version 1.47.0", ""),
    ("never run", "source", ASKED, said(installer="", record=""), "fail", "has run no installer here", "gpuprov apply"),
    ("another one", "source", ASKED, said(record=OTHER), "fail", "the one with SHA-256 ffff", "gpuprov apply"),
    ("other options", "source", block(mpi="openmpi5"), said(), "fail", "it ran with -y --no-verify", "gpuprov apply"),
    ("a record that is none", "source", ASKED, said(record="{"), "fail", "has run no installer", "gpuprov apply"),
    ("somebody ran an older one since", "source", ASKED, said(installer="1.30.0"), "fail", "says 1.30.0: somebody",
     "rm /var/lib"),
    ("somebody removed it", "source", ASKED, said(installer=""), "fail", "says nothing",
     "rm /var/lib/gpuprov/efa.json"),
    ("what an image brought", "source", BROUGHT, said(record=""), "n/a", "was there", ""),
    ("AWS's driver", "driver", ASKED, said(), "pass", "efa 3.1.0", ""),
    ("the kernel's", "driver", INBOX, said(version=""), "pass", "the kernel's own efa", ""),
    ("not loaded", "driver", ASKED, said(version=None), "fail", "not loaded", "modprobe efa"),
    ("another build", "driver", ASKED, said("stale|"), "fail", "another build than the one on disk", "gpuprov apply"),
    ("the kernel's own", "driver", ASKED, said("stale|", version=""), "fail", "is the kernel's own", "gpuprov apply"),
    ("a build in use", "driver", ASKED, said("stale|", "user|71|python3"), "fail", "in use by python3 (71)",
     "reboot, or end them"),
    ("the kernel's where AWS's is asked for", "driver", ASKED, said(version=""), "fail", "has no version",
     "dkms status efa"),
    ("a function without a driver", "driver", ASKED, said(bound=("efa", "", "efa", "vfio-pci")),
     "fail", "not bound: 0000:20:1b.0 0000:a0:1b.0", "dmesg"),
    ("all that p4d has", "interfaces", ASKED, said(), "pass", "4 on p4d.24xlarge", ""),
    ("32 can be, 4 are", "interfaces", ASKED, said(product="p5.48xlarge"), "fail", "4",
     "each network card of the launch template"),
    ("the spec says how many", "interfaces", block(count=4), said(product="p5.48xlarge"), "n/a", "rdma.count says", ""),
    ("an unknown type", "interfaces", ASKED, said(product="p9.metal"), "skip", "how many p9.metal can have", ""),
    ("each has an endpoint", "libfabric", ASKED, said(), "pass", "4 devices", ""),
    ("no fi_info", "libfabric", ASKED, said(fi=None), "fail", "no fi_info", "installer"),
    ("none is found", "libfabric", ASKED, said(fi=("fi_getinfo: -61",)), "fail", "fi_info: fi_getinfo: -61",
     "gpuprov explain"),
    ("it says nothing", "libfabric", ASKED, said(fi=()), "fail", "fi_info: nothing", "gpuprov explain"),
    ("one has none", "libfabric", ASKED, said(fi=fi_info(*NAMES[:3])), "fail", "none on rdmap160s27", "dmesg"),
    ("the plugin", "plugin", ASKED, said(), "pass", f"{PLUGIN} 1.17.2-1", ""),
    ("not asked for", "plugin", block(plugin=False), said(plugins=()), "n/a", "plugin is false", ""),
    ("none", "plugin", ASKED, said(plugins=()), "fail", "no libnccl-net.so", "ldconfig"),
    ("one of another name", "plugin", ASKED, said(plugins=("/usr/lib/libnccl-net-ofi.so",)), "fail",
     "libnccl-net-ofi.so", "ldconfig"),
    ("another's comes first", "plugin", ASKED, said(plugins=("/opt/hpcx/nccl/lib/libnccl-net.so", PLUGIN)),
     "fail", "/opt/hpcx/nccl/lib/libnccl-net.so comes first", "ld.so.conf.d"),
    ("not asked for", "gpudirect", ASKED, said(p2p=""), "n/a", "DMA-BUF", ""),
    ("by the driver", "gpudirect", block(gpudirect=True), said(), "pass", "NVIDIA peer memory", ""),
    ("loaded too early", "gpudirect", block(gpudirect=True), said(p2p=""), "fail", "empty on rdmap16s27",
     "load NVIDIA's"),
    ("as older drivers show it", "gpudirect", block(gpudirect=True), said(p2p="0"), "fail", "empty on", "rmmod efa"),
    ("the kernel's driver has none", "gpudirect", block(gpudirect=True), said(version=""), "fail", "no such file",
     "DMA-BUF"),
    ("nothing set", "environment", ASKED, said(), "pass", "nothing interferes", ""),
    ("what is right", "environment", ASKED, said("env|/etc/environment|FI_PROVIDER=efa"), "pass", "nothing", ""),
    ("TCP", "environment", ASKED, said("env|/etc/environment|FI_PROVIDER='tcp'"), "fail", "FI_PROVIDER=tcp",
     "/etc/environment"),
    ("no RDMA", "environment", ASKED, said("env|/etc/profile.d/x.sh|FI_EFA_USE_DEVICE_RDMA=0"), "fail", "RDMA=0",
     "x.sh"),
    ("fork", "environment", ASKED, said("env|/etc/environment|RDMAV_FORK_SAFE=1"), "fail", "RDMAV_FORK_SAFE=1",
     "/etc/environment"),
    ("each kernel", "kernels", ASKED, said(), "pass", "1 kernel", ""),
    ("a kernel with its own alone", "kernels", ASKED, said(kernels=(f"{KERNEL}|1|{KO}|3.1.0",
                                                                    f"6.8.0-1030-aws|0|{IN_TREE}|")),
     "fail", "none for 6.8.0-1030-aws", "dkms autoinstall"),
    ("which is enough", "kernels", INBOX, said(kernels=(f"{KERNEL}|1|{IN_TREE}|",)), "pass", "1 kernel", ""),
    ("a kernel without", "kernels", INBOX, said(kernels=(f"{KERNEL}|1|{IN_TREE}|", "6.8.0-1030-aws|0||")), "fail",
     "none", "headers"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row[1]}: {row[0]}") for row in ROWS])
def test_efa(row: tuple[str, str, Rdma, str, str, str, str]) -> None:
    _, check, wanted, text, status, found, fix = row
    expect(ask(check, wanted, text), status, found, fix)


def test_a_held_driver_asks_for_a_reboot() -> None:
    assert "python3 (71)" in ask("driver", ASKED, said("stale|", "user|71|python3")).reboot
    assert not ask("driver", ASKED, said("stale|")).reboot


def test_fewer_devices_than_the_instance_can_have() -> None:
    assert ask("interfaces", ASKED, said(), devices(3)).status == "fail"
    assert ask("libfabric", ASKED, said(), "").status == "fail", "endpoints without devices"


@run_each("check", [name for name in CHECKS if name.startswith("rdma.efa_")])
def test_other_fabrics_are_not_asked(check: str) -> None:
    outcome = ask(check.removeprefix("rdma.efa_"), Rdma(fabric="roce"), said())
    assert (outcome.status, outcome.found) == ("n/a", "the fabric is roce")


def test_its_devices_are_of_its_fabric_alone_and_nccl_is_told_of_none() -> None:
    found = Facts({"rdma_devices": Output(devices())}).get(DEVICES)
    for fabric in ("infiniband", "roce", "iwarp", "erdma", "soft", "efa"):
        assert [is_of_fabric(fabric, device) for device in found] == [fabric == "efa"] * 4
    assert conf.lines(ASKED, found) == ()


def test_the_host_as_a_spec() -> None:
    def told(text: str) -> object:
        return efa.exported(Facts({"efa": Output(text)}))

    assert told(said()) == {"stack": "efa-vendor", "efa": {"installer": "1.47.0", "plugin": True}}
    assert told(said(version="")) == {"stack": "inbox", "efa": {"installer": "1.47.0", "plugin": True}}
    assert told(said(record="")) == {"stack": "efa-vendor", "efa": {"installer": "", "plugin": True}}
    assert told(said(installer="9.9.9", plugins=())) == {
        "stack": "efa-vendor",
        "efa": {"installer": "", "plugin": False},
    }


def test_the_catalogue() -> None:
    known = catalogue.read_efa_file().installers
    assert (
        catalogue.read_efa_file().at("1.47.0") == "https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz"
    )
    assert all(len(one.sha256) == 64 for one in known)
    assert len({one.sha256 for one in known}) == len(known)
    assert [catalogue.count_devices(name) for name in ("p5.48xlarge", "p5en.48xlarge", "m5.large")] == [32, 16, 0]


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


@run_each(
    ("asked", "message"),
    [
        (block(stack="doca-ofed"), "error: rdma.stack is doca-ofed"),
        (block(installer="1.2.3"), 'error: rdma.efa.installer is "1.2.3", whose checksum gpuprov does not know'),
        (block(sha256="0" * 64), "error: rdma.efa.sha256 is not the one that AWS publishes of 1.47.0"),
        (block(url=URL, sha256="0" * 64), "error: rdma.efa.url and installer both name the installer"),
        (block(installer="", url=URL), "error: rdma.efa.sha256 is missing: url names a program that is run as root"),
        (block(installer="", file="/no/such.tar.gz", sha256="0" * 64),
         "error: rdma.efa.file /no/such.tar.gz is not there"),
        (block(installer="", sha256="0" * 64), "error: rdma.efa.sha256 is of no file"),
        (block(installer="", mpi="both"), "error: rdma.efa.mpi has no effect"),
        (block(stack="inbox", gpudirect=True), "error: rdma.efa.gpudirect is true, and rdma.stack inbox"),
        (block(nccl=Nccl(net_plugin="none")),
         "error: rdma.nccl.net_plugin is none, and NCCL uses EFA by a plugin alone"),
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
