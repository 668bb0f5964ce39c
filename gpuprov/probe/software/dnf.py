"""dnf 4 without the network: what its repositories offer, from what the host has fetched."""

_ALL_THE_SAME = "--setopt=exit_on_lock=True --setopt='*.skip_if_unavailable=True' --disableplugin=versionlock"
REPOQUERY = f"dnf -q -C {_ALL_THE_SAME} repoquery --available"
"""Shell: the start of a query. It waits for no lock; a repository that was never fetched hides no other's."""
