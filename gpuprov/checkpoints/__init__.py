"""The states of hosts that verify called green: kept by apply on each host, as targets of a rollback."""

from gpuprov.checkpoints.choose import Back, Refused, back, trusted
from gpuprov.checkpoints.keep import is_kept, keep
from gpuprov.checkpoints.program import on_hosts

__all__ = ["Back", "Refused", "back", "is_kept", "keep", "on_hosts", "trusted"]
