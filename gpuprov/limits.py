"""How long a host may take, where several commands say it."""

from __future__ import annotations

ACT_LIMIT = 7200
"""Seconds for one act of the playbook on a host: builds of a driver for several kernels on a slow machine take most of an hour.
playbooks/site.yml says the same, for ansible-playbook without gpuprov."""
LEASE = 300
"""Seconds after which a host that its run does not reach any more is another run's to take over."""
HOST_LIMIT = 120.0
"""Seconds to read one host, from connect to the last byte."""
