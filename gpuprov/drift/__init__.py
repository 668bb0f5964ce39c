"""Drift of hosts: differences from the last apply and from the spec, and who or what caused them if the hosts' own logs
say so."""

from gpuprov.drift.drift import drift
from gpuprov.drift.model import HostDrift

__all__ = ["HostDrift", "drift"]
