"""What makes a Debian host look like a GPU host: PCI devices, NVML, packages, fabric manager. Each part is simulated, and says so."""
