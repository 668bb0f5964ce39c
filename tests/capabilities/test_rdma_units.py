"""rdma: units that set devices at each boot, with what they read, opensm and openibd: now, and at the next boot."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.rdma.fragment import Opensm, Rdma, Soft
from gpuprov.capabilities.rdma.roce.fragment import Roce
from tests.capabilities import erdma_host, ofed_host
from tests.capabilities.asking import Row, judge
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.rdma_host import host, rxe
from tests.rows import run_each

FILES, ENABLED, ACTIVE = (f"rdma.{name}" for name in ("files", "enabled", "active"))
SOFT_UNIT, ROCE_UNIT, ERDMA_UNIT, OPENSM, OPENIBD = (
    f"{name}.service" for name in ("gpuprov-rdma-soft", "gpuprov-roce", "gpuprov-erdma", "opensm", "openibd")
)
SOFT = Rdma(fabric="soft", soft=Soft(netdevs=("ens4",)))
ROCE = Rdma(fabric="roce", roce=Roce(pfc=(3,)))
ERDMA = erdma_host.block()
MANAGED, ELSEWHERE = Rdma(opensm=Opensm(hosts=("gpu1",))), Rdma(opensm=Opensm(elsewhere=True))
DOCA = Rdma(stack="doca-ofed")
OLD = ofed_host.said(
    "client|python3 (7)", memory=tuple(ofed_host.loaded(one, older=True) for one in ("ib_core", "mlx5_core"))
)
ROWS = [
    *(
        row
        for name, block, part in (("soft", SOFT, SOFT_UNIT), ("roce", ROCE, ROCE_UNIT), ("erdma", ERDMA, ERDMA_UNIT))
        for row in (
            Row(f"{name} set at boot", ENABLED, block, {}, "pass", f"{part} enabled"),
            Row(f"{name} set now", ACTIVE, block, {}, "pass", f"{part} active"),
            Row(f"{name} whole", FILES, block, {}, "pass", "files as written by gpuprov"),
            Row(
                f"{name} switched off",
                ENABLED,
                block,
                {"contents": unit(part, "active", "disabled")},
                "fail",
                f"{part} is disabled",
                f"systemctl enable --now {part}",
                change=f"service {part}: disabled -> enabled",
            ),
            Row(
                f"{name} failed",
                ACTIVE,
                block,
                {"contents": unit(part, "failed", "enabled", f"{name}: it is held by: python3 (4711)")},
                "fail",
                f'{part} is failed ("{name}: it is held by: python3 (4711)")',
                f"journalctl -u {part}",
            ),
            Row(
                f"{name} left where another fabric is asked for",
                ENABLED,
                None,
                {"contents": unit(part, "active", "enabled")},
                "fail",
                f"{part} is enabled",
                f"systemctl disable --now {part}",
            ),
        )
    ),
    Row("nothing of it is asked for", ENABLED, None, {}, "n/a", "no unit"),
    Row("for another interface", FILES, SOFT, {"contents": Also("sum|0  /etc/gpuprov/rdma-soft.conf\n")}, "fail",
        "/etc/gpuprov/rdma-soft.conf: another text", "gpuprov apply"),
    Row("a configuration that is left", FILES, None, {"contents": Also("entry|f|644|0|0|/etc/gpuprov/roce.conf\n")},
        "fail", "/etc/gpuprov/roce.conf: there"),
    Row("opensm at boot", ENABLED, MANAGED, {}, "pass", f"{OPENSM} enabled"),
    Row("opensm now", ACTIVE, MANAGED, {"rdma_host": host(managers=2)}, "pass", f"{OPENSM} active"),
    Row("active without a process", ACTIVE, MANAGED, {}, "fail", f"{OPENSM} is without a process",
        "a port in state DOWN", change=f"service {OPENSM}: without a process -> started anew"),
    Row("gone with the next boot", ENABLED, MANAGED, {"contents": unit(OPENSM, "active", "disabled")}, "fail",
        f"{OPENSM} is disabled", "systemctl enable"),
    Row("there with the next boot, where another host has it", ENABLED, ELSEWHERE,
        {"contents": unit(OPENSM, "inactive", "enabled")}, "fail", f"{OPENSM} is enabled", "systemctl disable"),
    Row("beside a managed switch", ACTIVE, ELSEWHERE, {"contents": unit(OPENSM, "active", "enabled")}, "fail",
        "is active"),
    Row("of which the spec says nothing", ACTIVE, None, {"contents": unit(OPENSM, "active", "enabled")}, "n/a",
        "no unit"),
    Row("openibd", ENABLED, DOCA, {"ofed": ofed_host.said()}, "pass", f"{OPENIBD} enabled"),
    Row("openibd failed", ACTIVE, DOCA, {"ofed": ofed_host.said(), "contents": unit(OPENIBD, "failed", "enabled")},
        "fail", f"{OPENIBD} is failed", "/etc/init.d/openibd status"),
    Row("openibd cannot restart", ACTIVE, DOCA, {"ofed": OLD}, "skip", "RDMA devices are open in python3 (7)"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row.check}: {row.name}") for row in ROWS])
def test_units(row: Row) -> None:
    changed = {**row.changed, "rdma_devices": rxe()} if row.fragment is SOFT else row.changed
    judge(row._replace(changed=changed))
