"""Facts of hosts: probes with parsers, how many hosts are read at a time, and records read instead of a host."""
