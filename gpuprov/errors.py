"""Errors a user can act on, and the exit codes they become."""

from __future__ import annotations

EXIT_CODES: dict[int, str] = {
    0: "as wanted",
    1: "the host differs from its spec (or a reboot is still required), or nothing of it could be proven",
    2: "usage, inventory or spec error; nothing was changed",
    3: "apply failed on at least one host",
    4: "at least one host could not be reached",
    130: "interrupted",
}


class GpuprovError(Exception):
    """An error with a cause the user can see and a way out; printed without a traceback."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ApplyError(GpuprovError):
    """Apply could not be completed on at least one host."""

    exit_code = 3


class UnreachableError(GpuprovError):
    """A host could not be reached."""

    exit_code = 4
