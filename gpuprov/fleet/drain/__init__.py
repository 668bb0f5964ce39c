"""Schedulers: take a host out, wait until its last job has left, give it back."""

from gpuprov.fleet.drain.base import Adapter, State, Step, format_undrain
from gpuprov.fleet.drain.choose import By, adapter, check_client

__all__ = ["Adapter", "By", "State", "Step", "adapter", "check_client", "format_undrain"]
