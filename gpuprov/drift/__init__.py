"""What differs on hosts from what was applied and from what is asked for, and who or what did it where their own logs say."""

from gpuprov.drift.drift import drift
from gpuprov.drift.model import HostDrift

__all__ = ["HostDrift", "drift"]
