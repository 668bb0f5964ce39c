"""Parts that make a Debian host look like a GPU host: PCI devices, NVML, packages, fabric manager. Each is simulated,
and marked so."""
