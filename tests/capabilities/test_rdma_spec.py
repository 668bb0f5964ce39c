"""rdma, known offline: what a spec must not say, hosts of one fabric together, what it asks of the kernel, a host as a
spec."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities import rdma
from gpuprov.capabilities.rdma.fragment import Opensm, Rdma, Selector, Soft
from gpuprov.capabilities.rdma.rules import fields, fleet_rules, selectors, slots, stacks
from gpuprov.catalog import rdma as catalogue
from gpuprov.core import assets
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma import surroundings as probe
from gpuprov.spec.build import convert
from gpuprov.spec.model import GpuSpec, HostSpec
from tests.capabilities import ofed_host
from tests.capabilities.asking import BARE, facts
from tests.capabilities.rdma_host import BRIDGE, SOFT, TWO, device, host, rxe
from tests.rows import run_each

LIMITS = {"login_limits": "* - memlock unlimited\n", "default_limits": "DefaultLimitMEMLOCK=infinity\n"}
OTHERS = {"ofed_packages": "", **{name: BARE[name] for name in ("ofed", "erdma", "nccl", "roce")}}
A, B = Selector(pci="0000:3b:00.0"), Selector(pci="0000:5e:00.0")


@run_each(
    ("block", "said"),
    [
        (Rdma(), ""),
        (Rdma(devices=(A, B), count=2, rate=400, ipoib=True, opensm=Opensm(hosts=("head1",))), ""),
        (Rdma(fabric="soft", soft=Soft(driver="siw", netdevs=("ens3", "52:54:00:12:34:56"))), ""),
        (Rdma(fabric="roce", stack="doca-ofed"), ""),
        (Rdma(stack="erdma-vendor"), "rdma.stack is erdma-vendor, and rdma.fabric is infiniband; fabric: erdma"),
        (Rdma(fabric="soft", stack="doca-ofed"),
         "rdma.stack is doca-ofed, whose ib_core the kernel's soft drivers do not load with"),
        (Rdma(fabric="iwarp", stack="doca-ofed"), "the kernel's iwarp drivers do not load with; stack: inbox"),
        (Rdma(fabric="roce", ipoib=True), "rdma.ipoib has no effect: rdma.fabric is roce; fabric: infiniband"),
        (Rdma(opensm=Opensm(hosts=("a",), elsewhere=True)), "rdma.opensm.elsewhere: the subnet manager is elsewhere"),
        (Rdma(opensm=Opensm(hosts=("a", "a"))), 'rdma.opensm.hosts[1] is "a" again; take one out'),
        (Rdma(fabric="soft", soft=Soft(netdevs=("ens3", "ens3"))), 'rdma.soft.netdevs[1] is "ens3" again'),
        (Rdma(fabric="soft", rate=100), "rdma.rate says nothing of the bandwidth with fabric soft"),
        (Rdma(fabric="erdma", rate=100), "rdma.rate says nothing of the bandwidth with fabric erdma"),
        (Rdma(fabric="soft", devices=(A,)), "rdma.devices has no effect: rdma.fabric is soft; rdma.soft.netdevs"),
        (Rdma(devices=(Selector(),)), 'rdma.devices[0] is empty; give pci: "0000:3b:00.0", driver or netdev'),
        (Rdma(devices=(A, A)), "rdma.devices[1] is pci 0000:3b:00.0 again"),
        (Rdma(devices=(A, B), count=8), "rdma.count is 8, and rdma.devices names 2; count: 2"),
        (Rdma(devices=(Selector(driver="mlx5_core"),), count=8), ""),
        (Rdma(fabric="soft", count=2), "rdma.count is 2, and rdma.soft makes 1"),
    ],
)  # fmt: skip
def test_rules(block: Rdma, said: str) -> None:
    found = [str(one) for rule in (stacks, fields, selectors) for one in rule(block)]
    assert [one for one in found if said in one] == found
    assert len(found) == bool(said)


@run_each(
    ("model", "rate", "said"),
    [
        ("A100-SXM4-80GB", 400, "rdma.rate is 400 Gb/s, and boards with A100-SXM4-80GB have PCIe 4.0"),
        ("A800-SXM4-80GB", 400, "of which 16 lanes carry 252 Gb/s"),
        ("A100-SXM4-80GB", 200, ""),
        ("H100-SXM5-80GB", 400, ""),
        ("A100-PCIE-80GB", 400, ""),
        ("", 400, ""),
    ],
)
def test_a_rate_that_no_slot_of_the_board_carries_is_a_warning(model: str, rate: int, said: str) -> None:
    spec = HostSpec(name="gpu1", gpu=GpuSpec(model=model, count=8) if model else None)
    found = list(slots(spec, Rdma(rate=rate)))
    assert [one for one in found if said in one.message and one.severity == "warning"] == found
    assert len(found) == bool(said)


@run_each(
    ("values", "place", "fix"),
    [
        ({"fabric": "infinband"}, 'rdma.fabric is "infinband"', "infiniband"),
        ({"stack": "mlnx-ofed"}, 'rdma.stack is "mlnx-ofed"', "doca-ofed"),
        ({"devices": [{"pci": "3b:00"}]}, 'rdma.devices[0].pci is "3b:00"', "0000:3b:00.0"),
        ({"devices": [{"name": "mlx5_0"}]}, 'unknown key "name"', "driver, netdev, pci"),
        ({"soft": {"netdevs": ["52:54:00:AB:00:01"]}}, "rdma.soft.netdevs[0] is", "in lower case"),
        ({"soft": {"driver": "rdma_rxe"}}, 'rdma.soft.driver is "rdma_rxe"', "rxe"),
        ({"memlock": "infinity"}, 'rdma.memlock is "infinity"', "unlimited, or KiB"),
        ({"memlock": "0"}, 'rdma.memlock is "0"', "unlimited"),
        ({"opensm": {"host": ["a"]}}, 'unknown key "host"', 'did you mean "hosts"?'),
        ({"rate": -1}, "rdma.rate is -1", "0 to 3200"),
        ({"fabric": "roce", "roce": {"pfc": [8]}}, "roce.pfc[0] is 8", ""),
        ({"fabric": "roce", "roce": {"pfc": 3}}, "roce.pfc is 3", ""),
        ({"fabric": "roce", "roce": {"dscp2prio": {"64": 3}}}, 'the key is "64"', ""),
        ({"fabric": "roce", "roce": {"dscp2prio": {26: 3}}}, "the key 26 is not text", ""),
        ({"fabric": "roce", "roce": {"dscp2prio": {"26": 8}}}, "roce.dscp2prio.26 is 8", ""),
        ({"fabric": "roce", "roce": {"tos": 256}}, "roce.tos is 256", ""),
        ({"fabric": "roce", "roce": {"traffic_class": -2}}, "roce.traffic_class is -2", ""),
        ({"fabric": "roce", "roce": {"cnp_dscp": 64}}, "roce.cnp_dscp is 64", ""),
        ({"fabric": "roce", "roce": {"cnp_802p_prio": 8}}, "roce.cnp_802p_prio is 8", ""),
        ({"fabric": "roce", "roce": {"mode": "v3"}}, 'roce.mode is "v3"', ""),
        ({"fabric": "roce", "roce": {"trust": "both"}}, 'roce.trust is "both"', ""),
        ({"fabric": "roce", "roce": {"tust": "dscp"}}, 'unknown key "tust" in rdma.roce', ""),
        ({"stack": "doca-ofed", "ofed": {"version": "3.2.1"}}, 'ofed.version is "3.2.1"', ""),
        ({"stack": "doca-ofed", "ofed": {"version": 25.10}}, "ofed.version is 25.1", ""),
        ({"stack": "doca-ofed", "ofed": {"url": "ftp://a/b.deb"}}, "ofed.url is", ""),
        ({"stack": "doca-ofed", "ofed": {"url": "https://user:pw@host/b.deb"}}, "ofed.url is", ""),
        ({"stack": "doca-ofed", "ofed": {"sha256": "abc"}}, 'ofed.sha256 is "abc"', ""),
        (
            {"stack": "doca-ofed", "ofed": {"openib_conf": {"FORCE_MOD": True}}},
            'unknown key "FORCE_MOD" in rdma.ofed.openib_conf',
            "",
        ),
        (
            {"stack": "doca-ofed", "ofed": {"openib_conf": {"ONBOOT": "maybe"}}},
            'ofed.openib_conf.ONBOOT is "maybe"',
            "",
        ),
    ],
)
def test_values_that_no_model_takes(values: object, place: str, fix: str) -> None:
    _, ((_, message, way),) = convert(values, Rdma, ("rdma",))
    assert place in message
    assert fix in way


def together(whole: bool = True, **blocks: Rdma) -> list[str]:
    hosts = [HostSpec(name=name, capabilities={"rdma": block}) for name, block in blocks.items()]
    return [f"{name}: {problem}" for name, problem in fleet_rules([*hosts, HostSpec(name="plain")], (), whole=whole)]


def test_a_fabric_without_a_subnet_manager_is_warned_of() -> None:
    (told,) = together(a=Rdma())
    assert "a: warning: rdma.opensm names no host, and rdma.opensm.elsewhere is false" in told
    assert "opensm: {elsewhere: true}" in told
    assert together(a=Rdma(opensm=Opensm(elsewhere=True)), b=Rdma(fabric="roce")) == []


def test_hosts_that_are_to_run_opensm_are_there_and_on_the_fabric() -> None:
    managed = Rdma(opensm=Opensm(hosts=("a",)))
    assert together(a=managed, b=managed) == []
    (told,) = together(a=Rdma(opensm=Opensm(hosts=("plain",))))
    assert 'rdma.opensm.hosts[0] is "plain", which has no rdma block' in told
    assert together(whole=False, a=Rdma(opensm=Opensm(hosts=("plain",)))) == []
    (told,) = together(a=Rdma(fabric="roce"), b=managed)
    assert 'is "a", whose rdma.fabric is roce' in told
    (told,) = together(a=Rdma(opensm=Opensm(elsewhere=True)), b=managed)
    assert "it would not run opensm; opensm: {hosts: [a]}" in told


@run_each(
    ("block", "modules", "memlock"),
    [
        (Rdma(), ("ib_uverbs", "rdma_ucm", "ib_umad", "mlx5_ib"), "unlimited"),
        (Rdma(ipoib=True, memlock="65536"), ("ib_uverbs", "rdma_ucm", "ib_umad", "mlx5_ib", "ib_ipoib"), 65536),
        (Rdma(devices=(Selector(driver="mlx4_core"),)), ("ib_uverbs", "rdma_ucm", "ib_umad"), "unlimited"),
        (Rdma(fabric="iwarp"), ("ib_uverbs", "rdma_ucm", "iw_cm"), "unlimited"),
        (Rdma(stack="doca-ofed"), (), "unlimited"),
        (Rdma(fabric="soft", memlock=""), None, None),
    ],
)
def test_what_is_asked_of_the_kernel(block: Rdma, modules: tuple[str, ...] | None, memlock: object) -> None:
    asked = rdma.contribute(HostSpec(name="h"), block)
    if modules is None:
        assert asked is None
        return
    assert asked is not None
    assert sorted(asked.modules_load) == sorted(modules)
    assert asked.limits == {"memlock": memlock}


def exported(devices: str, said: str, **limits: str) -> Any:
    return rdma.CAPABILITY.export(facts(rdma_devices=devices, rdma_host=said, **{**LIMITS, **OTHERS, **limits}))


def test_reality_as_a_spec() -> None:
    assert exported("", host()) is None
    assert exported(BRIDGE, host()) is None
    found = exported(TWO + BRIDGE, host())
    assert (found.fabric, found.count, found.rate, found.memlock, found.opensm) == (
        "infiniband",
        2,
        400,
        "unlimited",
        Opensm(elsewhere=True),
    )
    managed = exported(TWO, host(managers=2))
    assert managed.opensm == Opensm(), "the inventory's name of this host is not known here"
    addresses = ("ib0|80|up|32|0000:3b:00.0|", "ib1|81|up|32|0000:5e:00.0|")
    assert exported(TWO, host(netdevs=addresses)).ipoib
    assert not exported(TWO, host(netdevs=addresses[:1])).ipoib
    assert exported(TWO, host(), login_limits="* - memlock 64\n").memlock == ""
    assert (
        exported(TWO, host(), login_limits="* - memlock 64\n", default_limits="DefaultLimitMEMLOCK=65536\n").memlock
        == "64"
    )
    assert exported(device("a", layer="Ethernet"), host()).fabric == "roce"
    assert exported(device("a", driver="ice", layer="Ethernet", node="4: RNIC"), host()).fabric == "iwarp"
    assert exported(device("a", driver="erdma", layer="Ethernet"), host()) is None, (
        "its mode and MTU are not as gpuprov makes them"
    )
    assert exported(TWO, host()).nccl.manage is False, "the file is not gpuprov's"
    there = {"ofed": ofed_host.said(), "ofed_packages": ofed_host.packages(), "package_locking": ""}
    ofed = exported(TWO, host(), **there, os_release=ofed_host.UBUNTU)
    assert (ofed.stack, ofed.ofed.version, exported(TWO, host()).stack) == ("doca-ofed", "25.10-1.7.1", "auto")
    ports = "port|a|1|ens1|0000:3b:00.0|mlx5_core||CA\nvalue|a|1|trust|dscp\nvalue|a|1|dscp.26|5\n"
    roce = exported(device("a", layer="Ethernet"), host(), roce=ports).roce
    assert (roce.trust, roce.dscp2prio) == ("dscp", {"26": 5})


def test_software_devices_as_a_spec() -> None:
    assert exported(rxe(), host()) is None, "made by hand: the next boot has none"
    found = exported(rxe(), SOFT)
    assert (found.fabric, found.soft, found.count) == ("soft", Soft(), 0)
    named = exported(rxe(), host(soft="loaded|active|enabled", config=("rxe ens3", "rxe ens4")))
    assert named.soft == Soft(netdevs=("ens3", "ens4"))
    assert exported(rxe(), host(soft="loaded|active|enabled", config=("siw ens4",))) is None


def test_the_probe_reads_what_the_catalogue_names() -> None:
    named = {name for row in catalogue.read_rdma_file().modules for name in row.names}
    assert set(probe.MODULES) == {*named, "erdma"}
    assert set(catalogue.SOFT_MODULES.values()) <= named
    assert set(probe.SERVICES) == {row.key for row in catalogue.read_rdma_file().daemons}
    for row in catalogue.read_rdma_file().packages:
        assert set(row.debian) <= set(probe.DEBS.split())
        assert set(row.redhat) <= set(probe.RPMS.split("|"))


def test_what_roles_carry_as_text_is_no_template() -> None:
    """Ansible would take `{#`, as in ${#p}, for the beginning of a comment."""
    for text in (probe.HOST.script, DEVICES.script):
        assert not [mark for mark in ("{{", "{%", "{#") if mark in text]
    for file in (assets.root() / "roles/rdma/files").glob("*.sh"):
        assert "{#" not in file.read_text(encoding="utf-8")


def test_the_rate_of_a_port_that_is_slower_than_its_like_is_not_the_spec() -> None:
    others = "".join(device(f"ibp{number}s0", f"0000:{number:02x}:00.0") for number in range(3, 10))
    slow = device("ibp2s0", "0000:02:00.0", rate="100 Gb/sec (4X EDR)")
    storage = device("mlx5_bond", "0000:70:00.0", identifier="0x15b3|0x101d", rate="200 Gb/sec (4X HDR)")
    assert exported(others + slow, host()).rate == 400
    # Another model may be slower by design, and of two ports nobody knows which one is right.
    assert exported(others + storage, host()).rate == 200
    assert exported(TWO + slow.replace("ibp2s0", "ibp59s0x"), host()).rate == 400
