"""The wiring of the good host: one H100 below a root port, its NVLinks up. Its HCAs are what a test of `topology`
adds."""

from __future__ import annotations

from tests.hardware.topology.machines import H100, Machine

GOOD = Machine(sockets={0: 0})
GOOD.gpu("pci0000:15/0000:15:01.0/0000:19:00.0", H100, 0)
GOOD.joined(18)
PROBES = {name: text for name, text in GOOD.texts.items() if name != "rdma_devices"}
