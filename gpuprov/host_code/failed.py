"""The error of work on this host, which gpuprov_step reports."""

from __future__ import annotations


class Failed(Exception):
    """What could not be done and why, with the fix where one is known; one line."""
