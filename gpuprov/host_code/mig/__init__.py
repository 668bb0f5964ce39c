"""MIG mode, GPU instances and compute instances of a host: planned by one search, for checks and on hosts, and set
through NVML."""
