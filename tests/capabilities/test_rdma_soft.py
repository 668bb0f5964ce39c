"""rdma: software devices, found by their interface."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.rdma.fragment import Rdma, Soft
from tests.capabilities.asking import Row, judge
from tests.capabilities.rdma_host import SOFT, host, rxe

SOFTLY = "rdma.soft"
RXE = Rdma(fabric="soft", soft=Soft(netdevs=("ens4",)))
SIW = Rdma(fabric="soft", soft=Soft(driver="siw", netdevs=("ens4",)))
TAKEN = 'UNCONN 0 0 0.0.0.0:4791 0.0.0.0:* users:(("gunicorn",pid=612,fd=3))'

ROWS = [
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.check}: {row.name}")
def test_answers(row: Row) -> None:
    judge(row)
