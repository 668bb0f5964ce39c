"""eRDMA and NCCL, known offline: what cannot be, what is only warned of, and what the hosts of a fleet must have in
common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.hpc.fragment import Hpc
from gpuprov.capabilities.rdma.erdma import checks as erdma
from gpuprov.capabilities.rdma.erdma.desired import at_boot
from gpuprov.capabilities.rdma.erdma.state import lines, list_parameters
from gpuprov.capabilities.rdma.fragment import Rdma, Soft
from gpuprov.capabilities.rdma.nccl import checks as nccl
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.catalog.rdma import nccl as variables
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import HostSpec
from tests.capabilities.erdma_host import SHA256, block, devices, said
from tests.rows import run_each

HOST = HostSpec(name="gpu1")


def told(problems: Any) -> list[str]:
    return [f"{problem.severity}: {problem.message}" for problem in problems]


def test_a_good_spec() -> None:
    for good in (
        block(),
        block(installer="1.5.7"),
        block(packages=("erdma",)),
        block(url="https://site.example/erdma_installer-1.5.7.tar.gz", sha256="0" * 64),
        block(parameters={"default_cc": 0, "vector_num": 2}),
        block(stack="inbox", compat_mode=False),
    ):
        assert told(erdma.rules(HOST, good)) == []
        assert told(nccl.rules(HOST, good)) == []
    assert told(erdma.rules(HOST, Rdma(fabric="roce"))) == []


@run_each(
    ("asked", "message"),
    [
        (block(stack="doca-ofed"), "rdma.stack is doca-ofed, which has no driver of eRDMA"),
        (block(installer="1.5.7", sha256="0" * 64), "rdma.erdma.sha256 is not the one that Alibaba publishes of 1.5.7"),
        (block(sha256="0" * 64), "rdma.erdma.sha256 is of no file"),
        (block(file="/no/such.tar.gz", sha256="0" * 64), "rdma.erdma.file /no/such.tar.gz is not there"),
        (block(packages=("erdma",), installer="1.5.7"), "rdma.erdma.packages and installer both name the driver"),
        (block(stack="inbox", compat_mode=False, parameters={"vector_num": 4}),
         "rdma.erdma.parameters goes with Alibaba's driver"),
        (block(parameters={"vector_num": -1}), "rdma.erdma.parameters.vector_num is -1"),
    ],
)  # fmt: skip
def test_what_cannot_be_of_erdma(asked: Rdma, message: str) -> None:
    found = told(erdma.rules(HOST, asked))
    assert any(one.startswith(f"error: {message}") for one in found), found


@run_each(
    ("asked", "message"),
    [
        (Rdma(nccl=Nccl(gid="index")), "error: rdma.nccl.gid has no effect: InfiniBand needs no GID"),
        (Rdma(fabric="soft", soft=Soft(driver="siw"), nccl=Nccl(addr_range="10.0.0.0/8")),
         "error: rdma.nccl.addr_range has no"),
        (block(Nccl(gid="none", addr_range="10.0.0.0/8")), "error: rdma.nccl.addr_range has no effect: gid is none"),
        (block(Nccl(addr_range="2001:db8::/64")),
         'error: rdma.nccl.addr_range is "2001:db8::/64", and addr_family is ipv4'),
        (block(Nccl(manage=False, topo_file="/t.xml")), "error: rdma.nccl.topo_file has no effect: manage is false"),
        (Rdma(nccl=Nccl(sharp=True, net_plugin="none")), "error: rdma.nccl.net_plugin is none, and sharp is a plugin"),
        (Rdma(nccl=Nccl(sharp=True)), "warning: rdma.nccl.sharp is true, and its plugin comes with HPC-X alone"),
        (Rdma(nccl=Nccl(sharp=True, settings={"NCCL_NET": "Socket"})),
         "error: rdma.nccl.settings.NCCL_NET is Socket, NCCL's own"),
        (Rdma(nccl=Nccl(sharp=True, settings={"NCCL_ALGO": "Ring"})),
         "error: rdma.nccl.settings.NCCL_ALGO is Ring, and sharp"),
        (block(Nccl(settings={"NCCL_CONF_FILE": "/x"})), "error: rdma.nccl.settings.NCCL_CONF_FILE has NCCL_CONF_FILE"),
        (block(Nccl(settings={"NCCL_IB_TIMEOT": 22})), "warning: rdma.nccl.settings.NCCL_IB_TIMEOT has NCCL_IB_TIMEOT"),
        (block(Nccl(settings={"NCCL_PROTO": "LL128"})), "warning: rdma.nccl.settings.NCCL_PROTO forces LL128 (LL128)"),
    ],
)  # fmt: skip
def test_what_cannot_be_of_nccl(asked: Rdma, message: str) -> None:
    found = told(nccl.rules(HOST, asked))
    assert any(one.startswith(message) for one in found), found


def test_settings_that_nobody_has_documented_are_taken() -> None:
    given: dict[str, int | str] = {"NCCL_GRAPH_FILE": "/g.xml", "NCCL_PROTO": "^LL128", "NCCL_IB_TIMEOUT": 22}
    assert told(nccl.rules(HOST, block(Nccl(settings=given)))) == []
    assert set(variables.FIELDS) <= variables.list_documented()


@run_each(
    ("options", "expected"),
    [
        (Nccl(sharp=True), []),
        (Nccl(sharp=True, net_plugin="libnccl-net.so"), []),
        (Nccl(sharp=True, net_plugin="/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"), []),
        (Nccl(sharp=True, settings={"NCCL_ALGO": "Tree,CollnetDirect", "NCCL_NET": "IBext"}), []),
        (Nccl(sharp=True, net_plugin="aws-ofi"),
         ["error: rdma.nccl.net_plugin is aws-ofi: NCCL loads libnccl-net-aws-ofi.so"]),
    ],
)  # fmt: skip
def test_the_plugin_that_nccl_loads_for_sharp_is_that_of_hpcx(options: Nccl, expected: list[str]) -> None:
    host = HostSpec(name="gpu1", capabilities={"hpc": Hpc(mpi="hpcx")})
    found = told(nccl.rules(host, Rdma(nccl=options)))
    assert [one.partition(",")[0] for one in found] == expected


def fleet(**asked: Rdma) -> list[tuple[str, str]]:
    hosts = [HostSpec(name=name, capabilities={"rdma": one}) for name, one in asked.items()]
    return [(name, f"{problem.severity}: {problem.message}") for name, problem in erdma.fleet_rules(hosts)]


def test_modes_that_cannot_talk_to_each_other() -> None:
    compat, iwarp = block(), block(compat_mode=False)
    assert fleet(a=compat, b=compat, c=Rdma(fabric="iwarp")) == []
    ((name, message),) = fleet(a=compat, b=iwarp, c=compat)
    assert name == "b"
    assert message == "error: rdma.erdma.compat_mode is false on b, and true on a, c: they cannot talk to each other"
    many = {f"h{number}": compat for number in range(5)}
    assert "true on h0, h1, h2 and 2 more" in fleet(**many, x=iwarp)[0][1]
    assert "true on a, b, c: they" in fleet(a=compat, b=compat, c=compat, x=iwarp)[0][1]


def test_frames_of_two_sizes_are_a_warning() -> None:
    ((name, message),) = fleet(a=block(), b=block(mtu="standard"))
    assert (name, message) == ("b", "warning: rdma.erdma.mtu is standard on b, and jumbo on a")


@run_each("asked", [block(), block(compat_mode=False, mtu="standard", parameters={"default_cc": 2, "rand_qpn": True})])
def test_the_roles_files_say_what_the_checks_expect(asked: Rdma) -> None:
    facts = Facts({"erdma": Output(said()), "rdma_devices": Output(devices())})
    made = at_boot(Context(HostSpec(name="gpu1"), asked, facts))
    assert made
    shown = {
        path: [line for line in text.splitlines() if line[:1] not in ("#", "")] for path, text in made.files.items()
    }
    assert tuple(shown[catalogue.CONFIG]) == lines(asked)
    options = "options erdma " + " ".join(f"{name}={value}" for name, value in list_parameters(asked).items())
    assert shown[catalogue.OPTIONS] == [options, catalogue.SOFTDEP]


def test_the_catalogue_knows_published_installers() -> None:
    known = catalogue.read_erdma_file().find("1.5.7")
    assert known
    assert known.sha256 == SHA256
    assert all(len(one.sha256) == 64 for one in catalogue.read_erdma_file().installers)
    assert (catalogue.get_mtu("jumbo"), catalogue.get_mtu("standard")) == (8500, 1400)
    assert list(catalogue.list_ports({})) == list(range(30608, 30624))
    assert Path(catalogue.OPTIONS) != Path(catalogue.VENDOR_OPTIONS)
