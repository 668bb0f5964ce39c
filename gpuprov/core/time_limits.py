"""Time limits for hosts, shared by several commands."""

ACT_LIMIT = 7200
"""Seconds for one act of the playbook on a host: building a driver for several kernels on a slow machine takes most of
an hour. playbooks/site.yml has the same value, for ansible-playbook without gpuprov."""
LEASE = 300
"""Seconds after which another run may take over a host that its run no longer reaches."""
HOST_LIMIT = 120.0
"""Seconds to read one host, from connect to the last byte."""
