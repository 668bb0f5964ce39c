"""What is wired to what on a host: GPUs, NVLinks, PCIe switches, NUMA nodes and HCAs; how far they are, and what is wrong."""

from gpuprov.topology.model import DISTANCES, Wiring, read

__all__ = ["DISTANCES", "Wiring", "read"]
