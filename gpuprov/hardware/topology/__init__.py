"""The wiring of a host: GPUs, NVLinks, PCIe switches, NUMA nodes and HCAs; their distances, and defects."""

from gpuprov.hardware.topology.model import DISTANCES, Wiring, read

__all__ = ["DISTANCES", "Wiring", "read"]
