"""How a program ended, by its exit status, in words: of a signal, and of ssh, whose connection was cut."""

from __future__ import annotations

import signal

OF_SSH = 255
"""ssh(1): an error of ssh's own, or a connection that was closed."""
WANT_OF_MEMORY = 'for want of memory ("journalctl -k" tells), or by somebody there'


def by_signal(status: object) -> str:
    """The signal by which a program ended: as Python's subprocess tells it (-N), or a shell (128+N); empty for another status."""
    number = (
        0 if not isinstance(status, int) else -status if status < 0 else status - 128 if 128 < status < OF_SSH else 0
    )
    return signal.Signals(number).name if number in set(signal.Signals) else ""


def on_host(status: object, what: str) -> str:
    """Of what ran on the host: that a signal ended it, and why that may be; empty for another status."""
    name = by_signal(status)
    if name == "SIGKILL":
        return f"{what} was killed ({name}): {WANT_OF_MEMORY}"
    return f"{what} was ended by {name}" if name else ""


def connection(status: object) -> str:
    """Of ssh: that it was killed here, or its shell there, or the connection was cut; empty for another status."""
    if name := by_signal(status):
        return f"ssh was ended by {name}, on this machine" if _here(status) else on_host(status, "its shell there")
    return "the connection was cut" if status == OF_SSH else ""


def _here(status: object) -> bool:
    """A shell of the host never tells a negative status."""
    return isinstance(status, int) and status < 0
