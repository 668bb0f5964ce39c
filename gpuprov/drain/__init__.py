"""Schedulers: take a host out, wait until its last job has left, give it back."""

from gpuprov.drain.base import Adapter, State, Step

__all__ = ["Adapter", "State", "Step"]
