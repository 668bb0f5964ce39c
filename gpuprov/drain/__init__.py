"""Schedulers: take a host out, wait until its last job has left, give it back."""

from gpuprov.drain.base import Adapter, State, Step
from gpuprov.drain.choose import By, adapter

__all__ = ["Adapter", "By", "State", "Step", "adapter"]
