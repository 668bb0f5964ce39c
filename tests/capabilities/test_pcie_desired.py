"""pcie: what the role brings about on a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.pcie.desired import DROP_IN, FILES, PROGRAM, UNIT, UNIT_FILE
from gpuprov.capabilities.pcie.desired import make as make_values
from gpuprov.capabilities.pcie.fragment import REASON, Pcie, lines
from gpuprov.catalog.pcie import DROP_IN as DROP_IN_FILE
from gpuprov.catalog.pcie import GRUB, POLICY
from gpuprov.host_code.at_boot import pcie as onhost
from gpuprov.host_code.at_boot.pcie import CONFIG
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import facts
from tests.capabilities.pcie_host import GPU, HCA, LEFT, ON, said
from tests.rows import run_each

make: Callable[..., Any] = make_values


THERE, RUNS = "installed|", "irqbalance|/usr/sbin/irqbalance --foreground "
KEPT = f"{RUNS}--policyscript={POLICY} "
TOPO = ("topo|/usr/sbin/rdma_topo", "topo_status|100", "topo_grub|absent")
MASKS = ["/usr/sbin/rdma_topo", "write-grub-acs", "--output", GRUB]
NOTHING = {
    "install": [],
    "programs": {},
    "files": {},
    "units": {},
    "program": {},
    "unit": "",
    "off": ["gpuprov-pcie.service"],
    "differs": "",
}


def made(block: Pcie, text: str = "", container: str = "none\n") -> dict[str, Any]:
    """Return the role's values, with what its tasks are handed in short."""
    values = make(Context(HostSpec(name="h"), block, facts(pcie=text or said(), container=container)))
    tasks = {key: values["tasks"].get(key, {}) for key in ("unit", "balancer", "masks")}
    short = {"differs": tasks["unit"].get("differs", ""), "unit": tasks["unit"].get("name", "")}
    balancer = tasks["balancer"].get("state", "") + " differs" * bool(tasks["balancer"].get("differs"))
    return {**values, **short, "balancer": balancer, "masks": tasks["masks"].get("argv", [])}


LOCAL, COMPUTED = Pcie(affinity="local"), Pcie(acs="rdma_topo")
ROWS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("nothing is asked", made(Pcie(iommu="passthrough"), said(unit=("not-found", "inactive", ""))), NOTHING),
    ("nothing is asked any more", made(Pcie()), {**NOTHING, "absent": list(FILES)}),
    ("setpci is missing", made(Pcie(acs="disabled")), {"install": ["pciutils"], "differs": ""}),
    ("setpci is there", made(Pcie(acs="disabled"), said("setpci|")), {"install": []}),
    ("interrupts need none", made(LOCAL), {"install": [], "differs": "", "absent": [DROP_IN_FILE]}),
    ("ACS is on", made(Pcie(acs="disabled"), said(acs=ON)), {"differs": f"{LEFT} acs 001d -> 0000"}),
    ("an HCA and a GPU differ", made(Pcie(max_read_request=4096, gpu_max_read_request=1024)),
        {"differs": f"{GPU} max_read_request 512 -> 1024, {HCA} max_read_request 512 -> 4096"}),
    ("the drivers of HCAs are to come", made(Pcie(max_read_request=4096), said(hca=False)),
     {"differs": "max_read_request 4096"}),
    ("an interrupt is elsewhere", made(LOCAL, said(irq="0-31")), {"differs": f"{HCA} irq 101 0-31 -> 0-15"}),
    ("it is elsewhere in a container", made(LOCAL, said(irq="0-31"), "podman\n"), {"differs": ""}),
    ("irqbalance runs", made(LOCAL, said(THERE, RUNS)), {"balancer": "renewed differs"}),
    ("irqbalance has the policy", made(LOCAL, said(THERE, KEPT)), {"balancer": "renewed", "absent": []}),
    ("irqbalance should have it no more", made(Pcie(), said(THERE, KEPT)), {"balancer": "restarted"}),
    ("irqbalance is off", made(LOCAL, said(THERE)), {"balancer": "renewed"}),
    ("irqbalance is others' alone", made(Pcie(), said(THERE, RUNS)), {"balancer": ""}),
    ("masks are to be written", made(COMPUTED, said(*TOPO)), {"masks": MASKS, "reboot": REASON, "unit": ""}),
    ("masks wait for a reboot", made(COMPUTED, said(*TOPO[:2], "topo_grub|same")), {"masks": [], "reboot": REASON}),
    ("masks have been started with", made(COMPUTED, said(*TOPO[:2], "topo_grub|same", "topo_started|")),
     {"reboot": ""}),
    ("masks are in force", made(COMPUTED, said(TOPO[0], "topo_status|0", "topo_grub|same")),
     {"masks": [], "reboot": ""}),
]  # fmt: skip


@run_each(("name", "found", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_brought_about(name: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    "block",
    [
        Pcie(acs="disabled", affinity="local"),
        Pcie(acs="disabled", max_read_request=4096, gpu_max_read_request=512, relaxed_ordering="disabled"),
    ],
)
def test_the_program_reads_what_the_role_writes(block: Pcie, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(block, said(THERE))
    (tmp_path / "pcie.conf").write_text(found["files"][CONFIG])
    monkeypatch.setattr(onhost, "CONFIG", str(tmp_path / "pcie.conf"))
    assert onhost.read_settings() == dict(line.split() for line in lines(block))
    assert (found["units"], found["program"]) == ({UNIT_FILE: UNIT}, PROGRAM)
    assert found["files"].get(DROP_IN_FILE) == (DROP_IN if block.affinity == "local" else None)
