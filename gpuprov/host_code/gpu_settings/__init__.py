"""ECC mode, power limit, clocks and compute mode of a host's GPUs: read and set through NVML, by a module and at each
boot."""
