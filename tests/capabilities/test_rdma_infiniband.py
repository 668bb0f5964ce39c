"""rdma: what InfiniBand alone has, and software devices: management datagrams, IP over InfiniBand, opensm, rxe and
siw."""

from __future__ import annotations

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.fragment import Opensm, Rdma, Soft
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, Row, facts, good, judge
from tests.capabilities.rdma_host import SOFT, TWO, host, rxe
from tests.rows import run_each

UMAD, IPOIB, OPENSM = (f"rdma.{name}" for name in ("umad", "ipoib", "opensm"))
RXE = Rdma(fabric="soft", soft=Soft(netdevs=("ens4",)))
MANAGED = Rdma(opensm=Opensm(hosts=("gpu1",)))

ROWS = [
    # What InfiniBand alone has.
    Row("umad", UMAD, None, {}, "pass", "ib_umad, 2 ports"),
    Row("ib_umad is not loaded", UMAD, None, {"rdma_host": host(modules={"ib_umad": "there"}, umad=0)}, "fail",
        "not loaded", "modprobe ib_umad", change="module ib_umad:  -> loaded"),
    Row("a port without umad", UMAD, None, {"rdma_host": host(umad=1)}, "fail", "1"),
    Row("no umad on Ethernet", UMAD, RXE, {"rdma_host": host(umad=0)}, "n/a", "no management datagrams"),
    Row("no IPoIB asked for", IPOIB, None, {}, "n/a", "not in the spec"),
    Row("IPoIB", IPOIB, Rdma(ipoib=True), {"rdma_devices": TWO,
        "rdma_host": host(netdevs=("ibp59s0|80:00:02|up|32|0000:3b:00.0|", "ibp94s0|80:00:03|down|32|0000:5e:00.0|"))},
        "pass", "ibp59s0 ibp94s0"),
    Row("one without", IPOIB, Rdma(ipoib=True),
        {"rdma_devices": TWO, "rdma_host": host(netdevs=("ib0|80:00|up|32|0000:3b:00.0|",))}, "fail",
        "none for ibp94s0", "dmesg"),
    Row("no ib_ipoib", IPOIB, Rdma(ipoib=True), {"rdma_host": host(modules={"ib_ipoib": "there"})}, "fail",
        "not loaded", "modprobe"),
    Row("opensm here", OPENSM, MANAGED, {"rdma_host": host(managers=2)}, "pass", "2 opensm processes"),
    Row("not started: the unit's check tells", OPENSM, MANAGED, {}, "pass", "no opensm process"),
    Row("opensm on a host that is not to have it", OPENSM, Rdma(opensm=Opensm(hosts=("head1",))),
        {"rdma_host": host(managers=2)}, "fail", "2 opensm processes", "disable --now"),
    Row("started by hand beside a managed switch", OPENSM, Rdma(opensm=Opensm(elsewhere=True)),
        {"rdma_host": host(managers=1)}, "fail", "1 opensm", "pgrep"),
    Row("none here", OPENSM, Rdma(opensm=Opensm(elsewhere=True)), {}, "pass", "no opensm process"),
    Row("of which the spec says nothing", OPENSM, None, {"rdma_host": host(managers=2)}, "n/a", "does not mention"),
]  # fmt: skip


def test_a_host_runs_opensm_by_its_name_in_the_inventory() -> None:
    check = CHECKS["rdma.opensm"]
    texts = {
        name: text
        for name, text in {**good(), "rdma_host": host(managers=2)}.items()
        if name in {p.name for p in check.probes}
    }
    for name, status in (("gpu1", "pass"), ("gpu2", "fail")):
        assert check.run(Context(HostSpec(name=name), MANAGED, facts(**texts))).status == status


SOFTLY = "rdma.soft"
SIW = Rdma(fabric="soft", soft=Soft(driver="siw", netdevs=("ens4",)))
TAKEN = 'UNCONN 0 0 0.0.0.0:4791 0.0.0.0:* users:(("gunicorn",pid=612,fd=3))'
SOFTWARE = [
    # Software devices: found by interface, whatever udev called them.
    Row("renamed by udev", SOFTLY, RXE, {"rdma_devices": rxe(), "rdma_host": SOFT}, "pass",
        "rocex525400fffe4d0001 on ens4"),
    Row("by MAC address", SOFTLY, Rdma(fabric="soft", soft=Soft(netdevs=("52:54:00:4d:00:01",))),
        {"rdma_devices": rxe("rxe0"), "rdma_host": SOFT}, "pass", "rxe0 on ens4"),
    Row("by the default route", SOFTLY, Rdma(fabric="soft"), {"rdma_devices": rxe("rxe0"), "rdma_host": SOFT}, "pass",
        "rxe0 on ens4"),
    Row("no default route any more", SOFTLY, Rdma(fabric="soft"),
        {"rdma_devices": rxe("rxe0"), "rdma_host": host(route="")}, "fail", "no network interface the default route's"),
    Row("the link was removed", SOFTLY, RXE, {"rdma_devices": "", "rdma_host": SOFT}, "fail", "ens4 has no rxe device",
        "systemctl restart gpuprov-rdma-soft.service", change="setting rdma link, ens4:  -> rxe"),
    Row("a device on another interface", SOFTLY, RXE, {"rdma_devices": rxe("rxe0", "ens3"), "rdma_host": SOFT}, "fail",
        "ens4 has no rxe device"),
    Row("siw in its place", SOFTLY, RXE, {"rdma_devices": rxe("siw0", driver="siw"), "rdma_host": SOFT}, "fail",
        "(siw0 is siw)"),
    Row("siw", SOFTLY, SIW, {"rdma_devices": rxe("siw0", driver="siw"), "rdma_host": SOFT}, "pass", "siw0 on ens4"),
    Row("the interface is gone", SOFTLY, RXE, {"rdma_devices": "", "rdma_host": host(netdevs=())}, "fail",
        "no network interface ens4"),
    Row("another holds the port", SOFTLY, RXE, {"rdma_devices": "", "rdma_host": host(port=(TAKEN,))}, "fail",
        "has no rxe device", "UDP port 4791 is held by gunicorn"),
    Row("the module is gone", SOFTLY, RXE, {"rdma_devices": "", "rdma_host": host(modules={"rdma_rxe": "absent"})},
        "fail", "", "no module rdma_rxe"),
    Row("hardware needs none", SOFTLY, None, {}, "n/a", "not in the spec"),
]  # fmt: skip


@run_each("row", [*ROWS, *SOFTWARE], ids=lambda row: f"{row.check}: {row.name}")
def test_answers(row: Row) -> None:
    judge(row)
