"""Time limits for hosts, shared by several commands."""

# Seconds for one act of the playbook on a host: building a driver for several kernels on a slow machine takes most of
# an hour. playbooks/site.yml has the same value, for ansible-playbook without gpuprov.
ACT_LIMIT = 7200
# Seconds after which another run may take over a host that its run no longer reaches.
LEASE = 300
# Seconds to read one host, from connect to the last byte.
HOST_LIMIT = 120.0
